"""Problem: everything that chains share. It is built before the first move and never changes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jaxtyping import Float64, PyTree
from numpy.typing import NDArray

from lwa.algorithm import Draw, State, Subset, play
from lwa.backend import xla
from lwa.backend.random import Purpose, generator
from lwa.data.data import Data
from lwa.engine.host_loop import evaluate_on_host, play_on_host
from lwa.kernels import HMC, NUTS, Autoregressive, Kernel, RandomWalk
from lwa.kernels.kernel import AnyArray, Precision
from lwa.rows import Rows
from lwa.rows.passes import count_unit_rows
from lwa.rows.slots import to_columns
from lwa.subsets.chain import Chain
from lwa.targets.reference import Reference, find_axes
from lwa.targets.target import Given, Target, Terms, as_held

if TYPE_CHECKING:
    from lwa.engine.device.cohort import DeviceCohort

PILOTED = 64
"""The largest number of subsets on which precision and kernel are tried."""
PROPOSALS = 64
"""Proposals per subset for the prediction of the acceptance rate."""
ROUNDING = 0.25
"""Noise in the log acceptance ratio that float32 may add. It is a function of θ that changes from one float to the
next, and a posterior sd holds thousands of floats, so moments are not affected. Moves are: one in ten is rejected for
it, 2 Φ(-0.25/2) = 0.9, while float64 costs a fourth of the time or more."""
SCANNED, SCANNED_SDS = 12, (1.0, 3.0, 6.0, 12.0, 24.0)
"""Axes of the Gaussian at θ̂ along which rounding is measured, and how far from it, in sds."""
TAIL_SDS, TAIL_EXCESS, TAIL_DENSITY = (3.0, 4.5, 6.0), 2.0, -9.0
"""Sds from θ̂ at which tails are looked at, nats above the Gaussian from which one is heavy, and the log density below
which no chain of some thousand draws goes. A Gaussian's proposals leave such a tail too seldom."""
LARGEST_OF_MANY = 2.0
"""The largest of some thirty normal numbers, in sds: noise of totals is known at single points only."""
UNREACHABLE = -25.0
"""Log density, relative to θ̂, below which no chain goes."""
GAUSSIAN = 0.85
"""If at least this share of the Gaussian's proposals is accepted, no kernel is better: a move costs one evaluation."""
NOT_GAUSSIAN = 0.7
"""If less than this share is accepted, trajectories of some gradients are better, given enough parameters."""
OUTSIDE = 0.05
"""If less than this share is accepted, θ̂ is not in the bulk, and trajectories must find their own length."""
MOST_WALKED = 5
"""Parameters up to which the advice is a random walk on all rows. With 2 it is right and NUTS diverges; with 10,
of groups that are not centred, a walk's 4,000 draws are worth 22 to 230 and those of NUTS at least 1,480 (`banana` and
`numpyro_not_centred` of `benchmarks/adversary.py`)."""
TRAJECTORIES, TAILS = 10, 20
"""Trajectories are worth their gradients from 10 parameters on; up to 20, a Student-t covers a skewed or heavy-tailed
posterior better than the Gaussian. Effective draws per second, in thousands, by the predicted share of accepted
proposals (`benchmarks/kernels.py --cases crossing`):

|  d | predicted | Gaussian | Student-t | HMC |
|----|-----------|----------|-----------|-----|
|  5 |      0.61 |       14 |        65 |  64 |
|  5 |      0.77 |       68 |       152 |  54 |
|  5 |      0.90 |      156 |       176 |  28 |
| 10 |      0.57 |       11 |        35 |  58 |
| 10 |      0.75 |       81 |       120 |  38 |
| 10 |      0.89 |      123 |       103 |  17 |
| 30 |      0.45 |        4 |         8 |  23 |
| 30 |      0.57 |       10 |        13 |  13 |
| 30 |      0.71 |       20 |        17 |   8 |
"""

type BuildDeviceCohort = Callable[["Problem", Sequence[int], Subset], "DeviceCohort"]


@dataclass(frozen=True)
class Problem:
    """Everything that chains share."""

    subsets: Chain
    target: Target
    kernel: Kernel
    refresh_steps: int  # L
    tune: int  # moves
    dtype: Precision  # of θ and of the rows of subsets
    full: Rows  # all rows or units
    reads: int  # rows that the log-likelihood reads per subset
    reference: Reference | None = None
    gaussian_acceptance: float | None = None  # the predicted share, if the kernel was chosen by it
    device_cohort: BuildDeviceCohort | None = None  # plays all chains on an accelerator; None if the host does

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.subsets.seed

    @property
    def page(self) -> int:
        """Moves per page."""
        return self.subsets.moves

    @property
    def in_python(self) -> bool:
        """Whether the model runs in Python."""
        return self.target.model.in_python

    @property
    def play(self) -> Callable[..., tuple[State, Draw]]:
        """The loop over θ's moves."""
        return play_on_host if self.in_python else play


class Wishes(NamedTuple):
    """The user's settings for the moves of θ."""

    kernel: Kernel | None  # None: lwa chooses one
    precision: str
    refresh_steps: int
    tune: int
    chains: int


class PilotSubsets(NamedTuple):
    """What the target needs of each of some first subsets."""

    rows: PyTree[NDArray[Any]]  # leaves (subsets, n, ...)
    given: Given | None
    counts: Float64[np.ndarray, "subsets n"] | None


def build_problem(
    data: Data, target: Target, wishes: Wishes, *, subsets: Chain, first: Subset, reference: Reference | None,
    start: Float64[np.ndarray, " d"] | None
) -> Problem:  # fmt: skip
    """Choose precision and kernel by trying them on the first subsets, and return everything that chains share.

    Both are tried around the reference, or without one around `start` or the model's `init`.
    """
    lead_in = count_unit_rows(subsets.rows) - subsets.size if data.ordered else 0
    reads = data.reads(subsets.size, lead_in) if subsets.strata is None else subsets.strata.reads
    few = jax.tree.map(lambda leaf: leaf[:PILOTED], first)
    pilot = PilotSubsets(subsets.take(few), subsets.given(few), subsets.counts(few))
    dtype = choose_precision(wishes.precision, target, pilot, subsets.seed, start if reference is None else reference)
    kernel, accepted, heavy = wishes.kernel, None, False
    if kernel is None:
        if reference is not None and not data.model.in_python:  # a model in Python is too slow to try
            accepted = predict_acceptance(target, pilot, reference, subsets.seed)
            heavy = has_heavy_tails(target, pilot, reference, subsets.seed)
        kernel = choose_kernel(data.model.dimension, calibrated=reference is not None, accepted=accepted, heavy=heavy)
    problem = Problem(
        subsets=subsets, target=target, kernel=kernel.bind(data.model), refresh_steps=wishes.refresh_steps,
        tune=wishes.tune, dtype=dtype, full=data.full, reads=reads, reference=reference,
        gaussian_acceptance=accepted,
    )  # fmt: skip
    return move_to_device(problem, wishes.chains) if xla.accelerated() else problem


def move_to_device(problem: Problem, chains: int) -> Problem:
    """Return the problem with the cohort that an accelerator can play, if there is one, and pages that suit it."""
    from lwa.engine.device.choice import choose_cohort_kind

    cohort = choose_cohort_kind(problem, chains)
    if cohort is None:
        return problem
    subsets = replace(problem.subsets, page=cohort.choose_page(problem, chains))
    return replace(problem, subsets=subsets, device_cohort=cohort)


def choose_precision(
    asked: str, target: Target, pilot: PilotSubsets, seed: int, start: Reference | Float64[np.ndarray, " d"] | None
) -> Precision:
    """Return float32 unless the user asked for another precision or rounding would disturb the acceptance ratio.

    Rounding is measured on the pilot's subsets near the start, or along each axis of the Gaussian at the reference, as
    far out as chains may go: a model that is precise at θ̂ need not be so in its tails.
    """
    if target.model.in_python:
        return np.float64
    if asked != "auto":
        return np.float32 if asked == "float32" else np.float64
    rng = generator(seed, Purpose.PRECISION, 0)
    subsets = jax.tree.leaves(pilot.rows)[0].shape[0]
    if isinstance(start, Reference):
        centre = start.theta
        away = scan_axes(start, rng, subsets, SCANNED_SDS)
    else:
        centre = target.model.ravel(target.model.init) if start is None else start
        away = 0.1 * rng.normal(size=(1, subsets, len(centre)))
    return np.float64 if measure_rounding(target, pilot, centre, away) > ROUNDING else np.float32


def scan_axes(
    reference: Reference, rng: np.random.Generator, subsets: int, distances: Sequence[float]
) -> Float64[np.ndarray, "times subsets d"]:
    """Return points along the axes of the Gaussian at θ̂, on which one parameter takes the others with it."""
    some = find_axes(reference, rng, SCANNED)
    away = np.concatenate([far * side * some for far in distances for side in (1.0, -1.0)])
    return np.resize(away, (-(-len(away) // subsets), subsets, len(reference.theta)))


def measure_rounding(
    target: Target, pilot: PilotSubsets, centre: Float64[np.ndarray, " d"], away: Float64[np.ndarray, "times subsets d"]
) -> float:
    """Return the sd of the noise that float32 adds to log ratios of the density at centre + away and at the centre.

    Rows round independently, w √(2 Σ_U (ℓ32 - ℓ64)²), or alike, so that totals differ. Points at which both
    precisions have hardly any density do not count.
    """

    def score(dtype: Precision, delta: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        theta = (centre + delta).astype(dtype)
        columns = to_columns(pilot.rows, dtype, axis=1)
        found = evaluate(target, theta, columns, as_held(pilot.given, dtype), pilot.counts)
        return np.asarray(found.rows, np.float64), np.asarray(found.total)

    at_centre = {dtype: score(dtype, np.zeros_like(away[0]))[1] for dtype in (np.float32, np.float64)}
    worst = 0.0
    for delta in away:
        (single, less), (double, more) = score(np.float32, delta), score(np.float64, delta)
        with np.errstate(invalid="ignore"):  # inf - inf if the model is not finite; starts are checked later
            ratio, exact = less - at_centre[np.float32], more - at_centre[np.float64]
            apart = np.sqrt(2 * ((single - double) ** 2).sum(-1)) * target.power
            noise = np.maximum(apart, np.abs(ratio - exact) / LARGEST_OF_MANY)
        visited = np.maximum(np.nan_to_num(ratio, nan=-np.inf), np.nan_to_num(exact, nan=-np.inf)) > UNREACHABLE
        lost = visited & np.isfinite(more) & ~np.isfinite(less)  # finite in float64 alone
        worst = max(worst, np.inf if lost.any() else float(noise[visited & np.isfinite(noise)].max(initial=0.0)))
    return worst


def predict_acceptance(target: Target, pilot: PilotSubsets, reference: Reference, seed: int) -> float:
    """Return the share of independent proposals from the Gaussian at θ̂ that chains on the targets given U would accept.

    With weights w = π_U/G at points of G, that is E[w min(1, w'/w)] / E[w]. It evaluates as many points at a time as
    there are subsets, to reuse the program that `choose_precision` compiled.
    """
    columns = to_columns(pilot.rows, np.float64, axis=1)
    subsets, d = jax.tree.leaves(columns)[0].shape[0], len(reference.theta)
    z = generator(seed, Purpose.PREDICTION, 1).normal(size=(PROPOSALS, subsets, d))

    def score(some: NDArray[np.float64]) -> NDArray[np.float64]:
        theta = reference.theta + some @ reference.factor.T
        return np.asarray(evaluate(target, theta, columns, pilot.given, pilot.counts).total)

    log = np.stack([score(some) for some in z]) + 0.5 * (z**2).sum(-1)
    weight = np.exp(log - log.max(0))
    accepted = np.minimum(weight[:, None], weight[None, :]).mean((0, 1))
    return float((accepted / weight.mean(0)).mean())


def has_heavy_tails(target: Target, pilot: PilotSubsets, reference: Reference, seed: int) -> bool:
    """Return whether the target has far more density than the Gaussian at θ̂ where chains will go, along some axis."""
    columns = to_columns(pilot.rows, np.float64, axis=1)
    subsets = jax.tree.leaves(columns)[0].shape[0]
    away = scan_axes(reference, generator(seed, Purpose.PREDICTION, 6), subsets, TAIL_SDS)

    def score(delta: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(evaluate(target, reference.theta + delta, columns, pilot.given, pilot.counts).total)

    centre = score(np.zeros_like(away[0]))
    with np.errstate(invalid="ignore"):
        log = np.stack([score(delta) for delta in away]) - centre
        excess = log + 0.5 * ((away @ reference.whitening.T) ** 2).sum(-1)
    return bool(((excess > TAIL_EXCESS) & (log > TAIL_DENSITY)).any())


def choose_kernel(d: int, *, calibrated: bool, accepted: float | None = None, heavy: bool = False) -> Kernel:
    """Return the kernel of `kernel="auto"` for d parameters.

    If there is a reference, proposals come from the Gaussian there, unless too few of them would be accepted;
    `accepted` is None if that is not known. Otherwise it is the adaptive random walk, which needs no derivatives: if
    each U has another target, U's moves limit how much draws are worth, whatever the kernel of θ.
    """
    if not calibrated:
        return RandomWalk()
    if accepted is not None and accepted < NOT_GAUSSIAN and d >= TRAJECTORIES:
        return HMC() if accepted > OUTSIDE else NUTS()
    if heavy and d <= TAILS:
        return Autoregressive.for_heavy_tails(d)
    if accepted is None or accepted >= GAUSSIAN:
        return Autoregressive()
    return Autoregressive(df=8.0) if d <= TAILS else Autoregressive()


def choose_kernel_of_all_rows(d: int) -> NUTS | None:
    """Return NUTS for a posterior of d parameters without a mode, if a step reads all rows; None if a walk will do."""
    return NUTS() if d > MOST_WALKED else None


def evaluate(
    target: Target, theta: AnyArray, rows: PyTree, given: Given | None = None, counts: AnyArray | None = None
) -> Terms:
    """Return the log target of each chain at its θ given its own rows."""
    return (evaluate_on_host if target.model.in_python else evaluate_compiled)(target, theta, rows, given, counts)


@jax.jit
def evaluate_compiled(
    target: Target, theta: Array, rows: PyTree[Array], given: Given | None, counts: Array | None
) -> Terms:
    """Return the log target of all chains from one compiled program."""
    return jax.vmap(target.evaluate)(theta, rows, given, counts)
