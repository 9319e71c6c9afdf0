"""A cohort: a fixed number of chains that one compiled program moves together.

A cohort of this process writes its tape ahead, and θ follows. Its `TapeWriter` runs the chain of subsets one page ahead
on its own thread; its θ chains play the pages. Cohorts run in parallel, one per core. If the model runs in Python,
everything happens on the caller's thread instead, one step after the other.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree
from numpy.typing import NDArray

from lwa.algorithm import Draw, State, Subset, Tape, play
from lwa.backend import xla
from lwa.backend.random import Purpose, generator
from lwa.engine.problem import Problem, evaluate
from lwa.kernels.kernel import AnyArray, Kernel, MetropolisKernel, MoveInfo, Noise, Tuning, steering_gain
from lwa.rows.slots import Columns, to_columns
from lwa.subsets.tape import ADAPT_EVERY, Entries, TapeWriter, Written
from lwa.targets.target import Given, Terms, as_held

LARGEST_COHORT = 16
"""Chains in one program: a larger batch is no faster on a CPU core, and would leave fewer programs for other cores."""
LARGEST_COHORT_OF_WINDOWS = 64
"""A recursion runs step by step for all chains of a program at once, so it pays if more of them share its loop."""


def group_chains(chains: int, *, ordered: bool) -> list[list[int]]:
    """Return the chains of each cohort: at least two cohorts of one size; extra chains fill up the last."""
    if xla.accelerated():
        return [list(range(chains))]
    size = min(-(-chains // 2), LARGEST_COHORT_OF_WINDOWS if ordered else LARGEST_COHORT)
    return [list(range(first, first + size)) for first in range(0, chains, size)]


class Moves(NamedTuple):
    """What a cohort did in some θ moves; arrays are `(moves, chains, ...)`."""

    theta: NDArray[Any]
    log_density: NDArray[np.float64]
    acceptance: NDArray[np.float64]
    accepted: NDArray[np.bool_]
    invalid: NDArray[np.bool_]
    refreshed: NDArray[np.bool_]
    ends: NDArray[np.bool_]
    distance: NDArray[np.float64]
    evaluations: NDArray[np.int32]
    extra: dict[str, NDArray[Any]]


class CohortState(NamedTuple):
    """A cohort between two moves: everything that its next moves depend on, as NumPy arrays."""

    moves: int
    state: State
    written: Written  # the tape before the page that holds the next move
    recent: NDArray[Any]  # θ of the moves since the last adaptation


class Cohort(Protocol):
    """Some chains of a run that move together: in this process, on a worker or on a device."""

    problem: Problem
    chains: Sequence[int]
    on_device: ClassVar[bool]  # whether moves stay on a device, whose programs are compiled per length of a block

    @property
    def moves(self) -> int:
        """Moves played so far."""

    @property
    def state(self) -> State:
        """θ and what the kernel has learnt."""

    def run(self, stop: int) -> "Moves":
        """Play up to the `stop`-th move of the run."""

    def freeze(self) -> None:
        """End tune: the kernel learns nothing from here on."""

    def take_snapshot(self) -> "CohortState":
        """Return what the next moves depend on."""

    def resume_from(self, held: "CohortState") -> None:
        """Continue from a snapshot, which may be another process's."""

    def checkpoint(self) -> "CohortState | None":
        """Return the snapshot to resume from if a block fails; None if there is none."""

    def get_stored_page(self) -> PyTree:
        """Return a page as tapes store it, whose shapes and types others need; None if nothing is written ahead."""

    def stop_at(self, state: State, moves: int) -> None:
        """Set the state in which tune ended; the cohort does not move again."""

    def find_last_invalid(self) -> NDArray[Any] | None:
        """Return a recent θ′ whose log target was NaN or +inf, if it is known."""

    def wait_for_compilation(self) -> None:
        """Wait until the programs are compiled that other threads compile."""

    def close(self) -> None:
        """Stop all threads that work ahead."""


class LocalCohort:
    """Some chains of a run in this process: their tape, their θ and their place on the tape."""

    on_device: ClassVar[bool] = False

    def __init__(
        self, problem: Problem, chains: Sequence[int], U: Subset, state: State, warming: Sequence[Future[None]] = (), *,
        holds: bool = False, begins: bool = True
    ) -> None:  # fmt: skip
        """`holds` is whether snapshots will be taken, `begins` whether the tape starts at U."""
        self.problem, self.chains, self.state, self.warming, self.holds = problem, chains, state, warming, holds
        with jax.enable_x64(True):
            self.draws = make_blank_page(problem, state, problem.page)
        self.moves, self.written, self.frozen = 0, 0, problem.tune == 0
        self.ahead = ThreadPoolExecutor(1, thread_name_prefix="lwa-tape")
        self.writer = TapeWriter(problem.subsets, chains, U, problem.refresh_steps, problem.dtype)
        self.entries: Entries
        self.tape: Tape
        self.begun: Written | None = None  # the tape before the current page
        self.ended: Written | None = None  # the tape after it
        self.coming: Callable[[], tuple[Entries, Noise]] | None = self._write_ahead() if begins else None

    def run(self, stop: int) -> Moves:
        """Play up to the `stop`-th move of the run."""
        done: list[Moves] = []
        with jax.enable_x64(True):
            while self.moves < stop:
                at = self.moves % self.problem.page
                if at == 0:
                    self._next_page()
                end = min(stop - self.moves + at, self.problem.page)
                if not self.frozen:
                    end = min(end, at - at % self._adapt_every + self._adapt_every)
                options = {"target": self.problem.target, "kernel": self.problem.kernel}
                self.state, self.draws = self.problem.play(self.state, self.draws, self.tape, at, end, **options)
                done.append(self._collect(at, end))
                self.moves += end - at
                if not self.frozen and end % self._adapt_every == 0:
                    self._adapt(end)
        return jax.tree.map(lambda *parts: np.concatenate(parts), *done)

    def freeze(self) -> None:
        """End tune: the kernel learns nothing from here on."""
        self.frozen = True
        if self.moves % self.problem.page:  # the current page was written for adaptation
            with jax.enable_x64(True):
                self.tape = self.tape._replace(gain=jnp.zeros_like(self.tape.gain))

    def close(self) -> None:
        """Stop the thread that writes ahead."""
        self.ahead.shutdown(wait=True, cancel_futures=True)

    @property
    def _adapt_every(self) -> int:
        return min(ADAPT_EVERY, self.problem.page)

    def take_snapshot(self) -> CohortState:
        """Return a copy of what the next moves depend on."""
        at, every = self.moves % self.problem.page, self._adapt_every
        written = self.begun if at else self.ended
        assert written is not None
        recent = np.array(self.draws.theta[at - at % every : at])
        return CohortState(self.moves, jax.tree.map(np.array, self.state), written, recent)

    def get_stored_page(self) -> PyTree:
        """Return a page of the tape as it is stored."""
        assert self.coming is not None
        self.coming()
        return self.writer.store

    def stop_at(self, state: State, moves: int) -> None:
        """Set the state in which tune ended, and stop writing ahead."""
        self.close()
        self.state, self.moves = state, moves

    def find_last_invalid(self) -> NDArray[Any] | None:
        """Return a θ′ of the current page whose log target was NaN or +inf; for kernels with gradients its θ."""
        at = self.moves % self.problem.page or self.problem.page
        invalid = np.asarray(self.draws.info.invalid)[1:at]
        if not invalid.any():
            return None
        move, chain = np.argwhere(invalid)[-1] + (1, 0)
        theta = np.asarray(self.draws.theta)[move - 1, chain]
        if not isinstance(self.problem.kernel, MetropolisKernel):
            return theta
        noise, tuning = jax.tree.map(lambda leaf: leaf[move, chain], self.tape.noise), self.state.tuning
        with jax.enable_x64(True):
            own = jax.tree.map(lambda leaf: leaf[chain], tuning)
            return np.asarray(self.problem.kernel.propose(noise, own, jnp.asarray(theta))[0])

    def resume_from(self, held: CohortState) -> None:
        """Continue from a snapshot; the current page is written again."""
        page, at = self.problem.page, held.moves % self.problem.page
        if self.coming is not None and not self.problem.in_python:
            self.coming()  # the writer must not run while it is set back
        with jax.enable_x64(True):
            self.writer.go_back(held.written)
            self.moves, self.written = held.moves - at, held.moves // page
            self.state = held.state if self.problem.in_python else jax.tree.map(copy_to_device, held.state)
            self.coming = self._write_ahead()
            if at:
                self._next_page()
                theta = np.array(self.draws.theta)
                theta[at - len(held.recent) : at] = held.recent
                self.draws = self.draws._replace(theta=theta if self.problem.in_python else jax.device_put(theta))
        self.moves = held.moves

    def _write_ahead(self) -> Callable[[], tuple[Entries, Noise]]:
        """Write the next page of U and of θ's randomness on the writer's thread; in Python, only when it is called."""
        page, self.written = self.written, self.written + 1
        self.ended = self.writer.held() if self.holds else None

        def write() -> tuple[Entries, Noise]:
            noise = draw_noise_of_page(self.problem, Purpose.THETA, self.chains, page, self.problem.page)
            return self.writer(), noise

        return write if self.problem.in_python else self.ahead.submit(write).result

    def checkpoint(self) -> CohortState | None:
        """Return None: compiled loops reuse the memory of the state."""
        return None

    def wait_for_compilation(self) -> None:
        """Wait until other threads have compiled the programs."""
        wait(self.warming)

    def _next_page(self) -> None:
        self.wait_for_compilation()
        assert self.coming is not None
        self.entries, noise = self.coming()
        self.begun, self.coming = self.ended, self._write_ahead()
        gain = np.zeros(self.problem.page) if self.frozen else steering_gain(self.moves + np.arange(self.problem.page))
        gain = np.broadcast_to(gain.astype(self.problem.dtype)[:, None], self.entries.ends.shape)
        u = self.entries
        slots, rows, given, counts, noise = jax.device_put((u.slots, u.rows, u.given, u.counts, noise))
        self.tape = Tape(slots, rows, noise, jnp.asarray(gain), given=given, counts=counts)

    def _adapt(self, end: int) -> None:
        path = self.draws.theta[end - self._adapt_every : end]
        tuning = adapt(self.state.tuning, path, float(self.moves), self.problem.kernel)
        self.state = self.state._replace(tuning=tuning)

    def _collect(self, at: int, end: int) -> Moves:
        theta, log_density, info = jax.tree.map(lambda page: np.asarray(page)[at:end].copy(), self.draws)
        u = self.entries
        return Moves(
            theta=theta, log_density=log_density, acceptance=info.acceptance, accepted=info.accepted,
            invalid=info.invalid, refreshed=u.refreshed[at:end], ends=u.ends[at:end], distance=u.distance[at:end],
            evaluations=info.evaluations, extra=info.extra,
        )  # fmt: skip


class FindStarts(Protocol):
    """Finds a start for each chain at which `score` is finite."""

    def __call__(self, score: Callable[[NDArray[Any]], Terms], *, chains: Sequence[int]) -> NDArray[Any]:
        """Return θ of these chains, `(chains, d)`."""


def begin_cohort(
    problem: Problem, chains: Sequence[int], U: Subset, find_starts: FindStarts, *, warming: Sequence[Future[None]],
    holds: bool
) -> Cohort:  # fmt: skip
    """Return a cohort with every chain at its start, on a device or here; `holds` if snapshots will be taken."""
    if problem.device_cohort is not None:
        on_device = problem.device_cohort(problem, chains, U)
        on_device.begin(find_starts(on_device.score, chains=chains))
        return on_device
    subsets, dtype = problem.subsets, problem.dtype
    columns, counts = to_columns(subsets.take(U), dtype, axis=1), subsets.counts(U)
    given = as_held(subsets.given(U), dtype)
    theta = find_starts(partial(evaluate, problem.target, rows=columns, given=given, counts=counts), chains=chains)
    with jax.enable_x64(True):
        state = build_first_state(problem, columns, theta, subsets.given(U), counts)
    return LocalCohort(problem, chains, U, state, warming, holds=holds)


def restore_cohort(problem: Problem, chains: Sequence[int], held: CohortState, *, frozen: bool) -> LocalCohort:
    """Return a cohort that continues from a snapshot."""
    cohort = LocalCohort(problem, chains, held.written.U, held.state, holds=True, begins=False)
    cohort.frozen = frozen
    cohort.resume_from(held)
    return cohort


def warm_up_beside(problem: Problem, chains: int) -> Future[None] | None:
    """Compile the program for cohorts of this many chains on another thread; if that fails, the run reports it later.

    A model in Python needs no compilation, and a device has another program.
    """
    if problem.in_python or xla.accelerated():
        return None
    pool = ThreadPoolExecutor(1, thread_name_prefix="lwa-warm-up")
    warming = pool.submit(warm_up, problem, chains)
    pool.shutdown(wait=False)  # its thread ends with its one task
    return warming


def warm_up(problem: Problem, chains: int) -> None:
    """Compile the θ chain by playing a page without a move, while the run is still being prepared."""
    with jax.enable_x64(True):
        subsets, page, d = problem.subsets, problem.page, problem.target.model.dimension

        def zeros[T](one: T, shape: tuple[int, ...]) -> T:
            return jax.tree.map(lambda leaf: np.zeros((*shape, *leaf.shape), leaf.dtype), one)

        held, come = (to_columns(subsets.take_examples(incoming=some), problem.dtype) for some in (False, True))
        k = subsets.replaced
        given = None if subsets.calibration is None else as_held(subsets.calibration.blank(), problem.dtype)
        weighed = subsets.leverage is not None
        theta = np.zeros((chains, d), problem.dtype)
        counts = np.zeros((chains, subsets.n)) if weighed else None
        state = build_first_state(problem, zeros(held, (chains,)), theta, zeros(given, (chains,)), counts)
        noise = draw_noise_of_page(problem, Purpose.WARM_UP, range(chains), 0, page)
        tape = jax.device_put(Tape(
            slots=np.zeros((page, chains, k), np.int32), rows=zeros(come, (page, chains)), noise=noise,
            gain=np.zeros((page, chains), problem.dtype), given=zeros(given, (page, chains)),
            counts=np.zeros((page, chains, k)) if weighed else None,
        ))  # fmt: skip
        if problem.tune:
            path = jax.device_put(np.zeros((min(ADAPT_EVERY, page), chains, d), problem.dtype))
            adapt(state.tuning, path, 1.0, problem.kernel)
        room = make_blank_page(problem, state, page)
        play(state, room, tape, 0, 0, target=problem.target, kernel=problem.kernel)  # called as cohorts do


def build_first_state(
    problem: Problem, rows: Columns, theta: NDArray[Any], given: Given | None, counts: AnyArray | None
) -> State:
    """Return every chain at its start, with its rows on the device, or in NumPy arrays if Python reads them."""
    parts: PyTree = (rows, theta, as_held(given, problem.dtype), counts)
    # `play_on_host` writes on the arrays. `play` reuses the memory of a state, so no two leaves may share it.
    columns, start, known, own = jax.tree.map(np.array, parts) if problem.in_python else jax.device_put(parts)
    tuning = jax.vmap(partial(problem.kernel.init, reference=problem.reference))(start)
    state = State(start, evaluate(problem.target, start, columns, known, own), columns, tuning, own)
    return state if problem.in_python else jax.tree.map(copy_to_device, state)


def copy_to_device(leaf: Array) -> Array:
    """Return a copy on the device."""
    return jax.device_put(np.array(leaf)) if jax.default_backend() == "cpu" else jnp.copy(leaf)


def make_blank_page(problem: Problem, state: State, moves: int) -> Draw:
    """Return room for the draws of some moves: zeros of NumPy, since JAX would compile a program for every shape."""
    shape = (moves, len(state.theta))
    extra = {name: np.zeros(shape, zero.dtype) for name, zero in problem.kernel.extra().items()}
    info = MoveInfo(np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, np.int32), extra)
    page = Draw(np.zeros((moves, *state.theta.shape), problem.dtype), np.zeros(shape), info)
    return page if problem.in_python else jax.device_put(page)


def draw_noise_of_page(problem: Problem, purpose: Purpose, names: Sequence[int], page: int, moves: int) -> Noise:
    """Draw the randomness of a page, `(moves, chains, ...)`, by NumPy, which needs no compilation."""
    generators = [generator(problem.seed, purpose, name, page) for name in names]
    drawn = [problem.kernel.noise(rng, moves, problem.target.model.dimension, problem.dtype) for rng in generators]
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *drawn)


@partial(jax.jit, static_argnames=("kernel",))
def adapt(tuning: Tuning, path: Array, moves: Array, kernel: Kernel) -> Tuning:
    """Let each chain learn from its own path."""
    return jax.vmap(kernel.adapt, in_axes=(0, 1, None))(tuning, path, moves)
