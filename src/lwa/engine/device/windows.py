"""Windows of a sequence on the device: the sequence lies there once, and a window is where it begins.

What the target needs of a window besides its rows is the difference of two running sums. So a page of transitions is
walked, and these differences are computed, before θ moves.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PyTree

from lwa.algorithm import State, Subset
from lwa.engine.device.cohort import ROWS_SHARE, DeviceCohort, count_device_proposals, device_memory, is_playable
from lwa.engine.device.resident import UPLOAD_ROWS, count_bytes, upload_rows
from lwa.engine.device.window_walk import Series, WindowPage, draw_windows, locate_windows
from lwa.engine.device.xla_loop import Place, Played, drop_rows, play_page
from lwa.engine.problem import Problem
from lwa.kernels.kernel import Kernel, Precision
from lwa.models.recursion import require_agreement
from lwa.rows.slots import to_float64
from lwa.rows.units import Span, Stretch
from lwa.subsets.moves import Window
from lwa.subsets.windows.chain import WindowChain
from lwa.targets.calibration import Calibration
from lwa.targets.target import Given, Target, Terms, as_held

STEP_BYTES = 64
"""Memory that a step of a window takes while it is evaluated."""
ROWS_COMPARED = 32
"""Rows on which a recursion is compared with the model's log-likelihood."""


class WindowsOnDevice(DeviceCohort):
    """Some chains whose subset is a window."""

    def __init__(self, problem: Problem, chains: Sequence[int], U: Subset) -> None:
        super().__init__(problem, chains)
        subsets = get_window_chain(problem)
        units = subsets.units
        self.n, self.length, self.calibration = subsets.steps, units.length, subsets.calibration
        require_recursion(problem)
        with jax.enable_x64(True):
            self.series = Series(
                upload_rows(units.parts.blocks(units.rows, UPLOAD_ROWS), problem.dtype),
                jnp.asarray(subsets.numbered.first_window),
                jnp.asarray(subsets.numbered.first_row),
                jax.tree.map(jnp.asarray, subsets.law),
                None if self.calibration is None or subsets.sums is None else jnp.asarray(subsets.sums.sums),
            )
            self.target = jax.tree.map(jnp.asarray, problem.target)
            self.first = jnp.asarray(np.asarray(U.indices))

    @classmethod
    def suits(cls, problem: Problem, chains: int) -> bool:
        """Return whether windows are equally likely, so that they are walked without their rows, and there is room."""
        subsets = problem.subsets
        if not isinstance(subsets, WindowChain) or not isinstance(subsets.move, Window) or not is_playable(problem):
            return False
        if subsets.statistic.dimension or (subsets.calibration is not None and subsets.sums is None):
            return False
        sums = 0 if subsets.sums is None else subsets.sums.sums.nbytes
        held = count_bytes(subsets.units.rows, problem.dtype) + sums
        return max(held, STEP_BYTES * subsets.units.length * chains) < ROWS_SHARE * device_memory()

    @classmethod
    def choose_page(cls, problem: Problem, chains: int) -> int:
        """Return the proposals per page: fewer if chains are many or windows long."""
        subsets, d = get_window_chain(problem), problem.target.model.dimension
        known = 0 if subsets.calibration is None else 8 * (4 * d * d + 2 * subsets.calibration.width)
        move_bytes = 32 * d + 64 + (known + 64) / subsets.move.every
        return count_device_proposals(subsets, move_bytes, subsets.units.length, chains)

    def score(self, theta: Float[np.ndarray, "chains d"]) -> Terms:
        """Return the log target of every chain at its θ, given its first window."""
        with jax.enable_x64(True):
            span, given = self._locate(self.first[:, 0])
            return score_windows(jnp.asarray(theta), span, given, self.series, self.target, length=self.length)

    def put(self, state: State, indices: Array) -> Place:
        """Put chains at these windows; rows are read where they lie."""
        self.begun = jnp.copy(indices)  # windows before the current page
        return Place(state, indices)

    @property
    def indices(self) -> Array:
        """The windows before the page of the next move: the page is walked again from there."""
        return self.begun if self.moves % self.problem.page else self.place.indices

    def _locate(self, x: Array) -> tuple[Span, Given | None]:
        """Return the spans of windows, and what the target needs of them besides their rows."""
        span, sums = locate_windows(x, self.series, n=self.n, lead_in=self.length - self.n)
        return span, find_given(self.calibration, sums, self.problem.dtype)

    def _draw_page(self, number: int) -> WindowPage:
        self.begun, problem = jnp.copy(self.place.indices), self.problem
        walked, noise = draw_windows(
            *self.keys, number, self.begun[:, 0], self.series.law, kernel=problem.kernel, moves=problem.page,
            transitions=problem.page // self.every, d=problem.target.model.dimension, dtype=problem.dtype,
        )  # fmt: skip
        return WindowPage(walked, *self._locate(walked.x), noise)

    def _play(self, page: WindowPage, at: int, end: int) -> Played:
        from lwa.engine.device import pallas_windows  # Pallas: nothing else needs it

        kernel, series, target = self.problem.kernel, self.series, self.target
        options = {"start": at, "stop": end, "series": series, "target": target, "kernel": kernel}
        options |= {"every": self.every, "length": self.length}
        played = self.play_by_pallas(
            lambda: pallas_windows.why_not_in_streams(self.place, page, series, target, kernel),
            lambda interpret: pallas_windows.play_in_streams(self.place, page, interpret=interpret, **options),
        )
        if played is not None:
            return played
        self.place, self.played = play_windows(self.place, self.room, page, gain=self._gain(at), **options)
        return self.played


def get_window_chain(problem: Problem) -> WindowChain:
    """Return the chain of windows."""
    assert isinstance(problem.subsets, WindowChain)
    return problem.subsets


def require_recursion(problem: Problem) -> None:
    """Raise `ModelError` if the recursion differs from the model's log-likelihood on the first rows."""
    model, units = problem.target.model, get_window_chain(problem).units
    if model.recursion is None:
        return
    first = units.parts.take(units.rows, np.arange(min(ROWS_COMPARED, int(units.parts.sizes[0]))))
    rows = jax.tree.map(to_float64, first)

    def terms(theta: PyTree, rows: PyTree) -> Array:  # a model of units returns their sums: here of one row
        one = jax.tree.map(lambda leaf: leaf[None], rows)
        each = jnp.eye(len(jax.tree.leaves(rows)[0]), dtype=bool)
        return jax.vmap(lambda scored: model.log_likelihood(theta, Stretch(one, scored[None]))[0])(each)

    require_agreement(model.recursion, terms, model.init, rows)


def find_given(calibration: Calibration | None, sums: Array | None, dtype: Precision) -> Given | None:
    """Return what the target needs of windows with these sums, whose last entries are curvatures."""
    if calibration is None or sums is None:
        return None
    return as_held(calibration.given(sums[..., : calibration.width]), dtype)


def read_window(rows: PyTree, span: Span, length: int) -> Stretch:
    """Read one window like `Units.take`, its slot on the last axis. The last row fills up: nothing depends on it."""
    steps = jnp.arange(length)
    before, end = span.begin - span.first, span.stop - span.first
    at = span.first + jnp.minimum(steps, end - 1)
    scored = ((steps >= before) & (steps < end))[:, None]
    return Stretch._make((jax.tree.map(lambda leaf: leaf[at][..., None], rows), scored))


def evaluate_window(
    theta: Array, span: Span, given: Given | None, *, series: Series, target: Target, length: int
) -> Terms:
    """Return the log target of one chain, given its window."""
    return drop_rows(target.evaluate(theta, read_window(series.rows, span, length), given))


@partial(jax.jit, static_argnames=("length",))
def score_windows(
    theta: Array, span: Span, given: Given | None, series: Series, target: Target, *, length: int
) -> Terms:
    """Return the log target of each chain."""
    return jax.vmap(partial(evaluate_window, series=series, target=target, length=length))(theta, span, given)


@partial(jax.jit, static_argnames=("kernel", "every", "length"), donate_argnames=("place", "played"))
def play_windows(
    place: Place, played: Played, page: WindowPage, *, gain: Array, start: int, stop: int, series: Series,
    target: Target, kernel: Kernel, every: int, length: int
) -> tuple[Place, Played]:  # fmt: skip
    """Play the moves `start` to `stop` of a page for all chains, as an ordinary program."""

    def one_chain(place: Place, played: Played, page: WindowPage) -> tuple[Place, Played]:
        def renew(t: Array, place: Place) -> tuple[Place, Array]:
            return place._replace(indices=page.walked.x[t][None]), page.walked.accepted[t]

        def score(t: Array, place: Place, theta: Array) -> Terms:
            span, given = jax.tree.map(lambda leaf: leaf[t], (page.span, page.given))
            return evaluate_window(theta, span, given, series=series, target=target, length=length)

        return play_page(
            place, played, noise=page.noise, gain=gain, start=start, stop=stop, kernel=kernel, every=every, renew=renew,
            score=score,
        )  # fmt: skip

    return jax.vmap(one_chain)(place, played, page)
