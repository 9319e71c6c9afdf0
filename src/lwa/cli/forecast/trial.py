"""A short run of `lwa.sample` on the sample of the rows, and what it shows about the cost of a full run."""

from dataclasses import dataclass

import jax
import numpy as np

from lwa.backend.machine import PeakMemory, measure_disk_speed, read_free_memory
from lwa.cli.forecast.passes import measure, measure_gather, measure_passes, release_pages
from lwa.cli.forecast.row_sample import RowSample
from lwa.cli.forecast.work import Costs
from lwa.cli.options import SampleOptions
from lwa.data.data import Data, lay_out
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.engine.problem import Problem
from lwa.models.glm import Glm
from lwa.models.model import Model
from lwa.result.polish import Polisher
from lwa.result.result import Result
from lwa.run.sample import sample

TRIAL_SECONDS = 2.0
"""Seconds of tuning and sampling."""


@dataclass(frozen=True, eq=False)
class Trial:
    """What a short run showed about the model and about this machine."""

    data: Data
    fit: Result
    binding: int  # passes that bind the model to the data
    costs: Costs
    peak: float  # bytes of anonymous memory, the most at any time

    @property
    def problem(self) -> Problem:
        """What the chains of the run shared."""
        return find_problem(self.fit)

    @property
    def efficiency(self) -> float:
        """Effective draws per draw, of the worst parameter."""
        values = [np.asarray(values).reshape(*values.shape[:2], -1) for values in self.fit.posterior.values()]
        draws = np.concatenate(values, axis=2)
        if draws.shape[1] < 8:
            return float("nan")
        return float(np.nanmin(effective_draws(draws.astype(np.float64)))) / (draws.shape[0] * draws.shape[1])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as the model reads it."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.data.full.take(np.zeros(1, np.int64))))


def find_problem(fit: Result) -> Problem:
    """Return what the chains of a run shared."""
    assert fit.origin is not None
    assert isinstance(fit.origin.polish, Polisher)
    return fit.origin.polish.problem


def run_trial(model: Model | Glm, some: RowSample, options: SampleOptions) -> Trial:
    """Bind, sample, pass and certify on the sample; measure random reads on all rows, if these can be read."""
    with PeakMemory() as peak:
        M, binding, bound_in = len(some.rows), 0, 0.0
        if isinstance(model, Glm):
            bound_in, bound = measure(lambda: model.bind(some.rows))
            data, binding = lay_out(bound.model, bound.rows), bound.passes
        else:
            data = lay_out(model, some.rows)
        fit = sample_briefly(data, options)
        row = {"bind": bound_in / (M * max(1, binding)), "convert": some.converted_in}
        row |= measure_passes(data, find_problem(fit), fit, options["chains"])
        facts = fit.attributes
        start = facts["seconds"] - facts["sampling_seconds"] - M * (row["survey"] + 2 * row["mode"])
        gather = 0.0 if some.everything is None else measure_gather(some.everything)
        release_pages(some.everything)
        costs = Costs(
            row, move=read_move_cost(fit), gather=gather, disk=measure_disk_speed(some.files), start=max(0.5, start),
            free=read_free_memory(),
        )  # fmt: skip
    return Trial(data, fit, binding, costs, peak.bytes)


def sample_briefly(data: Data, options: SampleOptions) -> Result:
    """Run `lwa.sample` on the sample for a few seconds, without passes that correct draws."""
    size = options["subset_size"]
    assert size is not None
    return sample(
        data.given, data, subset_size=min(size, data.available) if isinstance(size, int) else size,
        target=options["target"], epsilon=options["epsilon"], draws="auto", tune=min(options["tune"], 1000),
        chains=options["chains"], seed=options["seed"], budget=TRIAL_SECONDS, keep=options["keep"], progress=False,
    )  # fmt: skip


def read_move_cost(fit: Result) -> float:
    """Return the seconds of one move of all chains by the clock of the run, without its first half, which adapts."""
    clock, thinning = fit.attributes["clock"], fit.attributes["thinning"]
    (first, begun), (last, ended) = clock[0], clock[-1]
    if last > first:
        return (ended - begun) / ((last - first) * thinning)
    return 1 / max(fit.attributes["moves_a_second"], 1e-9)
