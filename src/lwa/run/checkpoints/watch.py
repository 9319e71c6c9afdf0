"""A run that goes on, seen from another process: only what is on disk is read."""

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from lwa.errors import RunFolderError
from lwa.result.result import Result, split_groups
from lwa.run.checkpoints.resume import of_lwas_own
from lwa.storage.generations import read_generations
from lwa.storage.locks import is_running
from lwa.storage.run_folder import MANIFEST, read_run
from lwa.storage.stream import load_stream

SECONDS = 2.0
"""Between two looks."""
LOOKED_AT = 20_000
"""Draws a chain by which mixing is judged, the last ones."""


def follow(folder: Path, *, once: bool) -> None:
    """Look again and again until the run is over, or Ctrl-C."""
    console = Console()
    if once or not console.is_terminal:
        console.print(seen(folder))
        return
    try:
        with Live(seen(folder), console=console, auto_refresh=False) as live:
            while is_running(folder):
                time.sleep(SECONDS)
                live.update(seen(folder), refresh=True)
            live.update(seen(folder), refresh=True)  # how it ended
    except KeyboardInterrupt:
        return  # of the watching, not of the run


def seen(folder: Path) -> Table:
    """What is there, as a table."""
    table = Table(title=str(folder), show_header=False, title_justify="left")
    for name, value in facts(folder).items():
        table.add_row(name, value)
    return table


def facts(folder: Path) -> dict[str, str]:
    """In words."""
    head: dict[str, Any] | None = next((one.head for one, _ in read_generations(folder) if one is not None), None)
    if head is None:
        raise RunFolderError(f"{folder} holds no run that is kept while it goes on. Pass the folder of one.")
    with of_lwas_own(folder):
        return facts_of(folder, head)


def facts_of(folder: Path, head: dict[str, Any]) -> dict[str, str]:
    """What a state says, and whether there will be another."""
    asked, draws, wanted = head["description"]["asked"]["arguments"], head["draws"], head["wanted"]
    running = is_running(folder)
    told = {"state": state_of(folder, head, running=running)}
    if head["tuned"] is None:
        told["tune"] = f"{head['position']:,} of {asked['tune']:,} steps"
    else:
        told["draws per chain"] = f"{draws:,}" + (f" of {wanted:,}" if isinstance(wanted, int) else "")
    if head["stream"]["draws"] >= 8:
        told |= mixing(folder, head)
    told["new subsets"] = f"{head['refreshed'] / max(1, head['transitions']):.2f} of proposals accepted"
    told["seconds"] = f"{head['seconds']:.0f}"
    if running and (left := seconds_left(head)) < float("inf"):
        told["time left"] = f"about {max(0.0, left):.0f} s"
    return told


def seconds_left(head: dict[str, Any]) -> float:
    """Until the draws are there, at the speed so far, or the budget is spent."""
    spent, draws, left = time.time() - head["written"], head["draws"], head["seconds_left"]
    if head["wanted"] is not None and head["clock"]:
        (first, began), (last, now) = head["clock"][0], head["clock"][-1]
        if last > first:
            left = min(left, (head["wanted"] - draws) * (now - began) / (last - first))
    return float(left) - spent


def state_of(folder: Path, head: dict[str, Any], *, running: bool) -> str:
    """Whether it goes on, is over, or can go on."""
    ago = f"kept {max(0.0, time.time() - head['written']):.0f} s ago"
    if running:
        return f"running, {ago}"
    if not (folder / MANIFEST).exists():
        return f"ended without notice, {ago}; lwa resume {folder} goes on"
    stopped = read_run(folder)[1]["attributes"]["stopped"]
    return f"{stopped}; lwa resume {folder} goes on" if stopped else "over"


def mixing(folder: Path, head: dict[str, Any]) -> dict[str, str]:
    """Effective draws and R-hat of the parameter that mixed worst, as ArviZ has them."""
    groups = split_groups(load_stream(folder, head["stream"]).variables())
    posterior, stats = (
        {name: values[:, -LOOKED_AT:] for name, values in groups[of].items()} for of in ("posterior", "sample_stats")
    )
    labels = head["description"]["result"]
    table = Result(posterior, stats, {}, labels["dims"], labels["coords"]).summary(kind="diagnostics")
    of_all = head["stream"]["draws"] / min(LOOKED_AT, head["stream"]["draws"])
    return {
        "effective draws": f"about {of_all * table['ess_bulk'].astype(float).min():,.0f}, of the worst parameter",
        "R-hat": f"{table['r_hat'].astype(float).max():.3f}, of the worst parameter",
    }
