"""Tables: rows per transition, who arrives when, both readings of σ₂, and draws beside the posterior of all rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.classification.laws import Law
from experiments.classification.model import bayes_error
from experiments.classification.paths import Path, Scenario
from experiments.exhibit import shown

type Table = tuple[list[str], list[list[Any]]]

PAPER_ROWS = (2.4e6, 1.9e6, 2.35e6, 2.8e6)
"""Rows that MHSubLhd uses a transition, in the paper's four scenarios."""
PAPER_TIMES = {("sd", 4): "22"}
"""The one factor in time that the paper prints."""


def rows(found: Sequence[Scenario], N: int) -> Table:
    """Rows a transition, of the whole run and on both sides of θ's arrival."""
    header = [
        "scenario", "LWA-MCMC", "paper's", "MHSubLhd", "share of all rows", "paper's", "MHSubLhd until θ arrives",
        "from then on", "in its last tenth", "its evaluations per transition", "its transitions",
        "LWA-MCMC's transitions",
    ]  # fmt: skip
    table = []
    for number, (scenario, paper) in enumerate(zip(found, PAPER_ROWS, strict=False), start=1):
        ours, rival = scenario.paths["lwa"], scenario.paths["rival"]
        arrival = rival.theta_arrives(scenario.sigma)
        mean = rival.rows_a_transition()
        table.append([
            number, ours.rows_a_transition(), "1,000", mean, f"{mean / N:.1%}", paper,
            rival.rows_a_transition(0, arrival), rival.rows_a_transition(arrival),
            rival.rows_a_transition(len(rival.theta) * 9 // 10), rival.reads * mean, int(rival.transitions[-1]),
            int(ours.transitions[-1]),
        ])  # fmt: skip
    return header, table


def convergence(found: Mapping[str, Sequence[Scenario]]) -> Table:
    """Seconds and rows until θ, and until the classifier, arrive."""
    header = [
        "σ₂ = .25 as", "scenario", "arrives", "LWA-MCMC, s", "MHSubLhd, s", "times faster", "paper's", "LWA-MCMC, rows",
        "MHSubLhd, rows", "times fewer",
    ]  # fmt: skip
    table = []
    for reading, scenarios in found.items():
        for number, scenario in enumerate(scenarios, start=1):
            for what in ("θ", "classifier"):
                ours, rival = (arrival(path, scenario.sigma, what) for path in scenario.paths.values())
                paper = PAPER_TIMES.get((reading, number), "") if what == "θ" else ""
                end = scenario.paths["rival"]
                seconds, rows = (
                    (own, *later_than(own, other, last))
                    for own, other, last in zip(ours, rival, (end.seconds[-1], end.rows[-1]), strict=True)
                )
                table.append([reading, number, what, *seconds, paper, *rows])
    return header, table


def later_than(own: float, other: float, last: float) -> tuple[float | str, float | str]:
    """When the other arrives, and how much later; where its run ended before, that it was later than that."""
    if np.isfinite(other):
        return other, other / own
    return f"> {shown(float(last))}", f"> {shown(float(last / own))}"


def arrival(path: Path, sigma: float, what: str) -> tuple[float, float]:
    """Seconds and rows until then; infinite where that never was."""
    place = path.theta_arrives(sigma) if what == "θ" else path.classifier_arrives(sigma)
    if place is None:
        return np.inf, np.inf
    return float(path.seconds[place]), float(path.rows[place])


def readings(found: Mapping[str, Sequence[Scenario]]) -> Table:
    """What depends on how σ₂ = .25 is read: medians over the scenarios of each."""
    header = ["σ₂ = .25 as", "σ", "scenarios", "smallest error", "LWA-MCMC's last, test", "MHSubLhd's last, test"]
    header += ["LWA-MCMC, rows per transition", "MHSubLhd, rows per transition", "times faster, θ"]
    header += ["times fewer rows, θ", "LWA-MCMC prepares, s", "MHSubLhd prepares, s"]
    table = []
    for reading, scenarios in found.items():
        last, each, ratios, prepared = [], [], [], []
        for scenario in scenarios:
            last.append([scenario.errors[name, "test"][-1] for name in scenario.paths])
            each.append([path.rows_a_transition() for path in scenario.paths.values()])
            ours, rival = (arrival(path, scenario.sigma, "θ") for path in scenario.paths.values())
            ratios.append([rival[0] / ours[0], rival[1] / ours[1]])
            prepared.append([path.prepared for path in scenario.paths.values()])
        sigma = scenarios[0].sigma
        medians = [float(value) for part in (last, each, ratios, prepared) for value in np.median(part, axis=0)]
        table.append([reading, sigma, len(scenarios), bayes_error(sigma), *medians])
    return header, table


def laws(found: Sequence[Law]) -> Table:
    """Draws in posterior sds."""
    header = ["draws of", "largest shift of a mean, in posterior sds", "smallest sd / posterior sd", "largest"]
    return header, [list(law) for law in found]
