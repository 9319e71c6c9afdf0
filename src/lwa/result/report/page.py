"""The page: sections in the order in which a reader needs them, the verdict first."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lwa import __version__
from lwa.errors import InputError
from lwa.result.report.advice import advice, warnings_of
from lwa.result.report.chains import autocorrelations, ranks_and_traces
from lwa.result.report.data import Reading, read
from lwa.result.report.markup import Markup, join, tag
from lwa.result.report.parameters import densities, forest, table
from lwa.result.report.reproduce import repeating
from lwa.result.report.subsets import story
from lwa.result.report.verdict import verdict

if TYPE_CHECKING:
    from lwa.result.result import Result

NAME = "report.html"
GENERATOR = '<meta name="generator" content="lwa'
"""By which a report is known, so that no other page is ever overwritten."""
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{generator} {version}">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
"""
"""The policy lets the page load nothing and run nothing, whatever a parameter is called."""
LINKS = {
    "table": "Parameters",
    "forest": "Intervals",
    "densities": "Densities",
    "chains": "Chains",
    "rows": "Rows",
    "autocorrelation": "Autocorrelation",
    "warnings": "Warnings",
    "settings": "Settings",
}


def write_report(fit: "Result", path: str | os.PathLike[str] | None = None) -> Path:
    """Write the page; refuses to overwrite a file that is no report."""
    target = Path(NAME if path is None else path)
    require_ours(target)
    text = page(fit)
    partial = target.with_name(target.name + ".partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InputError(
            f"Cannot write the report to {target}: {error.strerror or error}. Pass the path of a file that can be "
            "written, such as report.html."
        ) from None
    return target


def require_ours(target: Path) -> None:
    """Refuse a folder, and a file that is no report."""
    if target.is_dir():
        raise InputError(f"{target} is a folder. Pass the path of a file, such as {target / NAME}.")
    try:
        with target.open("rb") as file:
            ours = GENERATOR.encode() in file.read(1024)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(
            f"Cannot write the report to {target}: {error.strerror}. Pass the path of a new file."
        ) from None
    if not ours:
        raise InputError(f"{target} exists and is not a report of lwa. Pass the path of a new file.")


def page(fit: "Result") -> str:
    """All of it, as text."""
    reading = read(fit)
    title = f"{reading.told.get('method', 'lwa')}: {subject(reading)}"
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    head = HEAD.format(generator=GENERATOR, version=__version__, title=join(shortened(title)), style=style)
    parts = sections(reading)
    body = tag("body", header(reading), tag("main", verdict(reading), links(parts), *parts.values()))
    return f"{head}{body}\n</html>\n"


def sections(reading: Reading) -> dict[str, Markup]:
    """Everything below the verdict, by its id; less of it where there are no draws."""
    found = {"table": table, "forest": forest, "densities": densities, "chains": ranks_and_traces, "rows": story}
    found |= {"autocorrelation": autocorrelations, "warnings": advice, "settings": repeating}
    always = ("rows", "warnings", "settings")
    return {name: make(reading) for name, make in found.items() if reading.fit.draws or name in always}


def header(reading: Reading) -> Markup:
    """What this is a report of, in a line."""
    told, fit = reading.told, reading.fit
    rows = f" from {told['rows']:,} rows" if told.get("rows") else ""
    scalars = f"{len(reading.names):,} parameter" + ("s" if len(reading.names) != 1 else "")
    how = f"method {told['method']}" if reading.rival else f"target {told.get('target', 'not recorded')}"
    made = told.get("draws_summarised")
    draws = (
        f"{fit.draws:,} draws" if made is None else f"{made:,} draws (summarised; pictures have the last {fit.draws:,})"
    )
    words = f"{reading.chains} chains × {draws} of {scalars}{rows}, {how}"
    count = len(warnings_of(reading))
    warned = tag("a", f"{count} warning{'s' if count > 1 else ''}", href="#warnings", class_="flag") if count else None
    return tag("header", tag("h1", shortened(subject(reading))), tag("p", words, ". ", warned))


def subject(reading: Reading) -> str:
    """The formula, where the model came from one; else the parameters' names."""
    return str(reading.told.get("model") or "").partition(", family ")[0] or ", ".join(reading.fit.posterior)


def shortened(words: str, most: int = 80) -> str:
    """So long that it fits a heading."""
    return words if len(words) <= most else words[: most - 1] + "…"


def links(parts: dict[str, Markup]) -> Markup:
    """To every section that is there."""
    return tag("nav", *(tag("a", LINKS[name], href=f"#{name}") for name in parts))
