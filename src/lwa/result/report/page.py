"""The page: its sections in order, the verdict first."""

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from lwa.errors import InputError
from lwa.result.report.data import ReportData, collect_data
from lwa.result.report.markup import Markup, join_markup, tag
from lwa.result.report.parameters import show_autocorrelations, show_chains, show_densities, show_forest, show_table
from lwa.result.report.reproduce import show_reproduction
from lwa.result.report.subsets import show_rows
from lwa.result.report.verdict import list_warnings, show_verdict, show_warnings
from lwa.storage.atomic import open_regular, write_whole

if TYPE_CHECKING:
    from lwa.result.result import Result

DEFAULT_NAME = "report.html"
GENERATOR = '<meta name="generator" content="lwa'
"""The mark of a report: no file without it is ever overwritten."""
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
SECTIONS: dict[str, tuple[str, Callable[[ReportData], Markup]]] = {
    "table": ("Parameters", show_table),
    "forest": ("Intervals", show_forest),
    "densities": ("Densities", show_densities),
    "chains": ("Chains", show_chains),
    "rows": ("Rows", show_rows),
    "autocorrelation": ("Autocorrelation", show_autocorrelations),
    "warnings": ("Warnings", show_warnings),
    "settings": ("Settings", show_reproduction),
}
"""The sections below the verdict by id: what links call each, and what builds it."""
SECTIONS_WITHOUT_DRAWS = {"rows", "warnings", "settings"}
"""The sections of a page if there are no draws."""


def write_report(fit: "Result", path: str | os.PathLike[str] | None = None) -> Path:
    """Write the page; raise rather than overwrite a file that is not a report."""
    target = Path(DEFAULT_NAME if path is None else path)
    require_ours(target)
    text = build_page(fit)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, text.encode())
    except OSError as error:
        raise InputError(
            f"Cannot write the report to {target}: {error.strerror or error}. Pass the path of a file that can be "
            "written, such as report.html."
        ) from None
    return target


def require_ours(target: Path) -> None:
    """Raise if the path is a folder, or a file that is not a report."""
    if target.is_dir():
        raise InputError(f"{target} is a folder. Pass the path of a file, such as {target / DEFAULT_NAME}.")
    try:
        with open_regular(target) as file:
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
    """Return the page as text."""
    data = collect_data(fit)
    title = f"{data.attributes.get('method', 'lwa')}: {describe_model(data)}"
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    head = PAGE_HEAD.format(generator=GENERATOR, version=version("lwa"), title=join_markup(shorten(title)), style=style)
    names = [name for name in SECTIONS if data.fit.draws or name in SECTIONS_WITHOUT_DRAWS]
    links = tag("nav", *(tag("a", SECTIONS[name][0], href=f"#{name}") for name in names))
    sections = (SECTIONS[name][1](data) for name in names)
    body = tag("body", build_header(data), tag("main", show_verdict(data), links, *sections))
    return f"{head}{body}\n</html>\n"


def build_header(data: ReportData) -> Markup:
    """Return the title, and the sizes of the run in one line."""
    attributes, fit = data.attributes, data.fit
    rows = f" from {attributes['rows']:,} rows" if attributes.get("rows") else ""
    scalars = f"{len(data.names):,} parameter" + ("s" if len(data.names) != 1 else "")
    how = f"method {attributes['method']}" if data.rival else f"target {attributes.get('target', 'not recorded')}"
    draws = f"{fit.draws:,} draws"
    if made := attributes.get("draws_summarised"):
        draws = f"{made:,} draws (summarised; pictures show the last {fit.draws:,})"
    words = f"{data.chains} chains × {draws} of {scalars}{rows}, {how}"
    count = len(list_warnings(data))
    warned = tag("a", f"{count} warning{'s' if count > 1 else ''}", href="#warnings", class_="flag") if count else None
    return tag("header", tag("h1", shorten(describe_model(data))), tag("p", words, ". ", warned))


def describe_model(data: ReportData) -> str:
    """Return the formula of the model, if it came from one; else the parameters' names."""
    return str(data.attributes.get("model") or "").partition(", family ")[0] or ", ".join(data.fit.posterior)


def shorten(words: str, most: int = 80) -> str:
    """Return words short enough for a heading."""
    return words if len(words) <= most else words[: most - 1] + "…"
