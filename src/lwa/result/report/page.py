"""The page: sections in the order in which a reader needs them, the verdict first."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lwa import __version__
from lwa.errors import InputError
from lwa.result.report.advice import collect_warnings, show_warnings
from lwa.result.report.chains import show_autocorrelations, show_chains
from lwa.result.report.data import ReportData, collect_data
from lwa.result.report.markup import Markup, join_markup, tag
from lwa.result.report.parameters import show_densities, show_forest, show_table
from lwa.result.report.reproduce import show_reproduction
from lwa.result.report.subsets import show_rows
from lwa.result.report.verdict import show_verdict

if TYPE_CHECKING:
    from lwa.result.result import Result

DEFAULT_NAME = "report.html"
GENERATOR = '<meta name="generator" content="lwa'
"""By which a report is known, so that no other page is ever overwritten."""
PAGE_HEAD = """<!doctype html>
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
SECTION_TITLES = {
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
    target = Path(DEFAULT_NAME if path is None else path)
    require_ours(target)
    text = build_page(fit)
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
        raise InputError(f"{target} is a folder. Pass the path of a file, such as {target / DEFAULT_NAME}.")
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


def build_page(fit: "Result") -> str:
    """All of it, as text."""
    reading = collect_data(fit)
    title = f"{reading.told.get('method', 'lwa')}: {describe_model(reading)}"
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    head = PAGE_HEAD.format(generator=GENERATOR, version=__version__, title=join_markup(shorten(title)), style=style)
    parts = build_sections(reading)
    body = tag("body", build_header(reading), tag("main", show_verdict(reading), build_links(parts), *parts.values()))
    return f"{head}{body}\n</html>\n"


def build_sections(reading: ReportData) -> dict[str, Markup]:
    """Everything below the verdict, by its id; less of it where there are no draws."""
    found = {"table": show_table, "forest": show_forest, "densities": show_densities, "chains": show_chains, "rows": show_rows}
    found |= {"autocorrelation": show_autocorrelations, "warnings": show_warnings, "settings": show_reproduction}
    always = ("rows", "warnings", "settings")
    return {name: make(reading) for name, make in found.items() if reading.fit.draws or name in always}


def build_header(reading: ReportData) -> Markup:
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
    count = len(collect_warnings(reading))
    warned = tag("a", f"{count} warning{'s' if count > 1 else ''}", href="#warnings", class_="flag") if count else None
    return tag("header", tag("h1", shorten(describe_model(reading))), tag("p", words, ". ", warned))


def describe_model(reading: ReportData) -> str:
    """The formula, where the model came from one; else the parameters' names."""
    return str(reading.told.get("model") or "").partition(", family ")[0] or ", ".join(reading.fit.posterior)


def shorten(words: str, most: int = 80) -> str:
    """So long that it fits a heading."""
    return words if len(words) <= most else words[: most - 1] + "…"


def build_links(parts: dict[str, Markup]) -> Markup:
    """To every section that is there."""
    return tag("nav", *(tag("a", SECTION_TITLES[name], href=f"#{name}") for name in parts))
