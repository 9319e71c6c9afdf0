"""What came of a comparison, in lines and in words."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lwa.errors import RunFolderError
from lwa.result.result import Result

if TYPE_CHECKING:
    import pandas

GOOD_ERROR = 0.1
"""An error, in posterior sds, at which most would call an answer good."""


@dataclass(frozen=True)
class Line:
    """One method. Where it did not run, `reason` says why and the numbers are NaN.

    Attributes
    ----------
    method, exact
        Its label, and whether the posterior of all rows is its limit.
    steps, rows_per_step, acceptance
        Steps a chain, tune included; rows that a step read, on average after tune; share of proposals accepted.
    effective_draws, effective_draws_per_second
        Of the parameter that mixed worst; and over all seconds from the call to the end.
    shift, sd_ratio_lowest, sd_ratio_highest
        The largest shift of a parameter's mean in posterior sds; sds as multiples of the posterior's.
    error
        Root mean square over parameters of the mean's shift and of what the sd is off.
    seconds
        From the call to the end: finding the mode, compiling, tune and sampling.
    curve
        (seconds, error) as time went by.
    reason, remarks
        Why it did not run; what its run had to say.
    """

    method: str
    exact: bool
    steps: float = float("nan")
    rows_per_step: float = float("nan")
    acceptance: float = float("nan")
    effective_draws: float = float("nan")
    effective_draws_per_second: float = float("nan")
    shift: float = float("nan")
    sd_ratio_lowest: float = float("nan")
    sd_ratio_highest: float = float("nan")
    error: float = float("nan")
    seconds: float = float("nan")
    curve: tuple[tuple[float, float], ...] = ()
    reason: str = ""
    remarks: tuple[str, ...] = ()

    def time_to(self, error: float) -> float:
        """Seconds after which its error stayed below; infinite where it did not."""
        above = [i for i, (_, size) in enumerate(self.curve) if size >= error]
        after = self.curve[above[-1] + 1 :] if above else self.curve
        return after[0][0] if after else float("inf")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods side by side; made by `lwa.compare`.

    Attributes
    ----------
    lines
        One a method, those that did not apply included.
    fits
        The runs, by the method's label.
    rows, source, budget
        Rows of the data; what errors are measured against; seconds that each method had.
    """

    lines: tuple[Line, ...]
    fits: Mapping[str, Result]
    rows: int
    source: str
    budget: float

    @property
    def ran(self) -> list[Line]:
        """Those that gave an answer."""
        return [line for line in self.lines if not line.reason]

    @property
    def verdict(self) -> str:
        """Who wins on error against time."""
        ranked = sorted((line for line in self.ran if np.isfinite(line.error)), key=lambda line: line.error)
        if not ranked:
            return "No method gave draws that could be judged."
        told = [f"Lowest error at the end: {ranked[0].method} ({ranked[0].error:.2g} posterior sds)."]
        if len(ranked) > 1:
            told.append(f"Next: {ranked[1].method} ({ranked[1].error:.2g}).")
        first = min(self.ran, key=lambda line: line.time_to(GOOD_ERROR))
        if np.isfinite(first.time_to(GOOD_ERROR)):
            told.append(f"First below {GOOD_ERROR} for good: {first.method}, after {first.time_to(GOOD_ERROR):.1f} s.")
        else:
            told.append(f"None came below {GOOD_ERROR}.")
        return " ".join(told)

    def table(self) -> "pandas.DataFrame":
        """One row a method."""
        import pandas

        columns = [name for name in Line.__dataclass_fields__ if name not in ("curve", "remarks")]
        return pandas.DataFrame([{name: getattr(line, name) for name in columns} for line in self.lines]).set_index(
            "method"
        )

    def markdown(self) -> str:
        """The table as a page shows it, and the reasons of those that did not run below."""
        lines = ["| " + " | ".join(TABLE_HEAD) + " |", "|" + "---|" * len(TABLE_HEAD)]
        lines += ["| " + " | ".join(format_cells(line)) + " |" for line in self.ran]
        out = [f"- {line.method}: {line.reason}." for line in self.lines if line.reason]
        return "\n".join(lines + (["", "Not run:", "", *out] if out else []))

    def figure(self, path: str | os.PathLike[str]) -> Path:
        """Draw error against time, and rows a step; PNG or SVG by the name's ending."""
        from lwa.rivals.comparison.figure import draw_figure

        return draw_figure(self, Path(path))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write `comparison.json`, `table.md`, `figure.png` and every run, in a folder of its own."""
        path = require_folder(folder)
        told: dict[str, Any] = {
            "rows": self.rows,
            "source": self.source,
            "budget": self.budget,
            "verdict": self.verdict,
        }
        told["lines"] = [asdict(line) for line in self.lines]
        (path / "comparison.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
        (path / "table.md").write_text(f"{self.markdown()}\n\n{self.verdict}\n", encoding="utf-8")
        if self.ran:
            self.figure(path / "figure.png")
        for label, fit in self.fits.items():
            fit.save(path / "runs" / name_folder(label))
        return path

    def __repr__(self) -> str:
        """As text."""
        return f"{format_table(self)}\n\n{self.verdict}"


def name_folder(label: str) -> str:
    """A label as a folder's name: "lwa, n = 1,000" is lwa-n-1000."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", label.replace(",", "")).strip("-")


def require_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder, made where it is not there; refuses a path that cannot be one."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(
            f"Cannot write a comparison to {path}: {error.strerror}. Pass the path of another folder."
        ) from None
    return path


def format_cells(line: Line) -> list[str]:
    """The numbers of a method as a table shows them."""
    return [
        line.method + ("" if line.exact else " ~"),
        f"{line.steps:,.0f}",
        f"{line.rows_per_step:,.0f}",
        f"{line.acceptance:.2f}",
        f"{line.effective_draws:,.0f}",
        f"{line.effective_draws_per_second:,.3g}",
        f"{line.shift:.3f}",
        f"{line.sd_ratio_lowest:.3f} to {line.sd_ratio_highest:.3f}",
        f"{line.error:.2g}",
    ]


TABLE_HEAD = ["method", "steps", "rows/step", "accepted", "eff. draws", "per s", "shift", "sd ratio", "error"]


def format_table(comparison: Comparison) -> str:
    """The table in columns; ~ marks methods that are approximate, and reasons stand below."""
    lines = [TABLE_HEAD, *(format_cells(line) for line in comparison.ran)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(TABLE_HEAD))]
    text = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]
    text.append("~ approximate: it has a limit of its own. Shift, sd ratio and error in posterior sds,")
    text.append(f"against {comparison.source}.")
    text += [f"not run: {line.method}: {line.reason}." for line in comparison.lines if line.reason]
    return "\n".join(text)
