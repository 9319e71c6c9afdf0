"""A cohort whose rows, subsets and θ stay on the device: thousands of chains, a page of moves at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, PyTree
from numpy.typing import NDArray

from lwa.algorithm import Draw, State, Subset, assess
from lwa.backend import xla
from lwa.engine.cohort import CohortState, Moves, adapt
from lwa.engine.device.resident import draw_page_noise, make_chain_keys
from lwa.engine.device.xla_loop import Place, Played
from lwa.engine.problem import Problem
from lwa.errors import out_of_memory, warn
from lwa.kernels.kernel import MoveInfo, Noise, steering_gain
from lwa.subsets.chain import Chain
from lwa.subsets.tape import ADAPT_EVERY, MOST_MOVES, Written
from lwa.targets.target import Terms

PAGE_SHARE = 1 / 16
"""The share of the device's memory that a page may take."""
PAGE_READS = 2**34
"""Rows that all chains may read per page, between two looks at the clock: a third of a second on an H200."""
ROWS_SHARE = 0.25
"""The share of memory that all rows, or the subsets of all chains, may take: while they are made, they exist twice."""

IN_REGISTERS = "in registers"


def device_memory() -> float:
    """Return the bytes that the device has; infinite if it does not say."""
    known = jax.local_devices()[0].memory_stats()
    return float((known or {}).get("bytes_limit", np.inf))


def is_playable(problem: Problem) -> bool:
    """Return whether there is a device that can run the model and draw the kernel's noise."""
    if not xla.accelerated() or problem.in_python or problem.refresh_steps != 1:
        return False
    d = problem.target.model.dimension

    def draw(keys: Array) -> Noise:
        return draw_page_noise(keys, problem.kernel, 2, d, problem.dtype)

    try:
        with jax.enable_x64(True):
            jax.eval_shape(draw, jax.random.split(jax.random.key(0), 1))
    except (AttributeError, TypeError, jax.errors.JAXTypeError):  # it needs what only NumPy has
        return False
    return True


def count_device_proposals(subsets: Chain, move_bytes: float, reads: int, chains: int) -> int:
    """Return the proposals per page from the bytes and the rows read per move; a page has a power of two moves."""
    room = min(min(device_memory(), 2.0**37) * PAGE_SHARE / move_bytes, PAGE_READS / reads) / chains
    moves = int(np.clip(1 << (max(1, int(room)).bit_length() - 1), ADAPT_EVERY, MOST_MOVES))
    return max(1, moves // subsets.move.every)


class DeviceCohort(ABC):
    """Some chains of a run, all on the device."""

    on_device: ClassVar[bool] = True
    place: Place
    first: Int[Array, "chains n"]  # the first subset of each chain

    def __init__(self, problem: Problem, chains: Sequence[int]) -> None:
        self.problem, self.chains = problem, chains
        self.moves, self.frozen = 0, problem.tune == 0
        self.every = problem.subsets.move.every
        self.played: Played | None = None  # the moves of a page, for adaptation
        self.page: tuple[int, PyTree] = (-1, None)
        self.reason = ""  # why no Pallas program plays chains, once it is known
        with jax.enable_x64(True):
            self.keys = make_chain_keys(problem.seed, chains)

    @classmethod
    @abstractmethod
    def suits(cls, problem: Problem, chains: int) -> bool:
        """Return whether subsets can be moved on the device, and whether there is room."""

    @classmethod
    @abstractmethod
    def choose_page(cls, problem: Problem, chains: int) -> int:
        """Return the proposals per page: fewer if chains are many."""

    @abstractmethod
    def score(self, theta: Float[np.ndarray, "chains d"]) -> Terms:
        """Return the log target of every chain at its θ, given its first subset."""

    @abstractmethod
    def put(self, state: State, indices: Array) -> Place:
        """Put chains at these subsets; `state` has no rows yet."""

    @abstractmethod
    def _draw_page(self, number: int) -> PyTree:
        """Draw the page of that number."""

    @abstractmethod
    def _play(self, page: PyTree, at: int, end: int) -> Played:
        """Play the moves `at` to `end` of a page."""

    @property
    @abstractmethod
    def indices(self) -> Array:
        """The subsets from which a run goes on from here."""

    def begin(self, theta: Float[np.ndarray, "chains d"]) -> None:
        """Put every chain at its start."""
        with jax.enable_x64(True):
            here = jnp.asarray(theta)
            tuning = jax.vmap(partial(self.problem.kernel.init, reference=self.problem.reference))(here)
            place = self.put(State(here, self.score(theta), [], tuning), self.first)
            self.place = jax.tree.map(jnp.copy, place)  # programs reuse the memory, so no two leaves may share it

    @property
    def state(self) -> State:
        """θ and what the kernel has learnt."""
        return self.place.state

    def run(self, stop: int) -> Moves:
        """Play up to the `stop`-th move of the run."""
        done: list[Moves] = []
        with jax.enable_x64(True):
            while self.moves < stop:
                at = self.moves % self.problem.page
                end = min(stop - self.moves + at, self.problem.page)
                if not self.frozen:
                    end = min(end, at - at % self._adapt_every + self._adapt_every)
                played = self._play(self._page(self.moves // self.problem.page), at, end)
                done.append(collect_moves(played, at, end - at, self.every))
                self.moves += end - at
                if not self.frozen and end % self._adapt_every == 0:
                    self._adapt(played.draws.theta, end)
            return done[0] if len(done) == 1 else jax.tree.map(lambda *parts: jnp.concatenate(parts), *done)

    def _page(self, number: int) -> PyTree:
        """Return the page of that number, drawn once."""
        if self.page[0] != number:
            self.page = number, self._draw_page(number)
        return self.page[1]

    def play_by_pallas(self, why_not: Callable[[], str], play: Callable[[bool], tuple[Place, Played]]) -> Played | None:
        """Play moves by a Pallas program, which keeps what a chain needs in registers; return None if it cannot.

        `why_not` returns the reason, without compiling anything. The argument of `play` is whether to interpret.
        """
        if not self.frozen:
            return None
        self.reason = self.reason or why_not() or IN_REGISTERS
        if self.reason != IN_REGISTERS:
            return None
        try:
            self.place, played = play(jax.default_backend() == "cpu")  # only tests play on a CPU
        except Exception as error:  # its compiler may fail although XLA's does not
            if out_of_memory(error) or jax.tree.leaves(self.place)[0].is_deleted():
                raise
            self.reason = f"{type(error).__name__}: {str(error)[:200]}"
            warn(f"The fast program for chains did not compile, and an ordinary one replaces it. {self.reason}")
            return None
        return played

    def _gain(self, at: int) -> Array:
        """Return how strongly each move of the current page steers the kernel."""
        page = self.problem.page
        gain = np.zeros(page) if self.frozen else steering_gain(self.moves - at + np.arange(page))
        return jnp.asarray(gain.astype(self.problem.dtype))

    @property
    def room(self) -> Played:
        """Room for the draws of a page."""
        return self.played or make_room(self.place, self.problem)

    @property
    def _adapt_every(self) -> int:
        return min(ADAPT_EVERY, self.problem.page)

    def _adapt(self, theta: Array, end: int) -> None:
        path = jax.lax.dynamic_slice_in_dim(theta, end - self._adapt_every, self._adapt_every, 1)
        tuning = adapt(self.state.tuning, jnp.swapaxes(path, 0, 1), float(self.moves), self.problem.kernel)
        self.place = self.place._replace(state=self.state._replace(tuning=tuning))

    def freeze(self) -> None:
        """End tune: the kernel learns nothing from here on."""
        self.frozen = True

    def take_snapshot(self) -> CohortState:
        """Return what the next moves depend on, without rows: their indices are enough to find them."""
        with jax.enable_x64(True):
            state = jax.tree.map(np.array, self.state._replace(rows=[]))
            U: Subset = jax.tree.map(np.array, as_subset(self.indices))
            at, every = self.moves % self.problem.page, self._adapt_every
            seen = 0 if self.frozen or self.played is None else at % every
            recent = np.zeros((0, *state.theta.shape), state.theta.dtype)
            if seen and self.played is not None:
                recent = np.swapaxes(np.array(self.played.draws.theta[:, at - seen : at]), 0, 1)
            return CohortState(self.moves, state, Written(U, None, [], 0), recent)

    def resume_from(self, held: CohortState) -> None:
        """Continue from a snapshot; pages are drawn again."""
        with jax.enable_x64(True):
            self.moves, self.page = held.moves, (-1, None)
            state = jax.tree.map(jnp.asarray, held.state._replace(rows=[]))
            self.place = self.put(state, jnp.array(held.written.U.indices, self.first.dtype))
            at, seen = held.moves % self.problem.page, len(held.recent)
            if seen:
                self.played = make_room(self.place, self.problem)
                theta = self.played.draws.theta.at[:, at - seen : at].set(np.swapaxes(held.recent, 0, 1))
                self.played = self.played._replace(draws=self.played.draws._replace(theta=theta))

    def get_stored_page(self) -> None:
        """Return nothing: no page is written ahead."""
        return None

    def stop_at(self, state: State, moves: int) -> None:
        """Set the state in which tune ended; the cohort does not move again."""
        self.place, self.moves = self.place._replace(state=state), moves

    def find_last_invalid(self) -> NDArray[Any] | None:
        """Return nothing: proposals are not kept on the device."""
        return None

    def checkpoint(self) -> CohortState | None:
        """Return None: programs reuse the memory of the state."""
        return None

    def wait_for_compilation(self) -> None:  # noqa: B027
        """Return at once: programs are compiled when they are first used."""

    def close(self) -> None:  # noqa: B027
        """Do nothing: nothing is open."""


def as_subset(indices: Array) -> Subset:
    """Return subsets without statistics."""
    return jax.vmap(assess)(indices, jnp.zeros((len(indices), 0, indices.shape[-1])))


def make_room(place: Place, problem: Problem) -> Played:
    """Return room for the draws of a page."""
    shape, d = (len(place.indices), problem.page), place.state.theta.shape[-1]
    extra = {name: jnp.zeros(shape, zero.dtype) for name, zero in problem.kernel.extra().items()}
    flags, counts = (partial(jnp.zeros, shape, kind) for kind in (bool, jnp.int32))
    info = MoveInfo(jnp.zeros(shape), flags(), flags(), counts(), extra)
    draws = Draw(jnp.zeros((*shape, d), place.state.theta.dtype), jnp.zeros(shape), info)
    return Played(draws, jnp.zeros((shape[0], problem.page // problem.subsets.move.every), bool))


@partial(jax.jit, static_argnames=("length", "every"))
def collect_moves(played: Played, at: int, length: int, every: int) -> Moves:
    """Return `length` moves of a page, as cohorts report them, `(moves, chains, ...)`."""

    def cut(leaf: Array) -> Any:
        return jnp.swapaxes(jax.lax.dynamic_slice_in_dim(leaf, at, length, 1), 0, 1)

    moves = played.draws.theta.shape[1]
    changed = jnp.repeat(played.refreshed, every, axis=1) & (jnp.arange(moves) % every == 0)
    theta, log_density, info = jax.tree.map(cut, played.draws)
    ends = jnp.ones((length, len(changed)), bool)
    found = {name: getattr(info, name) for name in ("accepted", "invalid", "evaluations", "extra")}
    found |= {"theta": theta, "log_density": log_density, "acceptance": info.acceptance.astype(jnp.float64)}
    found |= {"refreshed": cut(changed), "ends": ends, "distance": jnp.zeros(ends.shape)}  # subsets have no statistics
    return Moves(**found)
