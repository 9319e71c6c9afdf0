"""The outcome of a comparison: a line per method, a table and a verdict."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lwa.errors import RunFolderError
from lwa.result.result import Result

if TYPE_CHECKING:
    import pandas

GOOD_ERROR = 0.1
"""An error, in posterior sds, at which most would call an answer good."""
TABLE_HEAD = ["method", "steps", "rows/step", "accepted", "eff. draws", "per s", "shift", "sd ratio", "error"]


@dataclass(frozen=True)
class Line:
    """One method. If it did not run, `reason` is why and the numbers are NaN.

    Attributes
    ----------
    method, exact
        Its label, and whether its draws converge to the posterior of all rows.
    steps, rows_per_step, acceptance
        Steps per chain, tune included; rows read per step, on average after tune; share of proposals accepted.
    effective_draws, effective_draws_per_second
        Of the parameter that mixed worst, in all and per second from the call to the end.
    shift, sd_ratio_lowest, sd_ratio_highest
        The largest shift of a parameter's mean in posterior sds; sds as multiples of the posterior's.
    error
        Root mean square over parameters of the mean's shift and of the sd's relative error.
    seconds
        From the call to the end: finding the mode, compiling, tune and sampling.
    curve
        (seconds, error) over time.
    reason, remarks
        Why it did not run; warnings of its run.
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
        """Return the seconds after which the error stayed below; infinity if it did not."""
        above = [i for i, (_, size) in enumerate(self.curve) if size >= error]
        after = self.curve[above[-1] + 1 :] if above else self.curve
        return after[0][0] if after else float("inf")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods side by side; made by `lwa.compare`.

    Attributes
    ----------
    lines
        One per method, those that did not apply included.
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
        """The lines of methods that ran."""
        return [line for line in self.lines if not line.reason]

    @property
    def verdict(self) -> str:
        """Which method had the lowest error, and which was first below 0.1."""
        ranked = sorted((line for line in self.ran if np.isfinite(line.error)), key=lambda line: line.error)
        if not ranked:
            return "No method gave draws that could be judged."
        said = [f"Lowest error at the end: {ranked[0].method} ({ranked[0].error:.2g} posterior sds)."]
        if len(ranked) > 1:
            said.append(f"Next: {ranked[1].method} ({ranked[1].error:.2g}).")
        first = min(self.ran, key=lambda line: line.time_to(GOOD_ERROR))
        if np.isfinite(first.time_to(GOOD_ERROR)):
            said.append(f"First below {GOOD_ERROR} for good: {first.method}, after {first.time_to(GOOD_ERROR):.1f} s.")
        else:
            said.append(f"None came below {GOOD_ERROR}.")
        return " ".join(said)

    def table(self) -> "pandas.DataFrame":
        """Return a table with one row per method."""
        import pandas

        columns = [name for name in Line.__dataclass_fields__ if name not in ("curve", "remarks")]
        rows = [{name: getattr(line, name) for name in columns} for line in self.lines]
        return pandas.DataFrame(rows).set_index("method")

    def markdown(self) -> str:
        """Return the table in Markdown, with the reasons of methods that did not run below."""
        lines = ["| " + " | ".join(TABLE_HEAD) + " |", "|" + "---|" * len(TABLE_HEAD)]
        lines += ["| " + " | ".join(format_cells(line)) + " |" for line in self.ran]
        out = [f"- {line.method}: {line.reason}." for line in self.lines if line.reason]
        return "\n".join(lines + (["", "Not run:", "", *out] if out else []))

    def figure(self, path: str | os.PathLike[str]) -> Path:
        """Draw error against time, and rows per step; PNG or SVG by the ending of the path."""
        from lwa.rivals.comparison.figure import draw_figure

        return draw_figure(self, Path(path))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write `comparison.json`, `table.md`, `figure.png` and every run to a folder."""
        path = require_folder(folder)
        held = {"rows": self.rows, "source": self.source, "budget": self.budget, "verdict": self.verdict}
        held["lines"] = [asdict(line) for line in self.lines]
        (path / "comparison.json").write_text(json.dumps(held, indent=1), encoding="utf-8")
        (path / "table.md").write_text(f"{self.markdown()}\n\n{self.verdict}\n", encoding="utf-8")
        if self.ran:
            self.figure(path / "figure.png")
        for label, fit in self.fits.items():
            name = re.sub(r"[^A-Za-z0-9._]+", "-", label.replace(",", "")).strip("-")  # lwa, n = 1,000: lwa-n-1000
            fit.save(path / "runs" / name)
        return path

    def __repr__(self) -> str:
        """Return the table in columns and the verdict; ~ marks approximate methods, and reasons stand below."""
        lines = [TABLE_HEAD, *(format_cells(line) for line in self.ran)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(TABLE_HEAD))]
        text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
        text += [
            "~ approximate: draws do not converge to the posterior. Shift, sd ratio and error in posterior sds,",
            f"against {self.source}.",
            *(f"not run: {line.method}: {line.reason}." for line in self.lines if line.reason),
        ]
        return "\n".join([*text, "", self.verdict])


def require_folder(folder: str | os.PathLike[str]) -> Path:
    """Make a folder unless it is there, and return its path; refuse a path that cannot be one."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(
            f"Cannot write a comparison to {path}: {error.strerror}. Pass the path of another folder."
        ) from None
    return path


def format_cells(line: Line) -> list[str]:
    """Return the numbers of a method as the table shows them."""
    return [
        line.method + ("" if line.exact else " ~"), f"{line.steps:,.0f}", f"{line.rows_per_step:,.0f}",
        f"{line.acceptance:.2f}", f"{line.effective_draws:,.0f}", f"{line.effective_draws_per_second:,.3g}",
        f"{line.shift:.3f}", f"{line.sd_ratio_lowest:.3f} to {line.sd_ratio_highest:.3f}", f"{line.error:.2g}",
    ]  # fmt: skip
