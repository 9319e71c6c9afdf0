"""Problem: everything that chains share, decided before the first move and never changed."""

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
from lwa.kernels import HMC, Autoregressive, Kernel, RandomWalk
from lwa.kernels.kernel import Precision
from lwa.rows import Rows
from lwa.rows.passes import count_unit_rows
from lwa.rows.slots import to_columns
from lwa.subsets.chain import Chain
from lwa.targets.reference import Reference
from lwa.targets.target import Given, Target, Terms, as_held

if TYPE_CHECKING:
    from lwa.engine.device.cohort import DeviceCohort

PILOTED = 64
"""Subsets, at the most, on which precision and kernel are tried."""
PROPOSALS = 64
"""Proposals per subset by which acceptance is predicted."""
ROUNDING = 0.25
"""Noise in the log acceptance ratio that float32 may bring. It is a function of θ that changes from one float to the
next, of which a posterior sd holds thousands, so that moments do not feel it; moves do: one in ten is refused for it,
2 Φ(-0.25/2) = 0.9, where float64 costs a fourth of the time or more."""

GAUSSIAN = 0.85
"""Share of the Gaussian's proposals accepted from which on nothing is better: each move costs one evaluation."""
NOT_GAUSSIAN = 0.7
"""... and under which trajectories of some gradients are, given enough parameters."""
TRAJECTORIES, TAILS = 10, 20
"""Parameters from which on trajectories are worth their gradients, and up to which a Student-t covers a skewed or
heavy-tailed posterior better than the Gaussian. Effective draws a second, in thousands, by the share that is predicted
to be accepted (`benchmarks/kernels.py --cases crossing`):

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
    dtype: Precision  # in which θ and the rows of subsets are held
    full: Rows  # all rows, or all units of them
    reads: int  # rows that the log-likelihood reads per subset
    reference: Reference | None = None
    gaussian_acceptance: float | None = None  # predicted, if the kernel was chosen by it
    device_cohort: BuildDeviceCohort | None = None  # what plays all chains on an accelerator, if anything does

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
    """What a user asked of θ's moves."""

    kernel: Kernel | None  # None: to be chosen
    precision: str
    refresh_steps: int
    tune: int
    chains: int


class PilotSubsets(NamedTuple):
    """Some first subsets: what the target needs to know of each."""

    rows: PyTree[NDArray[Any]]  # leaves (subsets, n, ...)
    given: Given | None
    counts: Float64[np.ndarray, "subsets n"] | None


def build_problem(
    data: Data,
    target: Target,
    wishes: Wishes,
    *,
    subsets: Chain,
    first: Subset,
    reference: Reference | None,
    start: Float64[np.ndarray, " d"] | None,
) -> Problem:
    """Choose precision and kernel by trying them on the first subsets, and return all that chains share.

    Both are tried around the reference; without one, around a given `start` or the model's `init`.
    """
    lead_in = count_unit_rows(subsets.rows) - subsets.size if data.ordered else 0
    few = jax.tree.map(lambda leaf: leaf[:PILOTED], first)
    pilot = PilotSubsets(subsets.take(few), subsets.given(few), subsets.counts(few))
    dtype = choose_precision(
        wishes.precision, target, pilot, subsets.seed, start if reference is None else reference.theta
    )
    kernel, accepted = wishes.kernel, None
    if kernel is None:
        if reference is not None and not data.model.in_python:  # a model in Python is too slow to try
            accepted = predict_acceptance(target, pilot, reference, subsets.seed)
        kernel = choose_kernel(data.model.dimension, calibrated=reference is not None, accepted=accepted)
    problem = Problem(
        subsets=subsets, target=target, kernel=kernel.bind(data.model), refresh_steps=wishes.refresh_steps,
        tune=wishes.tune, dtype=dtype, full=data.full, reads=data.reads(subsets.size, lead_in), reference=reference,
        gaussian_acceptance=accepted,
    )  # fmt: skip
    return move_to_device(problem, wishes.chains) if xla.accelerated() else problem


def move_to_device(problem: Problem, chains: int) -> Problem:
    """Return the problem with the cohort that an accelerator can play and pages that suit it, if there is one."""
    from lwa.engine.device.choice import choose_cohort_kind

    cohort = choose_cohort_kind(problem, chains)
    if cohort is None:
        return problem
    subsets = replace(problem.subsets, page=cohort.choose_page(problem, chains))
    return replace(problem, subsets=subsets, device_cohort=cohort)


def choose_precision(
    asked: str,
    target: Target,
    pilot: PilotSubsets,
    seed: int,
    start: Float64[np.ndarray, " d"] | None,
) -> Precision:
    """Return float32 unless another one is asked for or its rounding would disturb the acceptance ratio.

    The noise is measured: w √(2 Σ_U (ℓ32 - ℓ64)²) near the start, over the pilot's subsets.
    """
    if target.model.in_python:
        return np.float64
    if asked != "auto":
        return np.float32 if asked == "float32" else np.float64
    rng = generator(seed, Purpose.PRECISION, 0)
    around = target.model.ravel(target.model.init) if start is None else start
    theta = around + 0.1 * rng.normal(size=(jax.tree.leaves(pilot.rows)[0].shape[0], len(around)))

    def terms(dtype: Precision) -> NDArray[np.float64]:
        columns = to_columns(pilot.rows, dtype, axis=1)
        found = evaluate(target, theta.astype(dtype), columns, as_held(pilot.given, dtype), pilot.counts)
        return np.asarray(found.rows, np.float64)

    single, double = terms(np.float32), terms(np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf, if the model is not finite: the starts are checked next
        noise = target.power * np.sqrt(2 * ((single - double) ** 2).sum(-1))
    noise = noise[np.isfinite(noise)]
    return np.float64 if len(noise) and noise.max() > ROUNDING else np.float32


def predict_acceptance(target: Target, pilot: PilotSubsets, reference: Reference, seed: int) -> float:
    """Return the share of independent proposals from the Gaussian at θ̂ that chains on the targets given U would accept.

    With weights w = π_U/G at points of G, that is E[w min(1, w'/w)] / E[w]. Points are as many at a time as there are
    subsets, so that the program that found the precision serves.
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


def choose_kernel(d: int, *, calibrated: bool, accepted: float | None = None) -> Kernel:
    """Return the kernel that `kernel="auto"` is for d parameters.

    If there is a reference, proposals come from the Gaussian there, unless too few of them would be accepted;
    `accepted` is None as long as that is not known. Else the adaptive random walk: it asks for no derivatives, and if U
    moves the target, draws are worth what U's moves make of them, whatever moves θ.
    """
    if not calibrated:
        return RandomWalk()
    if accepted is None or accepted >= GAUSSIAN:
        return Autoregressive()
    if accepted < NOT_GAUSSIAN and d >= TRAJECTORIES:
        return HMC()
    return Autoregressive(df=8.0) if d <= TAILS else Autoregressive()


def evaluate(target: Target, theta: Any, rows: PyTree[Any], given: Given | None = None, counts: Any = None) -> Terms:
    """Return the log target of each chain at its θ given its own rows."""
    on = evaluate_on_host if target.model.in_python else evaluate_compiled
    return on(target, theta, rows, given, counts)


@jax.jit
def evaluate_compiled(
    target: Target, theta: Array, rows: PyTree[Array], given: Given | None, counts: Array | None
) -> Terms:
    """Return the log target of all chains from one program."""
    return jax.vmap(target.evaluate)(theta, rows, given, counts)
