"""The section on how to repeat the run: the call, the settings and the versions."""

import ast
import json
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from lwa.result.report.data import ReportData
from lwa.result.report.markup import Markup, build_section, build_table, fold, list_facts, tag

RECORDED_DEFAULTS: dict[str, str | int] = {
    "target": "calibrated", "exact": False, "summary": "PerRow(function=every_column, scaled=True)", "draws": 1000,
    "tune": 1000, "chains": 4, "budget": "Budget(seconds=inf, rows=inf)", "subset_weight": "Gaussian()",
    "refresh_steps": 1, "precision": "auto", "keep_tune": False, "keep": "auto",
}  # fmt: skip
"""Recorded values that need not be typed: the defaults of `lwa.sample` and `lwa.rivals.sample`."""
SETTING_HOMES = {
    "target": "lwa.targets", "subset_move": "lwa.subsets", "subset_weight": "lwa.subsets", "kernel": "lwa.kernels",
    "summary": "lwa.summaries", "method": "lwa.rivals",
}  # fmt: skip
"""The module of the objects that a setting may be."""
POSITIONAL_FIELDS = {"levels", "parts"}
"""Fields that are passed one by one: `Quantiles(0.2, 0.5)`, `Combine(Quantiles(0.5), MinMax())`."""
NOT_RECORDED = "..."
"""Stands for what a record cannot hold: a function, an array."""


class UnwritableRecord(Exception):
    """The call cannot be written from a record."""


class CallWriter(ast.NodeTransformer):
    """Turns what `lwa.run.settings.plain` wrote back into code: names become strings, objects get their module."""

    def __init__(self, home: str) -> None:
        self.home = home

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Turn `Swap(k=1)` into `lwa.subsets.Swap(k=1)`."""
        if not isinstance(node.func, ast.Name) or not node.func.id[:1].isupper():
            raise UnwritableRecord
        if any(keyword.arg == "function" for keyword in node.keywords):
            raise UnwritableRecord  # only its name was kept
        values = {keyword.arg: self.visit(keyword.value) for keyword in node.keywords}
        arguments = [self.visit(one) for one in node.args]
        for name in POSITIONAL_FIELDS & values.keys():
            arguments += values.pop(name).elts
            if name == "parts":
                values.pop("column", None)  # the parts have their own
        keywords = [ast.keyword(name, value) for name, value in values.items()]
        return ast.Call(ast.Name(f"{self.home}.{node.func.id}"), arguments, keywords)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Turn `auto` into `'auto'`, and `inf` into a number."""
        return ast.parse("float('inf')", mode="eval").body if node.id == "inf" else ast.Constant(node.id)


def write_setting(name: str, value: object) -> str:
    """Return a recorded setting as code."""
    if isinstance(value, str) and name in SETTING_HOMES:
        try:
            return ast.unparse(CallWriter(SETTING_HOMES[name]).visit(ast.parse(value, mode="eval").body))
        except (SyntaxError, ValueError, AttributeError, UnwritableRecord):
            return NOT_RECORDED
    if name == "budget":
        return write_budget(str(value))
    if name == "epsilon" and value == "inf":
        return "float('inf')"
    return repr(value)


def write_budget(record: str) -> str:
    """Return the argument that was recorded as `Budget(seconds=3.0, rows=inf)`."""
    try:
        keywords = ast.parse(record, mode="eval").body.keywords  # type: ignore[attr-defined]
        limits = {keyword.arg: float(ast.unparse(keyword.value)) for keyword in keywords}
        seconds, rows = limits["seconds"], limits["rows"]
    except (SyntaxError, ValueError, AttributeError, KeyError):
        return NOT_RECORDED
    return f"{seconds:g}" if math.isfinite(seconds) else f"lwa.RowReads({int(rows)})"


def write_call(data: ReportData) -> str:
    """Return the call that repeats a run, without options that have their default."""
    settings: Mapping[str, Any] = data.attributes.get("settings", {})
    options = dict(settings) | {"chains": data.chains}
    given = {
        name: write_setting(name, value)
        for name, value in options.items()
        if value is not None and name != "method" and value != RECORDED_DEFAULTS.get(name)
    }
    if data.rival and settings.get("draws") is None:
        given["draws"] = "'auto'"
    if data.rival and given.get("thinning") == "1":
        del given["thinning"]
    first = "lwa.sample("
    arguments = ["model", "data"]
    if data.rival:
        first = "lwa.rivals.sample("
        arguments.insert(0, write_setting("method", settings.get("method", data.attributes["method"])))
        if kernel := data.attributes.get("kernel"):
            given["kernel"] = write_setting("kernel", kernel)
    lines = [", ".join(arguments), *(f"{name}={value}" for name, value in given.items())]
    return "\n".join(["import lwa", "", f"fit = {first}", *(f"    {line}," for line in lines), ")"])


def list_remarks(data: ReportData, typed_call: str) -> list[str]:
    """Return what the call alone does not say."""
    if "command" in data.attributes:
        remarks = ["The same command in the same folder gives the same draws, if data and versions are the same."]
    else:
        remarks = ["The same call gives the same draws, if data and versions are the same."]
        if NOT_RECORDED in typed_call:
            remarks.append(f"Functions and arrays are not recorded: replace {NOT_RECORDED} by your own.")
        remarks.append("Starting values are not recorded: if you passed initvals, pass it again.")
    if "seconds=inf" not in str(data.attributes.get("settings", {}).get("budget", "seconds=inf")):
        remarks.append("A budget in seconds gives another number of draws on a faster, slower or busier machine.")
    if passes := data.attributes.get("polish_passes"):
        remarks.append(f"Afterwards fit.polish() corrected the draws. Passes over all rows: {passes}.")
    return remarks


def show_reproduction(data: ReportData) -> Markup:
    """Show the call, the versions, data and costs of the run, and every recorded setting."""
    attributes, again = data.attributes, data.attributes.get("command") or write_call(data)
    versions = ", ".join(f"{name} {number}" for name, number in attributes.get("versions", {}).items())
    seconds, sampling = attributes.get("seconds", 0), attributes.get("sampling_seconds", 0)
    known: list[tuple[str, object]] = [
        ("lwa", attributes.get("inference_library_version", "")),
        ("Versions", versions),
        ("Seed", attributes.get("seed", "")),
        ("Rows", f"{attributes.get('rows', 0):,}"),
        ("Fingerprint of the data", tag("code", attributes.get("fingerprint", ""))),
        ("Kernel", attributes.get("kernel", "")),
        ("Chains", f"{data.chains:,}"),
        ("Draws per chain", f"{data.fit.draws:,}, {data.kept}"),
        ("Seconds", f"{seconds:,} in all, {sampling:,} for tuning and sampling"),
    ]
    parts = [
        tag("pre", tag("code", again, id="call")),
        tag("ul", *(tag("li", words) for words in list_remarks(data, again)), class_="note"),
        list_facts([(name, value) for name, value in known if value != ""]),
        fold("Every setting and attribute", list_settings(attributes)),
    ]
    return build_section("settings", "Settings, and how to repeat the run", *parts)


def list_settings(attributes: Mapping[str, Any]) -> Markup:
    """Return all attributes but the certificate, the clock and the stages, which are too long."""
    apart = ("certificate", "clock", "settings", "stages")
    plain = {name: value for name, value in attributes.items() if name not in apart}
    plain |= {f"settings.{name}": value for name, value in attributes.get("settings", {}).items()}
    write = partial(json.dumps, default=str, ensure_ascii=False)
    lines = [
        tag("tr", tag("th", name, scope="row"), tag("td", value if isinstance(value, str) else write(value)))
        for name, value in plain.items()
    ]
    return build_table([], lines, class_="settings")
