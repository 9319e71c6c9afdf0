"""How to do it again: the call that made a run, what it was given, and what it ran on."""

import ast
import json
import math
from collections.abc import Mapping
from typing import Any

from lwa.result.report.data import ReportData
from lwa.result.report.markup import Markup, fold, list_facts, tag

RECORDED_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "target": ("calibrated",),
    "exact": (False,),
    "summary": ("PerRow(function=every_column, scaled=True)", "PerRow(function=nothing, scaled=False)"),
    "draws": (1000,),
    "tune": (1000,),
    "chains": (4,),
    "budget": ("Budget(seconds=inf, rows=inf)",),
    "subset_weight": ("Gaussian()",),
    "refresh_steps": (1,),
    "leverage": ("auto",),
    "transport": ("auto",),
    "tolerance": (0.02,),
    "precision": ("auto",),
    "keep_tune": (False,),
    "keep": ("auto",),
}
"""Records of what need not be typed: what `lwa.sample` and `lwa.rivals.sample` do anyway."""
SETTING_HOMES = {
    "subset_move": "lwa.subsets",
    "subset_weight": "lwa.subsets",
    "kernel": "lwa.kernels",
    "summary": "lwa.summaries",
    "method": "lwa.rivals",
}
"""Where the objects that a setting may be are found."""
POSITIONAL_FIELDS = {"levels", "parts"}
"""Fields that are passed one by one: `Quantiles(0.2, 0.5)`, `Combine(Quantiles(0.5), MinMax())`."""
NOT_RECORDED = "..."
"""In the place of what a record cannot say: a function, an array."""


class UnwritableRecord(Exception):
    """A record that does not say what to type."""


class CallWriter(ast.NodeTransformer):
    """From what `lwa.run.settings.plain` wrote back to what one types: names are texts, objects have a home."""

    def __init__(self, home: str) -> None:
        self.home = home

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """`Swap(k=1)` is `lwa.subsets.Swap(k=1)`."""
        if not isinstance(node.func, ast.Name) or not node.func.id[:1].isupper():
            raise UnwritableRecord
        if any(keyword.arg == "function" for keyword in node.keywords):
            raise UnwritableRecord  # only its name was kept
        values = {keyword.arg: self.visit(keyword.value) for keyword in node.keywords}
        arguments = [self.visit(one) for one in node.args]
        for name in POSITIONAL_FIELDS & values.keys():
            arguments += values.pop(name).elts
            if name == "parts":
                values.pop("column", None)  # theirs
        keywords = [ast.keyword(name, value) for name, value in values.items()]
        return ast.Call(ast.Name(f"{self.home}.{node.func.id}"), arguments, keywords)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """`auto` is `'auto'`, and `inf` is a number."""
        return ast.parse("float('inf')", mode="eval").body if node.id == "inf" else ast.Constant(node.id)


def write_setting(name: str, value: Any) -> str:
    """A recorded setting as one types it."""
    if isinstance(value, str) and name in SETTING_HOMES:
        try:
            return ast.unparse(CallWriter(SETTING_HOMES[name]).visit(ast.parse(value, mode="eval").body))
        except (SyntaxError, ValueError, AttributeError, UnwritableRecord):
            return NOT_RECORDED
    if name == "budget":
        return write_budget(str(value))
    if name == "epsilon" and value == "inf":
        return "float('inf')"
    return NOT_RECORDED if name == "reference" else repr(value)


def write_budget(record: str) -> str:
    """What was passed for `Budget(seconds=3.0, rows=inf)`."""
    try:
        limits = {
            keyword.arg: float(ast.unparse(keyword.value))
            for keyword in ast.parse(record, mode="eval").body.keywords  # type: ignore[attr-defined]
        }
        seconds, rows = limits["seconds"], limits["rows"]
    except (SyntaxError, ValueError, AttributeError, KeyError):
        return NOT_RECORDED
    return f"{seconds:g}" if math.isfinite(seconds) else f"lwa.RowReads({int(rows)})"


def write_call(reading: ReportData) -> str:
    """The call that repeats a run, options that are lwa's own choice left out."""
    settings: Mapping[str, Any] = reading.told.get("settings", {})
    options = dict(settings) | {"chains": reading.chains}
    given = {
        name: write_setting(name, value)
        for name, value in options.items()
        if value is not None and name != "method" and value not in RECORDED_DEFAULTS.get(name, ())
    }
    if reading.rival and settings.get("draws") is None:
        given["draws"] = "'auto'"
    if reading.rival and given.get("thinning") == "1":
        del given["thinning"]
    first = "lwa.sample("
    arguments = ["model", "data"]
    if reading.rival:
        first = "lwa.rivals.sample("
        arguments.insert(0, write_setting("method", settings.get("method", reading.told["method"])))
        if kernel := reading.told.get("kernel"):
            given["kernel"] = write_setting("kernel", kernel)
    lines = [", ".join(arguments), *(f"{name}={value}" for name, value in given.items())]
    return "\n".join(["import lwa", "", f"fit = {first}", *(f"    {line}," for line in lines), ")"])


def list_remarks(reading: ReportData, typed_call: str) -> list[str]:
    """What the call alone does not say."""
    if "command" in reading.told:
        told = ["The same command in the same folder, on the same data, with the same versions, gives the same draws."]
    else:
        told = ["The same call on the same data, with the same versions, gives the same draws."]
        if NOT_RECORDED in typed_call:
            told.append(f"A function or an array is not recorded: put yours in the place of {NOT_RECORDED}")
        told.append("Starts are not recorded: pass initvals again if you did.")
    if "seconds=inf" not in str(reading.told.get("settings", {}).get("budget", "seconds=inf")):
        told.append("A budget in seconds ends elsewhere on another machine, or on a busy one.")
    if passes := reading.told.get("polish_passes"):
        told.append(f"Then fit.polish(...): {passes} passes were made.")
    return told


def show_reproduction(reading: ReportData) -> Markup:
    """The call, what the run was made of, and every setting as it was recorded."""
    told, again = reading.told, reading.told.get("command") or write_call(reading)
    versions = ", ".join(f"{name} {number}" for name, number in told.get("versions", {}).items())
    known: list[tuple[str, object]] = [
        ("lwa", told.get("inference_library_version", "")),
        ("Versions", versions),
        ("Seed", told.get("seed", "")),
        ("Rows", f"{told.get('rows', 0):,}"),
        ("Fingerprint of the data", tag("code", told.get("fingerprint", ""))),
        ("Kernel", told.get("kernel", "")),
        ("Chains, draws, thinning", f"{reading.chains}, {reading.fit.draws:,}, {told.get('thinning', 1):,}"),
        ("Seconds", f"{told.get('seconds', 0):,} in all, {told.get('sampling_seconds', 0):,} of tune and sampling"),
    ]
    return tag(
        "section",
        tag("h2", "Settings, and how to repeat it"),
        tag("pre", tag("code", again, id="call")),
        tag("ul", *(tag("li", words) for words in list_remarks(reading, again)), class_="note"),
        list_facts([(name, value) for name, value in known if value != ""]),
        fold("Every setting and attribute", list_settings(told)),
        id="settings",
    )


def list_settings(told: Mapping[str, Any]) -> Markup:
    """Attributes as they are, the certificate and the clock apart, which are long, and stages: this page is one."""
    apart = ("certificate", "clock", "settings", "stages")
    plain = {name: value for name, value in told.items() if name not in apart}
    plain |= {f"settings.{name}": value for name, value in told.get("settings", {}).items()}
    lines = [
        tag("tr", tag("th", name, scope="row"), tag("td", value if isinstance(value, str) else write_json(value)))
        for name, value in plain.items()
    ]
    return tag("div", tag("table", tag("tbody", *lines), class_="settings"), class_="scroll")


def write_json(value: Any) -> str:
    """In one line."""
    return json.dumps(value, default=str, ensure_ascii=False)
