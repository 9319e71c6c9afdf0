"""log π of all rows at many parameter values, and ∇log π at some of them, in one streamed pass."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.data.data import Data
from lwa.errors import InputError, ModelError
from lwa.models import numerical, predictors
from lwa.models.check import named, users_function
from lwa.models.model import Model
from lwa.models.on_host import log_priors
from lwa.rows import Batch, Rows, survey
from lwa.rows.passes import over_pieces, power_of_two
from lwa.rows.slots import fill_up, to_rows
from lwa.rows.survey import visited
from lwa.rows.units import unit_length
from lwa.user.progress import Display

EVALUATIONS = 2**20
"""Points and proposals × rows in one compiled call: 4 MiB a temporary array. At 300 of each, blocks of 1024 to 4096
rows are equally fast and 16,384 half as fast (logistic, d = 10, 2 cores)."""
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
    layout: Data,
    places: Places,
    factor: NDArray[np.float64],
    display: Display,
) -> Scores:
    """∇log π at the points, log π at starts and proposals.

    `factor` F is that of the draws' covariance: gradients times F are in units of their own spread.
    """
    model, rows, length = layout.model, layout.full, unit_length(layout.full)
    size = power_of_two((PYTHON_ROWS if model.host else block_rows(places)) // length)
    precision = None if model.host else choose_precision(model, rows, places, factor)
    prior = prior_of(model, places)
    require_finite(model, places, prior, "log_prior")
    if length == 1:
        total = visited(
            rows, Adding, size, shared=(model,), own=(places, size, precision), here=model.host,
            progress=lambda done: display.show("gradients", done, len(rows)),
        )[1].total  # fmt: skip
    else:
        survey(layout.rows)
        total = over_units(layout, places, size, precision, display)
    require_finite(model, places, total, "log_likelihood")
    return Scores(*(np.asarray(a) + np.asarray(b) for a, b in zip(prior, total, strict=True)))


class Adding:
    """Scores of the rows seen so far."""

    def __init__(self, model: Model, places: Places, size: int, precision: Any) -> None:
        self.model, self.places, self.size, self.precision = model, places, size, precision
        shapes = (len(places.begun),), places.points.shape, (len(places.proposals),)
        self.total = Sums(*jax.device_put([np.zeros(shape) for shape in shapes]))

    def visit(self, block: Batch) -> None:
        """Add those of a block."""
        add = add_numerically if self.model.host else add_by_jax
        self.total = add(self.model, self.total, self.places, block, self.size, self.precision)

    def join(self, later: Self) -> None:
        """Add those of the next piece."""
        self.total = Sums(*(np.asarray(a) + np.asarray(b) for a, b in zip(self.total, later.total, strict=True)))

    def __getstate__(self) -> dict[str, Any]:
        """Sums alone come back from a worker."""
        return {"total": jax.tree.map(np.asarray, self.total)}


def over_units(layout: Data, places: Places, size: int, precision: Any, display: Display) -> Sums:
    """A pass over segments or groups."""
    model, rows = layout.model, layout.full
    begun: Adding | None = None
    pieces = over_pieces(
        rows, scores_in_piece, size, shared=(model,), own=(places, size, precision), here=model.host,
        progress=lambda done: display.show("gradients", done, len(rows), layout.units_in_words),
    )  # fmt: skip
    for piece in pieces:
        if begun is None:
            begun = piece
        else:
            begun.join(piece)
    assert begun is not None
    return begun.total


def scores_in_piece(model: Model, places: Places, size: int, precision: Any, start: int, blocks: Any) -> Adding:
    """Of all units of a piece."""
    adding = Adding(model, places, size, precision)
    for block in blocks:
        adding.visit(block)
    return adding


def block_rows(places: Places) -> int:
    """Rows in one compiled call: enough for what they cost to outweigh adding up d numbers for each point."""
    return max(EVALUATIONS // places.number, min(4 * places.points.shape[1], 8 * EVALUATIONS // places.number))


def prior_of(model: Model, places: Places) -> Sums:
    """Scores of the prior."""
    if not model.host:
        with users_function("log_prior", "theta to be differentiated"):
            return prior_scores(model, jax.device_put(places))  # jnp.asarray compiles a program for every shape
    here, slopes = numerical.prior_gradients(model, places.points)
    if len(places.starts):
        here = log_priors(model, places.starts)
    return Sums(here, slopes, log_priors(model, places.proposals))


def add_by_jax(model: Model, total: Sums, places: Places, batch: Batch, size: int, precision: Any) -> Sums:
    """The scores of some rows, `size` at the most, in a precision, added in float64."""
    with users_function("log_likelihood", "theta to be differentiated"):
        done = add_block(model, total, places.cast(precision), *fill_up(batch, size, precision))
        return jax.block_until_ready(done)  # type: ignore[no-untyped-call]  # blocks must not queue up in memory


def add_numerically(model: Model, total: Sums, places: Places, batch: Batch, size: int, precision: Any) -> Sums:
    """The same of a model that runs in Python, by differences; what it raises is the user's."""
    here, slopes = numerical.gradient_sums(model, places.points, batch)
    if len(places.starts):
        here = numerical.value_sums(model, places.starts, batch)
    there = numerical.value_sums(model, places.proposals, batch)
    return Sums(*(a + b for a, b in zip(total, (here, slopes, there), strict=True)))


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
        zero = Sums(np.zeros(len(few.begun)), np.zeros(few.points.shape), np.zeros(len(few.proposals)))
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
