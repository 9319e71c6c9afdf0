"""Windows of a sequence on the device: the sequence lies there once, and a window is where it begins.

What the target must know of a window besides its rows is the difference of two running sums, so a page of transitions
is walked, and what is known of its windows found, before θ moves.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.algorithm import State, Subset
from lwa.engine.device.cohort import ROWS_SHARE, DeviceCohort, can_be_played, memory, page_within
from lwa.engine.device.resident import PASS_ROWS, bytes_of, of_page, page_noise, put_rows
from lwa.engine.device.window_walk import Walked, draws_of, walk
from lwa.engine.device.xla_loop import Place, Played, over_page, without_rows
from lwa.engine.problem import Problem
from lwa.kernels.kernel import Kernel
from lwa.models.recursion import require_agreement
from lwa.rows.slots import double
from lwa.rows.units import Span, Stretch
from lwa.subsets.moves import Window
from lwa.subsets.windows.chain import WindowChain
from lwa.subsets.windows.law import WindowLaw
from lwa.targets.calibration import Calibration
from lwa.targets.target import Given, Target, Terms, as_held

STEP_BYTES = 64
"""A step of a window takes so many while it is evaluated."""
FEW = 32
"""Rows by which it is seen whether a recursion is the model's."""


class Series(NamedTuple):
    """All of them on the device, one after the other, and how windows in them are numbered."""

    rows: Any  # leaves (N, *shape)
    first_window: Array  # (series + 1,)
    first_row: Array  # (series,)
    law: WindowLaw
    sums: Array | None  # (N + 1, c)  running sums at θ̂, where there is one


class WindowPage(NamedTuple):
    """A page of transitions as it was walked, and θ's noise; leaves `(chains, transitions, ...)`."""

    walked: Walked
    span: Span
    given: Given | None
    noise: Any  # (chains, moves, ...)


class WindowsOnDevice(DeviceCohort):
    """Some chains whose U is a window."""

    def __init__(self, problem: Problem, chains: Sequence[int], U: Subset) -> None:
        super().__init__(problem, chains)
        subsets = chain_of(problem)
        units = subsets.units
        self.n, self.length, self.calibration = subsets.steps, units.length, subsets.calibration
        require_recursion(problem)
        with jax.enable_x64(True):
            self.series = Series(
                put_rows(units.parts.blocks(units.rows, PASS_ROWS), problem.dtype),
                jnp.asarray(subsets.numbered.first_window),
                jnp.asarray(subsets.numbered.first_row),
                jax.tree.map(jnp.asarray, subsets.law),
                None if self.calibration is None or subsets.sums is None else jnp.asarray(subsets.sums.sums),
            )
            self.target = jax.tree.map(jnp.asarray, problem.target)
            self.first = jnp.asarray(np.asarray(U.indices))

    @classmethod
    def suits(cls, problem: Problem, chains: int) -> bool:
        """Whether windows are all equally likely, so that they are walked without looking at their rows."""
        subsets = problem.subsets
        if not isinstance(subsets, WindowChain) or not isinstance(subsets.move, Window) or not can_be_played(problem):
            return False
        if subsets.statistic.dimension or (subsets.calibration is not None and subsets.sums is None):
            return False
        held = bytes_of(subsets.units.rows, problem.dtype) + (0 if subsets.sums is None else subsets.sums.sums.nbytes)
        return max(held, STEP_BYTES * subsets.units.length * chains) < ROWS_SHARE * memory()

    @classmethod
    def page_for(cls, problem: Problem, chains: int) -> int:
        """Proposals of U a page: fewer where chains are many, and windows long."""
        subsets, d = chain_of(problem), problem.target.model.dimension
        known = 0 if subsets.calibration is None else 8 * (4 * d * d + 2 * subsets.calibration.width)
        return page_within(subsets, 32 * d + 64 + (known + 64) / subsets.move.every, subsets.units.length, chains)

    def score(self, theta: NDArray[Any]) -> Terms:
        """The log target of every chain at its θ, given its first window."""
        with jax.enable_x64(True):
            span, given = self._known(self.first[:, 0])
            return scores(jnp.asarray(theta), span, given, self.series, self.target, length=self.length)

    def placed(self, state: State, indices: Array) -> Place:
        """Rows are read where they lie."""
        self.begun = jnp.copy(indices)  # U before the page at hand
        return Place(state, indices)

    @property
    def indices(self) -> Array:
        """U before the page that holds the next move: the page is walked again from there."""
        return self.begun if self.moves % self.problem.page else self.place.indices

    def _known(self, x: Array) -> tuple[Span, Given | None]:
        """Where windows lie, and what the target must know of them."""
        span, sums = located(x, self.series, n=self.n, lead_in=self.length - self.n)
        return span, given_of(self.calibration, sums, self.problem.dtype)

    def _page(self, number: int) -> WindowPage:
        if self.page[0] != number:
            self.begun = jnp.copy(self.place.indices)
            walked, noise = draw_windows(
                *self.keys, number, self.begun[:, 0], self.series.law, kernel=self.problem.kernel,
                transitions=self.problem.page // self.every, moves=self.problem.page,
                d=self.problem.target.model.dimension, dtype=np.dtype(self.problem.dtype).name,
            )  # fmt: skip
            self.page = number, WindowPage(walked, *self._known(walked.x), noise)
        found: WindowPage = self.page[1]
        return found

    def _play(self, page: WindowPage, at: int, end: int) -> Played:
        from lwa.engine.device.pallas_windows import play_in_streams, why_not  # Pallas: nothing else needs it

        kernel: Any = self.problem.kernel
        played = self.in_registers(
            lambda: why_not(self.place, page, self.series, self.target, kernel),
            lambda interpret: play_in_streams(
                self.place, page, at, end, self.series, self.target, kernel, every=self.every, length=self.length,
                interpret=interpret,
            ),
        )  # fmt: skip
        if played is not None:
            return played
        self.place, self.played = play_windows(
            self.place, self.room, page, self._gain(at), at, end, self.series, self.target, self.problem.kernel,
            every=self.every, length=self.length,
        )  # fmt: skip
        return self.played


def chain_of(problem: Problem) -> WindowChain:
    """The chain of windows."""
    assert isinstance(problem.subsets, WindowChain)
    return problem.subsets


def require_recursion(problem: Problem) -> None:
    """Refuse a recursion that is not the model's, by the first rows."""
    model, units = problem.target.model, chain_of(problem).units
    if model.recursion is None:
        return
    first = units.parts.take(units.rows, np.arange(min(FEW, int(units.parts.sizes[0]))))
    rows = jax.tree.map(double, first)

    def terms(theta: Any, rows: Any) -> Any:  # a model of units tells their sums: here of one row
        one = jax.tree.map(lambda leaf: leaf[None], rows)
        each = jnp.eye(len(jax.tree.leaves(rows)[0]), dtype=bool)
        return jax.vmap(lambda scored: model.log_likelihood(theta, Stretch(one, scored[None]))[0])(each)

    require_agreement(model.recursion, terms, model.init, rows)


@partial(jax.jit, static_argnames=("kernel", "transitions", "moves", "d", "dtype"))
def draw_windows(
    subset_keys: Array, theta_keys: Array, number: int, x: Array, law: WindowLaw, *, kernel: Kernel, transitions: int,
    moves: int, d: int, dtype: Any
) -> tuple[Walked, Any]:  # fmt: skip
    """The page of that number for each chain, from its window x and a key each for U and for θ."""

    def one(x: Array, key: Array) -> Walked:
        return walk(x, draws_of(key, transitions, law), law)

    walked = jax.vmap(one)(x, of_page(subset_keys, number))
    return walked, page_noise(of_page(theta_keys, number), kernel, moves, d, dtype)


@partial(jax.jit, static_argnames=("n", "lead_in"))
def located(x: Array, series: Series, *, n: int, lead_in: int) -> tuple[Span, Array | None]:
    """Where windows of n steps lie, as `rows.units.windows_of` has it, and their sums at θ̂."""
    part = jnp.searchsorted(series.first_window, x, side="right") - 1
    begin: Any = series.first_row[part] + x - series.first_window[part]
    first: Any = jnp.maximum(begin - lead_in, series.first_row[part])
    span = Span(first, begin, begin + n)
    return span, None if series.sums is None else series.sums[span.stop] - series.sums[span.begin]


def given_of(calibration: Calibration | None, sums: Array | None, dtype: Any) -> Given | None:
    """What θ's target needs to know of windows with these sums, of which curvature comes last."""
    if calibration is None or sums is None:
        return None
    return as_held(calibration.given(sums[..., : calibration.width]), dtype)


def window_at(rows: Any, span: Span, length: int) -> Stretch:
    """One window, as `Units.take` has it, its slot on the last axis. The last row fills up: nothing depends on it."""
    steps = jnp.arange(length)
    before, end = span.begin - span.first, span.stop - span.first
    at = span.first + jnp.minimum(steps, end - 1)
    return Stretch(jax.tree.map(lambda leaf: leaf[at][..., None], rows), ((steps >= before) & (steps < end))[:, None])


def evaluate(theta: Array, span: Span, given: Given | None, series: Series, target: Target, length: int) -> Terms:
    """The log target of one chain, given its window."""
    return without_rows(target.evaluate(theta, window_at(series.rows, span, length), given))


@partial(jax.jit, static_argnames=("length",))
def scores(theta: Array, span: Span, given: Given | None, series: Series, target: Target, *, length: int) -> Terms:
    """The log target of each chain."""
    return jax.vmap(partial(evaluate, series=series, target=target, length=length))(theta, span, given)


@partial(jax.jit, static_argnames=("kernel", "every", "length"), donate_argnames=("place", "played"))
def play_windows(
    place: Place, played: Played, page: WindowPage, gain: Array, start: int, stop: int, series: Series, target: Target,
    kernel: Kernel, *, every: int, length: int
) -> tuple[Place, Played]:  # fmt: skip
    """The moves `start` to `stop` of a page, as an ordinary program."""

    def one_chain(place: Place, played: Played, page: WindowPage) -> tuple[Place, Played]:
        def renewed(t: Array, place: Place) -> tuple[Place, Array]:
            return place._replace(indices=page.walked.x[t][None]), page.walked.accepted[t]

        def scored(t: Array, place: Place, theta: Array) -> Terms:
            span, given = jax.tree.map(lambda leaf: leaf[t], (page.span, page.given))
            return evaluate(theta, span, given, series, target, length)

        return over_page(place, played, page.noise, gain, start, stop, kernel, every, renewed, scored)

    return jax.vmap(one_chain)(place, played, page)
