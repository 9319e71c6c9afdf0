"""What all exhibits share: the command, the stages it goes through, figures, tables, and data simulated once."""

import argparse
import csv
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from rich.console import Console

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "paper"
CHUNK = 1_000_000
"""Rows simulated at a time."""
COLOURS = {
    "lwa": "#c0392b",
    "lwa_light": "#e59866",
    "full": "#1f4e79",
    "rival": "#1f4e79",
    "truth": "#2e8b57",
    "grey": "#7f8c8d",
}
"""LWA-MCMC, what reads all rows or more of them, and the truth, alike in every figure."""


@dataclass
class Out:
    """Where an exhibit's figures and tables go, and how long each of its stages took."""

    folder: Path
    expected: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each stage in the run whose results are committed."""
    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Say what begins, how long it took when the figures were last made, and what is left."""
        left = sum(self.expected.get(one, 0.0) for one in self.expected if one not in self.seconds)
        told = f", about {in_words(self.expected[name])}; {in_words(left)} to go" if name in self.expected else ""
        self.console.print(f"  {name}{told}", markup=False)
        began = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - began, 1)

    def figure(self, name: str, figure: Any) -> None:
        """A matplotlib figure as PNG and SVG, the latter without dates and random names: a rerun changes nothing."""
        import matplotlib

        figure.savefig(self.folder / f"{name}.png", dpi=130)
        with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
            figure.savefig(self.folder / f"{name}.svg", metadata={"Date": None})

    def table(self, name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A table as CSV, as it is, and as Markdown, numbers to three digits unless they are strings."""
        with open(self.folder / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([header, *rows])
        lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        lines += ["| " + " | ".join(map(shown, row)) + " |" for row in rows]
        (self.folder / f"{name}.md").write_text("\n".join(lines) + "\n")


def shown(value: Any) -> str:
    """A cell as it is read."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        if not np.isfinite(value):
            return {np.inf: "∞", -np.inf: "−∞"}.get(float(value), "none")
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def in_words(seconds: float) -> str:
    """A duration."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def expected_seconds(exhibit: str) -> dict[str, float]:
    """What each stage of an exhibit took when the committed results were made; nothing where there are none."""
    record = ROOT / "docs" / "paper" / exhibit / "seconds.json"
    return json.loads(record.read_text())["stages"] if record.exists() else {}


def carry_out(
    exhibit: str, run: Callable[[Any, int, Out], Any], sizes: Mapping[str, Any], scale: str, seed: int, folder: Path
) -> Any:
    """Run an exhibit into a folder; returns what it found. Paper-scale runs record how long each stage took."""
    out = Out(folder, expected_seconds(exhibit) if scale == "paper" else {})
    found = run(sizes[scale], seed, out)
    record = {"scale": scale, "seed": seed, "cores": os.cpu_count(), "stages": out.seconds}
    (folder / "seconds.json").write_text(json.dumps(record, indent=1) + "\n")
    return found


def command(exhibit: str, run: Callable[[Any, int, Out], Any], sizes: Mapping[str, Any], describe: str | None) -> None:
    """The command line of one exhibit."""
    parser = argparse.ArgumentParser(description=describe, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=list(sizes), default="small", help="the paper's sizes, or a look at them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="default: build/paper/<scale>/<exhibit>")
    given = parser.parse_args()
    folder = given.out or ROOT / "build" / "paper" / given.scale / exhibit
    carry_out(exhibit, run, sizes, given.scale, given.seed, folder)
    print(f"Figures and tables: {folder}")


def cached(name: str, shape: tuple[int, ...], dtype: Any, fill: Callable[[int, np.ndarray], None]) -> Path:
    """A simulated array as a `.npy` file, made once: `fill(first, rows)` fills each million rows in turn.

    The name must say everything that the data depend on, the seed included. A file that was cut off is never seen:
    it takes its name when it is whole.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    path, making = CACHE / f"{name}.npy", CACHE / f"{name}.{os.getpid()}.making"
    if not path.exists():
        rows = open_memmap(making, mode="w+", dtype=dtype, shape=shape)
        for first in range(0, shape[0], CHUNK):
            fill(first, rows[first : first + CHUNK])
        rows.flush()
        making.rename(path)
    return path


def tidy(*all_axes: Any) -> None:
    """No frame at the top and right."""
    for axes in all_axes:
        axes.spines[["top", "right"]].set_visible(False)
