"""Tape ahead, θ behind, block by block.

A cohort is a fixed number of chains in one compiled program. Its `TapeWriter` runs the U chain a page ahead, on a
thread of its own, beside the data; its θ chain plays the pages. Cohorts run side by side, one a core. Where the model
runs in Python, all of it happens on the caller's thread instead, one after the other.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.algorithm import Draw, State, Subset, Tape, play
from lwa.backend.random import Purpose, generator
from lwa.engine.host_loop import evaluate_on_host, play_on_host
from lwa.kernels.kernel import Kernel, MetropolisKernel, MoveInfo, steering_gain
from lwa.rows import Rows
from lwa.rows.slots import to_columns
from lwa.subsets.chain import Chain
from lwa.subsets.tape import Entries, TapeWriter, Written
from lwa.targets.reference import Reference
from lwa.targets.target import Given, Target, Terms, as_held

ADAPT_EVERY = 32
"""Moves between two looks at the path during tune; a power of two, as pages are, so that none straddles a page."""
MOST_MOVES = 1024
PAGE_BYTES = 4 * 2**20
"""A page holds at most so many moves, and so many bytes a chain."""
PAGES_BYTES = 64 * PAGE_BYTES
"""Pages of all chains hold at most so many, as long as adaptation has a page to look at."""


def page_length(entry_bytes: int, chains: int) -> int:
    """Moves a page: a power of two that depends on the problem alone, never on the machine, since keys count pages."""

    def within(room: int) -> int:
        return 1 << (max(1, room // max(1, entry_bytes)).bit_length() - 1)

    return min(MOST_MOVES, within(PAGE_BYTES), max(ADAPT_EVERY, within(PAGES_BYTES // chains)))


@dataclass(frozen=True)
class Problem:
    """Everything that chains share."""

    subsets: Chain
    target: Target
    kernel: Kernel
    refresh_steps: int  # L
    tune: int  # moves
    dtype: Any  # the working precision of θ and of the rows
    full: Rows  # all rows, or all units of them
    reads: int  # rows that the log-likelihood reads of one U
    reference: Reference | None = None

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.subsets.seed

    @property
    def page(self) -> int:
        """Moves a page."""
        return self.subsets.moves

    @property
    def host(self) -> bool:
        """Whether the model runs in Python."""
        return self.target.model.host

    @property
    def play(self) -> Callable[..., tuple[State, Draw]]:
        """The loop over θ's moves."""
        return play_on_host if self.host else play


class Moves(NamedTuple):
    """What a cohort did in a stretch of θ moves; arrays are `(moves, chains, ...)`."""

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


class Held(NamedTuple):
    """A cohort between two moves: all that its next ones depend on, as NumPy's arrays."""

    moves: int
    state: State
    written: Written  # the tape before the page that holds the next move
    recent: NDArray[Any]  # θ of the moves since adaptation last looked


class Cohort:
    """Some chains of a run, side by side: their tape, their θ and where they are on it."""

    def __init__(
        self,
        problem: Problem,
        chains: Sequence[int],
        U: Subset,
        state: State,
        warming: Sequence[Future[None]] = (),
        *,
        holds: bool = False,
        begins: bool = True,
    ) -> None:
        """`holds` is whether it will be asked what it holds, `begins` whether its tape starts at U."""
        self.problem, self.chains, self.state, self.warming, self.holds = problem, chains, state, warming, holds
        with jax.enable_x64(True):
            self.draws = blank_page(problem, state, problem.page)
        self.moves = 0
        self.frozen = problem.tune == 0
        self.ahead = ThreadPoolExecutor(1, thread_name_prefix="lwa-tape")
        self.writer = TapeWriter(problem.subsets, chains, U, problem.refresh_steps, problem.dtype)
        self.entries: Entries
        self.tape: Tape
        self.written = 0
        self.begun: Written | None = None  # the tape before the page at hand
        self.ended: Written | None = None  # and after it
        self.coming: Callable[[], tuple[Entries, Any]] | None = None
        if begins:
            self.coming = self._write_ahead()

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
                self.state, self.draws = self.problem.play(
                    self.state, self.draws, self.tape, at, end, self.problem.target, self.problem.kernel
                )
                done.append(self._collect(at, end))
                self.moves += end - at
                if not self.frozen and end % self._adapt_every == 0:
                    self._adapt(end)
        return jax.tree.map(lambda *parts: np.concatenate(parts), *done)

    def freeze(self) -> None:
        """End of tune: nothing is learnt from here on."""
        self.frozen = True
        if self.moves % self.problem.page:  # the page at hand was cut while adaptation still listened
            with jax.enable_x64(True):
                self.tape = self.tape._replace(gain=jnp.zeros_like(self.tape.gain))

    def close(self) -> None:
        """Stop writing ahead."""
        self.ahead.shutdown(wait=True, cancel_futures=True)

    @property
    def _adapt_every(self) -> int:
        return min(ADAPT_EVERY, self.problem.page)

    def held(self) -> Held:
        """What it holds now, copied."""
        at, every = self.moves % self.problem.page, self._adapt_every
        written = self.begun if at else self.ended
        assert written is not None
        recent = np.array(self.draws.theta[at - at % every : at])
        return Held(self.moves, jax.tree.map(np.array, self.state), written, recent)

    def page_in_store(self) -> Any:
        """A page of the tape that it has in store, to see how such are built."""
        assert self.coming is not None
        self.coming()
        return self.writer.store

    def stand(self, state: State, moves: int) -> None:
        """Be where tune ended, not to move again."""
        self.close()
        self.state, self.moves = state, moves

    def last_invalid(self) -> NDArray[Any] | None:
        """A θ′ of the page at hand whose log target was NaN or +inf; θ itself where a gradient led from there."""
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

    def go_on_from(self, held: Held) -> None:
        """Take up where another process was; the page at hand is written again."""
        page, at = self.problem.page, held.moves % self.problem.page
        if self.coming is not None and not self.problem.host:
            self.coming()  # its writer must not run while it is set back
        with jax.enable_x64(True):
            self.writer.go_back(held.written)
            self.moves, self.written = held.moves - at, held.moves // page
            self.state = held.state if self.problem.host else jax.tree.map(unshared, held.state)
            self.coming = self._write_ahead()
            if at:
                self._next_page()
                theta = np.array(self.draws.theta)
                theta[at - len(held.recent) : at] = held.recent
                self.draws = self.draws._replace(theta=theta if self.problem.host else jax.device_put(theta))
        self.moves = held.moves

    def _write_ahead(self) -> Callable[[], tuple[Entries, Any]]:
        """The next page of U and of θ's randomness: on a thread of its own, or here, once it is asked for."""
        page, self.written = self.written, self.written + 1
        self.ended = self.writer.held() if self.holds else None

        def write() -> tuple[Entries, Any]:
            noise = page_noise(self.problem, Purpose.THETA, self.chains, page, self.problem.page)
            return self.writer(), noise

        return write if self.problem.host else self.ahead.submit(write).result

    def compiled(self) -> None:
        """Wait for what is compiled beside."""
        wait(self.warming)

    def _next_page(self) -> None:
        self.compiled()
        assert self.coming is not None
        self.entries, noise = self.coming()
        self.begun, self.coming = self.ended, self._write_ahead()
        gain = np.zeros(self.problem.page) if self.frozen else steering_gain(self.moves + np.arange(self.problem.page))
        gain = np.broadcast_to(gain.astype(self.problem.dtype)[:, None], self.entries.ends.shape)
        u = self.entries
        slots, rows, given, counts, noise = jax.device_put((u.slots, u.rows, u.given, u.counts, noise))
        self.tape = Tape(slots, rows, noise, jnp.asarray(gain), given, counts)

    def _adapt(self, end: int) -> None:
        path = self.draws.theta[end - self._adapt_every : end]
        tuning = adapt(self.state.tuning, path, float(self.moves), self.problem.kernel)
        self.state = self.state._replace(tuning=tuning)

    def _collect(self, at: int, end: int) -> Moves:
        theta, log_density, info = jax.tree.map(lambda page: np.asarray(page)[at:end].copy(), self.draws)
        u = self.entries
        return Moves(
            theta,
            log_density,
            info.acceptance,
            info.accepted,
            info.invalid,
            u.refreshed[at:end],
            u.ends[at:end],
            u.distance[at:end],
            info.evaluations,
            info.extra,
        )


def taken_up(problem: Problem, chains: Sequence[int], held: Held, *, frozen: bool) -> Cohort:
    """A cohort as it was in another process."""
    cohort = Cohort(problem, chains, held.written.U, held.state, holds=True, begins=False)
    cohort.frozen = frozen
    cohort.go_on_from(held)
    return cohort


def warm_up(problem: Problem, chains: int) -> None:
    """Compile the θ chain, by a page without a move, while the run is still being prepared."""
    with jax.enable_x64(True):
        subsets, page, d = problem.subsets, problem.page, problem.target.model.dimension

        def zeros(one: Any, shape: tuple[int, ...]) -> Any:
            return jax.tree.map(lambda leaf: np.zeros((*shape, *leaf.shape), leaf.dtype), one)

        def rows(count: int) -> Any:
            return to_columns(subsets.rows.take(np.zeros(count, np.int64)), problem.dtype)

        k = subsets.move.replaced(subsets.n)
        given = None if subsets.calibration is None else as_held(subsets.calibration.blank(), problem.dtype)
        weighed = subsets.leverage is not None
        theta = np.zeros((chains, d), problem.dtype)
        counts = np.zeros((chains, subsets.n)) if weighed else None
        state = first_state(problem, zeros(rows(subsets.n), (chains,)), theta, zeros(given, (chains,)), counts)
        tape = Tape(
            np.zeros((page, chains, k), np.int32),
            zeros(rows(k), (page, chains)),
            page_noise(problem, Purpose.WARM_UP, range(chains), 0, page),
            np.zeros((page, chains), problem.dtype),
            zeros(given, (page, chains)),
            np.zeros((page, chains, k)) if weighed else None,
        )
        tape = jax.device_put(tape)
        if problem.tune:
            path = jax.device_put(np.zeros((min(ADAPT_EVERY, page), chains, d), problem.dtype))
            adapt(state.tuning, path, 1.0, problem.kernel)
        play(state, blank_page(problem, state, page), tape, 0, 0, problem.target, problem.kernel)


def first_state(problem: Problem, rows: Any, theta: Any, given: Given | None, counts: Any) -> State:
    """Every chain at its start, with its subset's rows on the device, or as NumPy's arrays where Python reads them."""
    if problem.host:
        rows, theta, counts = jax.tree.map(np.array, (rows, theta, counts))  # `play_on_host` writes on them
        tuning = jax.vmap(partial(problem.kernel.init, reference=problem.reference))(theta)
        return State(theta, evaluate(problem.target, theta, rows, given, counts), rows, tuning, counts)
    rows, theta, given, counts = jax.device_put((rows, theta, as_held(given, problem.dtype), counts))
    tuning = jax.vmap(partial(problem.kernel.init, reference=problem.reference))(theta)
    state = State(theta, evaluate(problem.target, theta, rows, given, counts), rows, tuning, counts)
    return jax.tree.map(unshared, state)  # `play` takes the memory over, so no two leaves may share it


def unshared(leaf: Array) -> Array:
    """A copy on the device."""
    return jax.device_put(np.array(leaf)) if jax.default_backend() == "cpu" else jnp.copy(leaf)


def blank_page(problem: Problem, state: State, moves: int) -> Draw:
    """Room for the draws of so many moves. NumPy's zeros: those of JAX are a program to compile for every shape."""
    shape = (moves, len(state.theta))
    extra = {name: np.zeros(shape, zero.dtype) for name, zero in problem.kernel.extra().items()}
    info = MoveInfo(np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, np.int32), extra)
    page = Draw(np.zeros((moves, *state.theta.shape), problem.dtype), np.zeros(shape), info)
    return page if problem.host else jax.device_put(page)


def evaluate(target: Target, theta: Any, rows: Any, given: Given | None = None, counts: Any = None) -> Terms:
    """The log target of each chain at its θ given its own rows."""
    on = evaluate_on_host if target.model.host else evaluate_on_device
    return on(target, theta, rows, given, counts)


@jax.jit
def evaluate_on_device(target: Target, theta: Array, rows: Any, given: Given | None, counts: Array | None) -> Terms:
    """All chains in one program."""
    return jax.vmap(target.evaluate)(theta, rows, given, counts)


def page_noise(problem: Problem, purpose: Purpose, names: Sequence[int], page: int, moves: int) -> Any:
    """The randomness of a page, `(moves, chains, ...)`. NumPy's generators need no compilation."""
    d = problem.target.model.dimension
    drawn = [
        problem.kernel.noise(generator(problem.seed, purpose, name, page), moves, d, problem.dtype) for name in names
    ]
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *drawn)


@partial(jax.jit, static_argnames=("kernel",))
def adapt(tuning: Any, path: Array, moves: Array, kernel: Kernel) -> Any:
    """Each chain learns from its own path."""
    return jax.vmap(kernel.adapt, in_axes=(0, 1, None))(tuning, path, moves)
