"""Watch a run from another process, by reading its folder only."""

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from lwa.errors import RunFolderError
from lwa.result.result import Result, split_groups
from lwa.run.checkpoints.kept_runs import report_foreign_state
from lwa.storage.generations import read_generations
from lwa.storage.locks import is_running
from lwa.storage.run_folder import MANIFEST, read_run
from lwa.storage.stream import load_stream

SECONDS = 2.0
"""Time between two updates of the table."""
LOOKED_AT = 20_000
"""Draws per chain, the last ones, from which mixing is estimated."""


def follow(folder: Path, *, once: bool) -> None:
    """Show the state of a run, and update it until the run is over or Ctrl-C is pressed."""
    console = Console()
    if once or not console.is_terminal:
        console.print(build_table(folder))
        return
    try:
        with Live(build_table(folder), console=console, auto_refresh=False) as live:
            while is_running(folder):
                time.sleep(SECONDS)
                live.update(build_table(folder), refresh=True)
            live.update(build_table(folder), refresh=True)  # how the run ended
    except KeyboardInterrupt:
        return  # the run itself goes on


def build_table(folder: Path) -> Table:
    """Return the facts of a run as a table."""
    table = Table(title=str(folder), show_header=False, title_justify="left")
    for name, value in read_facts(folder).items():
        table.add_row(name, value)
    return table


def read_facts(folder: Path) -> dict[str, str]:
    """Return the state of a run in words, by what each fact is called."""
    head: dict[str, Any] | None = next((one.head for one, _ in read_generations(folder) if one is not None), None)
    if head is None:
        raise RunFolderError(f"{folder} holds no checkpoint of a run. Pass the folder of one.")
    with report_foreign_state(folder):
        asked, wanted, running = head["description"]["asked"]["arguments"], head["wanted"], is_running(folder)
        facts = {"state": describe_state(folder, head, running=running)}
        if head["tuned"] is None:
            facts["tune"] = f"{head['position']:,} of {asked['tune']:,} steps"
        else:
            facts["draws per chain"] = f"{head['draws']:,}" + (f" of {wanted:,}" if isinstance(wanted, int) else "")
        if head["stream"]["draws"] >= 8:
            facts |= measure_mixing(folder, head)
        facts["subset changes"] = f"{head['refreshed'] / max(1, head['transitions']):.2f} of proposals accepted"
        facts["seconds"] = f"{head['seconds']:.0f}"
        if running and (left := estimate_seconds_left(head)) < float("inf"):
            facts["time left"] = f"about {max(0.0, left):.0f} s"
        return facts


def estimate_seconds_left(head: dict[str, Any]) -> float:
    """Return the seconds until all draws are made, at the speed so far, or the budget is spent."""
    spent, draws, left = time.time() - head["written"], head["draws"], head["seconds_left"]
    if head["wanted"] is not None and head["clock"]:
        (first, began), (last, now) = head["clock"][0], head["clock"][-1]
        if last > first:
            left = min(left, (head["wanted"] - draws) * (now - began) / (last - first))
    return float(left) - spent


def describe_state(folder: Path, head: dict[str, Any], *, running: bool) -> str:
    """Return whether a run is running, over, or can be resumed, in words."""
    ago = f"kept {max(0.0, time.time() - head['written']):.0f} s ago"
    if running:
        return f"running, {ago}"
    if not (folder / MANIFEST).exists():
        return f"ended without notice, {ago}; lwa resume {folder} goes on"
    stopped = read_run(folder)[1]["attributes"]["stopped"]
    return f"{stopped}; lwa resume {folder} goes on" if stopped else "over"


def measure_mixing(folder: Path, head: dict[str, Any]) -> dict[str, str]:
    """Return the smallest effective number of draws and the largest R-hat of all parameters, as ArviZ computes them."""
    groups = split_groups(load_stream(folder, head["stream"]).variables())
    posterior, stats = (
        {name: values[:, -LOOKED_AT:] for name, values in groups[of].items()} for of in ("posterior", "sample_stats")
    )
    labels = head["description"]["result"]
    table = Result(posterior, stats, {}, labels["dims"], labels["coords"]).summary(kind="diagnostics")
    scale = head["stream"]["draws"] / min(LOOKED_AT, head["stream"]["draws"])
    return {
        "effective draws": f"about {scale * table['ess_bulk'].astype(float).min():,.0f}, of the worst parameter",
        "R-hat": f"{table['r_hat'].astype(float).max():.3f}, of the worst parameter",
    }
