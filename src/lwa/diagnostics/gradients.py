"""log π of all rows at many parameter values, and ∇log π at some of them, in one streamed pass."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.errors import InputError, ModelError
from lwa.layout import Layout
from lwa.models import numerical, predictors
from lwa.models.check import named, users_function
from lwa.models.model import Model
from lwa.models.on_host import log_priors
from lwa.progress import Display
from lwa.rows import Batch, Rows, survey
from lwa.rows.slots import fill_up, to_rows
from lwa.rows.units import unit_length

EVALUATIONS = 2**20
"""Points and proposals × rows in one compiled call: 4 MiB a temporary array. At 300 of each, blocks of 1024 to 4096
rows are equally fast and 16,384 half as fast (logistic, d = 10, 2 cores)."""
LANES = 2
"""Blocks in the making at a time."""
PYTHON_ROWS = 2**14
"""Rows in one call of a function that runs in Python, one θ at a time."""
TRIAL_SHARE, FEWEST_TRIAL_ROWS, MOST_TRIAL_ROWS = 1 / 16, 4096, 65_536
"""Rows on which the rounding of float32 is measured. Where a sixteenth of all are fewer than 4096, float64 it is. The
error of T rows is taken N/T times, as if all rows erred alike. Errors that do not are overrated by √(N/T): so T grows
with N, or a logistic regression would seem to need float64 from N = 5·10⁷ instead of 2·10⁸."""
TRIAL_POINTS = 30
ROUNDING = 0.005
"""What float32 may add to a shift, in sds of the draws. Unlike a log ratio, a gradient is no small difference of large
numbers: for a logistic regression at N = 10⁶ no gradient moves by more than 2·10⁻⁵ sd, at a third of the cost."""
LOG_RATIO_ROUNDING = 0.05
"""What float32 may add to a log ratio of posterior densities, as a root mean square: acceptance probabilities change by
a twentieth, either way, which is not felt in a mean over hundreds. Logistic, N = 10⁶: 5·10⁻⁵, and 2·10⁻⁴ by trial."""


class Scores(NamedTuple):
    """The gradient of the log posterior at M points, and its value at starts and ends of moves."""

    log_density: NDArray[np.float64]  # (M,), or as many as there are starts
    gradient: NDArray[np.float64]  # (M, d)
    proposed: NDArray[np.float64]  # (K,)  log density again; may be infinite or NaN


class Places(NamedTuple):
    """Where to take gradients and values."""

    points: Any  # (M, d)
    starts: Any  # (K', d) of moves; none of them: values are taken at all points
    proposals: Any  # (K, d)  ends of moves

    @property
    def begun(self) -> Any:
        """Where moves start."""
        return self.starts if len(self.starts) else self.points

    @property
    def number(self) -> int:
        """How many there are."""
        return sum(map(len, self))

    def cast(self, precision: Any) -> "Places":
        """The same in another precision."""
        return Places(*(part.astype(precision) for part in self))

    def some(self, count: int) -> "Places":
        """At most so many of each, spread evenly."""
        return Places(*(part[evenly(len(part), min(count, len(part)))] for part in self))


def evenly(of: int, count: int) -> NDArray[np.int64]:
    """So many positions, spread over a number of them."""
    return np.linspace(0, of - 1, count).astype(np.int64)


class Sums(NamedTuple):
    """Scores of the rows seen so far, in float64; on the device where JAX computes them."""

    log_density: Any
    gradient: Any
    proposed: Any


def score(
    layout: Layout,
    places: Places,
    factor: NDArray[np.float64],
    display: Display,
) -> Scores:
    """∇log π at the points, log π at starts and proposals.

    `factor` F is that of the draws' covariance: gradients times F are in units of their own spread.
    """
    model, rows, length = layout.model, layout.full, unit_length(layout.full)
    size = max(1, (PYTHON_ROWS if model.host else block_rows(places)) // length)
    if model.host:
        prior, add_rows = numerically(model, places)
    else:
        precision = choose_precision(model, rows, places, factor)
        prior, add_rows = by_jax(model, places, size, precision)
    require_finite(model, places, prior, "log_prior")
    with Lanes(jax.tree.map(jnp.zeros_like, prior), add_rows, 1 if model.host else LANES) as lanes:
        if length == 1:
            survey(rows, [lanes.add], size, lambda done: display.show("gradients", done, len(rows)))
        else:
            survey(layout.rows)
            for done, batch in enumerate(rows.blocks(size)):
                lanes.add(batch)
                display.show("gradients", min(len(rows), (done + 1) * size), len(rows), layout.units_in_words)
        total = lanes.total()
    require_finite(model, places, total, "log_likelihood")
    return Scores(*(np.asarray(a + b) for a, b in zip(prior, total, strict=True)))


def block_rows(places: Places) -> int:
    """Rows in one compiled call: enough for what they cost to outweigh adding up d numbers for each point."""
    return max(EVALUATIONS // places.number, min(4 * places.points.shape[1], 8 * EVALUATIONS // places.number))


type Add = Callable[[Sums, Batch], Sums]
"""What has been summed so far and some rows -> the sums with theirs."""


class Lanes:
    """Blocks of rows added up by turns, each lane on a thread of its own, while the next ones are read.

    Lanes are as many on every machine, so that sums are the same on all. A single one is the caller's own thread, where
    a function that is not JAX is to be called.
    """

    def __init__(self, zero: Sums, add: Add, count: int) -> None:
        self.sums, self.adding = [zero] * count, add
        several = count if count > 1 else 0
        self.threads = [ThreadPoolExecutor(1, thread_name_prefix="lwa-gradients") for _ in range(several)]
        self.last: list[Future[None] | None] = [None] * count
        self.blocks = 0

    def __enter__(self) -> "Lanes":
        """Ready."""
        return self

    def __exit__(self, *_: object) -> None:
        """No thread outlives the pass."""
        for thread in self.threads:
            thread.shutdown(wait=True, cancel_futures=True)

    def add(self, batch: Batch) -> None:
        """To the lane whose turn it is, once it is done with its last block."""
        lane = self.blocks % len(self.sums)
        self.blocks += 1
        if not self.threads:
            return self._add(lane, batch)
        self._wait(lane)
        self.last[lane] = self.threads[lane].submit(self._add, lane, batch)

    def _add(self, lane: int, batch: Batch) -> None:
        with jax.enable_x64(True):  # a setting of each thread's own
            self.sums[lane] = jax.block_until_ready(self.adding(self.sums[lane], batch))  # type: ignore[no-untyped-call]

    def _wait(self, lane: int) -> None:
        if (last := self.last[lane]) is not None:
            last.result()  # raises what its block raised

    def total(self) -> Sums:
        """Of all lanes."""
        for lane in range(len(self.sums)):
            self._wait(lane)
        return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *self.sums)


def by_jax(model: Model, places: Places, size: int, precision: Any) -> tuple[Sums, Add]:
    """Scores of the prior, and how those of rows are added, `size` at the most."""
    with users_function("log_prior", "theta to be differentiated"):
        prior = prior_scores(model, jax.tree.map(jnp.asarray, places))
    places = places.cast(precision)

    def add(total: Sums, batch: Batch) -> Sums:
        with users_function("log_likelihood", "theta to be differentiated"):
            return add_block(model, total, places, *fill_up(batch, size, precision))

    return prior, add


def numerically(model: Model, places: Places) -> tuple[Sums, Add]:
    """The same of a model that runs in Python, by differences; what it raises is the user's."""

    def add(total: Sums, batch: Batch) -> Sums:
        here, slopes = numerical.gradient_sums(model, places.points, batch)
        if len(places.starts):
            here = numerical.value_sums(model, places.starts, batch)
        there = numerical.value_sums(model, places.proposals, batch)
        return Sums(*(a + b for a, b in zip(total, (here, slopes, there), strict=True)))

    here, slopes = numerical.prior_gradients(model, places.points)
    if len(places.starts):
        here = log_priors(model, places.starts)
    return Sums(here, slopes, log_priors(model, places.proposals)), add


@partial(jax.jit, static_argnames=("model",))
def add_block(model: Model, total: Sums, places: Places, columns: Any, mask: Array) -> Sums:
    """`total` and what one block of rows adds to it; `mask` is False where a row only fills the block up."""
    if model.predictors is not None:
        rows = to_rows(columns)
        values, slopes = (
            partial(sums, model.predictors, rows=rows, counted=mask)
            for sums in (predictors.values, predictors.gradients)
        )
        found = Sums(values(places.begun), slopes(places.points).astype(jnp.float64), values(places.proposals))
        return jax.tree.map(jnp.add, total, found)

    def value(theta: Array) -> Array:
        # Rows are added up in float64: log ratios are small differences of such sums.
        return jnp.where(mask, model.log_likelihood_at(theta, columns), 0.0).sum(dtype=jnp.float64)

    return jax.tree.map(jnp.add, total, sums_at(value, places))


@partial(jax.jit, static_argnames=("model",))
def prior_scores(model: Model, places: Places) -> Sums:
    """The log prior and its gradient."""
    return sums_at(lambda theta: model.log_prior_at(theta).astype(jnp.float64), places)


def sums_at(value: Callable[[Array], Array], places: Places) -> Sums:
    """Gradients at the points, and values."""
    density, gradient = jax.vmap(jax.value_and_grad(value))(places.points)
    if len(places.starts):
        density = jax.vmap(value)(places.starts)
    return Sums(density, gradient.astype(jnp.float64), jax.vmap(value)(places.proposals))


def choose_precision(
    model: Model,
    rows: Rows,
    places: Places,
    factor: NDArray[np.float64],
) -> Any:
    """float32 for the rows' own terms if its rounding, measured on some rows, would not be felt; else float64."""
    N = len(rows)
    T = min(int(TRIAL_SHARE * N), MOST_TRIAL_ROWS)
    if T < FEWEST_TRIAL_ROWS or unit_length(rows) > 1:
        return np.float64
    batch = rows.take(np.linspace(0, N - 1, T).astype(np.int64))
    few = places.some(min(TRIAL_POINTS, len(places.begun), len(places.proposals)))

    def sums(precision: Any) -> Sums:
        zero = Sums(jnp.zeros(len(few.begun)), jnp.zeros(few.points.shape), jnp.zeros(len(few.proposals)))
        return jax.tree.map(np.asarray, add_block(model, zero, few.cast(precision), *fill_up(batch, T, precision)))

    with users_function("log_likelihood", "theta to be differentiated"):
        single, double = sums(np.float32), sums(np.float64)
    with np.errstate(invalid="ignore"):
        here, there = single.log_density - double.log_density, single.proposed - double.proposed
        off = (there - here)[np.isfinite(double.proposed)]  # elsewhere, rounding or not, nothing moves there
    moved = np.abs((single.gradient - double.gradient) @ factor).max() * N / T
    noise = np.sqrt((off**2).sum() / max(1, len(off))) * N / T
    # NaN is float64's to explain.
    return np.float32 if moved <= ROUNDING and noise <= LOG_RATIO_ROUNDING else np.float64


def require_finite(model: Model, places: Places, scores: Sums, function: str) -> None:
    """Refuse draws that the model calls impossible, and gradients that JAX cannot take."""
    for points, values, what in (
        (places.begun, np.asarray(scores.log_density)[:, None], "value"),
        (places.points, np.asarray(scores.gradient), "gradient"),
    ):
        bad = ~np.isfinite(values).all(1)
        if not bad.any():
            continue
        where = f"at {bad.sum()} of {len(points)} draws, the first being theta = {named(model, points[bad][0])}"
        if what == "value":
            raise InputError(
                f"{function} is not finite {where}. Draws of this posterior have a positive density: pass the model "
                "and the data that they were drawn from, with parameters on the same scale."
            )
        raise ModelError(
            f"The gradient of {function} is not finite {where}, though its value is. JAX must be able to "
            "differentiate it there: often a jnp.where hides the value but not the gradient of the branch not taken "
            "(use a safe argument inside it), or sqrt or a norm is taken at zero."
        )
