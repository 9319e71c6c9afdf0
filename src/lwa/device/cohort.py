"""A cohort whose rows, subsets and θ stay on the device: thousands of chains, a page of moves at a time."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.algorithm import Draw, State, Subset, assess
from lwa.device.randomness import DeviceGenerator
from lwa.device.resident import Page, bytes_of, chain_keys, draw_page, put_rows
from lwa.device.splitting import Split, split_of
from lwa.device.together import Place, Played, evaluate, play_together
from lwa.errors import LwaWarning, out_of_memory
from lwa.parameters.kernel import Info, steering_gain
from lwa.pipeline import ADAPT_EVERY, MOST_MOVES, Held, Moves, Problem, adapt
from lwa.programs import accelerated
from lwa.subsets.chain import SubsetChain
from lwa.subsets.moves import Swap
from lwa.subsets.tape import Written
from lwa.target import Target, Terms

PAGE_SHARE = 1 / 16
"""Of the device's memory, that a page may take."""
PAGE_READS = 2**34
"""Rows that all chains may read in a page, between two looks at the clock: a third of a second on an H200."""
ROWS_SHARE = 0.25
"""... and that all rows may, and the subsets of all chains: each is held twice while it is made."""


def memory() -> float:
    """Bytes that the device has; without bound where it does not say."""
    told = jax.local_devices()[0].memory_stats()
    return float((told or {}).get("bytes_limit", np.inf))


def suits(problem: Problem, chains: int) -> bool:
    """Whether U is uniform and brings nothing along, so that it can be moved where θ is, and whether there is room."""
    subsets = problem.subsets
    if not accelerated() or problem.host or not isinstance(subsets, SubsetChain) or not isinstance(subsets.move, Swap):
        return False
    if subsets.leverage is not None or subsets.calibration is not None or subsets.statistic.dimension:
        return False
    if not noise_is_drawn(problem):
        return False
    rows = bytes_of(subsets.rows, problem.dtype)
    held = rows / len(subsets.rows) * subsets.n * chains
    return problem.refresh_steps == 1 and max(rows, held) < ROWS_SHARE * memory()


def noise_is_drawn(problem: Problem) -> bool:
    """Whether the kernel's noise can be drawn on the device."""
    d, dtype = problem.target.model.dimension, problem.dtype

    def noise(key: Array) -> Any:
        rng: Any = DeviceGenerator(key)
        return problem.kernel.noise(rng, 2, d, dtype)

    try:
        with jax.enable_x64(True):
            jax.eval_shape(noise, jax.random.key(0))
    except (AttributeError, TypeError, jax.errors.JAXTypeError):  # it asks for what only NumPy has
        return False
    return True


def page_for(problem: Problem, chains: int) -> int:
    """Proposals of U a page, a power of two: fewer where chains are many, and rows come in by the dozen."""
    subsets, d = problem.subsets, problem.target.model.dimension
    each = bytes_of(subsets.rows, problem.dtype) / len(subsets.rows)
    move = 32 * d + 64 + 3 * each * subsets.move.replaced(subsets.n) / subsets.move.every
    room = min(min(memory(), 2.0**37) * PAGE_SHARE / move, PAGE_READS / subsets.n) / chains
    moves = int(np.clip(1 << (max(1, int(room)).bit_length() - 1), ADAPT_EVERY, MOST_MOVES))
    return max(1, moves // subsets.move.every)


class CohortOnDevice:
    """Some chains of a run, all on the device."""

    def __init__(self, problem: Problem, chains: Sequence[int], U: Subset) -> None:
        self.problem, self.chains = problem, chains
        self.moves, self.frozen, self.reason = 0, problem.tune == 0, ""
        self.every = problem.subsets.move.every
        with jax.enable_x64(True):
            self.target = rounded(jax.tree.map(jnp.asarray, problem.target), problem.dtype)
            rows = put_rows(problem.subsets.rows, problem.dtype)
            one = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:1], 0, -1), rows)
            theta = jnp.zeros(problem.target.model.dimension, problem.dtype)
            self.split: Split = split_of(self.target, theta, one)
            self.rows = prepared(self.target, rows, self.split)
            self.keys = chain_keys(problem.seed, chains)
            N = len(jax.tree.leaves(rows)[0])
            self.indices = jnp.asarray(np.asarray(U.indices), jnp.int32 if N < 2**31 else jnp.int64)
        self.place: Place
        self.page: tuple[int, Page] = (-1, None)  # type: ignore[assignment]
        self.played: Played | None = None  # the moves of a page, which adaptation looks back on

    def score(self, theta: NDArray[Any]) -> Terms:
        """The log target of every chain at its θ, given its first subset."""
        with jax.enable_x64(True):
            return scores(jnp.asarray(theta), self.indices, self.rows, self.target, self.split)

    def begin(self, theta: NDArray[Any]) -> None:
        """Every chain at its start."""
        with jax.enable_x64(True):
            here = jnp.asarray(theta)
            tuning = jax.vmap(partial(self.problem.kernel.init, reference=self.problem.reference))(here)
            rows = rows_of(self.indices, self.rows)
            place = Place(State(here, self.score(theta), rows, tuning), self.indices)
            self.place = jax.tree.map(jnp.copy, place)  # programs take the memory over, so no two leaves may share it

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
                page = self._page(self.moves // self.problem.page)
                played = self._play(page, at, end)
                done.append(moves_of(played, at, end - at, self.every))
                self.moves += end - at
                if not self.frozen and end % self._adapt_every == 0:
                    self._adapt(played.draws.theta, end)
            return done[0] if len(done) == 1 else jax.tree.map(lambda *parts: jnp.concatenate(parts), *done)

    def _play(self, page: Page, at: int, end: int) -> Played:
        from lwa.device.registers import play_in_registers, why_not  # Pallas: nothing else needs it

        kernel = self.problem.kernel
        if self.frozen and not self.reason:
            self.reason = why_not(self.place, page, self.target, kernel, self.split) or "in registers"
        if self.frozen and self.reason == "in registers":
            interpret = jax.default_backend() == "cpu"  # where tests have it play
            try:
                self.place, played = play_in_registers(
                    self.place, page, at, end, self.target, kernel, self.split, every=self.every, interpret=interpret
                )
            except Exception as error:  # a compiler that does not take it: XLA's own program does
                if out_of_memory(error) or jax.tree.leaves(self.place)[0].is_deleted():
                    raise
                self.reason = f"{type(error).__name__}: {str(error)[:200]}"
                warnings.warn(
                    f"Subsets could not be held in registers, and an ordinary program plays them. {self.reason}",
                    LwaWarning,
                    stacklevel=2,
                )
            else:
                return played
        first = self.moves - at
        gain = np.zeros(self.problem.page) if self.frozen else steering_gain(first + np.arange(self.problem.page))
        self.place, self.played = play_together(
            self.place, self.played or blank(self.place, self.problem), page,
            jnp.asarray(gain.astype(self.problem.dtype)), at, end, self.target, kernel, self.split, every=self.every,
        )  # fmt: skip
        return self.played

    def _page(self, number: int) -> Page:
        if self.page[0] != number:
            subsets, d = self.problem.subsets, self.problem.target.model.dimension
            page = draw_page(
                *self.keys, number, self.rows, kernel=self.problem.kernel, transitions=self.problem.page // self.every,
                moves=self.problem.page, k=subsets.move.replaced(subsets.n), n=subsets.n, d=d,
                dtype=np.dtype(self.problem.dtype).name,
            )  # fmt: skip
            self.page = number, page
        return self.page[1]

    @property
    def _adapt_every(self) -> int:
        return min(ADAPT_EVERY, self.problem.page)

    def _adapt(self, theta: Array, end: int) -> None:
        path = jax.lax.dynamic_slice_in_dim(theta, end - self._adapt_every, self._adapt_every, 1)
        tuning = adapt(self.state.tuning, jnp.swapaxes(path, 0, 1), float(self.moves), self.problem.kernel)
        self.place = self.place._replace(state=self.state._replace(tuning=tuning))

    def freeze(self) -> None:
        """End of tune: nothing is learnt from here on."""
        self.frozen = True

    def held(self) -> Held:
        """What it holds now. Rows are not: where U's are is enough to find them."""
        with jax.enable_x64(True):
            state = jax.tree.map(np.array, self.state._replace(rows=[]))
            U: Any = jax.tree.map(np.array, assess_nothing(self.place.indices))
            at, every = self.moves % self.problem.page, self._adapt_every
            seen = 0 if self.frozen or self.played is None else at % every
            recent = np.zeros((0, *state.theta.shape), state.theta.dtype)
            if seen and self.played is not None:
                recent = np.swapaxes(np.array(self.played.draws.theta[:, at - seen : at]), 0, 1)
            return Held(self.moves, state, Written(U, None, [], 0), recent)

    def go_on_from(self, held: Held) -> None:
        """Take up where another process was; pages are drawn again."""
        with jax.enable_x64(True):
            self.moves, self.indices = held.moves, jnp.asarray(held.written.U.indices, self.indices.dtype)
            state = jax.tree.map(jnp.asarray, held.state._replace(rows=[]))
            self.place = Place(state._replace(rows=rows_of(self.indices, self.rows)), jnp.copy(self.indices))
            at, seen = held.moves % self.problem.page, len(held.recent)
            if seen:
                self.played = blank(self.place, self.problem)
                theta = self.played.draws.theta.at[:, at - seen : at].set(np.swapaxes(held.recent, 0, 1))
                self.played = self.played._replace(draws=self.played.draws._replace(theta=theta))

    def page_in_store(self) -> Any:
        """Nothing is written ahead."""
        return None

    def stand(self, state: State, moves: int) -> None:
        """Be where tune ended, not to move again."""
        self.place, self.moves = self.place._replace(state=state), moves

    def last_invalid(self) -> NDArray[Any] | None:
        """Proposals are not kept on the device."""
        return None

    def compiled(self) -> None:
        """Programs are compiled when they are first used."""

    def close(self) -> None:
        """Nothing is open."""


def rounded(target: Target, dtype: Any) -> Target:
    """What it knows of all rows in the working precision, so that no program has to convert it.

    θ̂ is rounded with the rest, by as much as any θ in that precision is.
    """
    if target.expansion is None:
        return target
    return replace(target, expansion=jax.tree.map(lambda leaf: leaf.astype(dtype), target.expansion))


@partial(jax.jit, static_argnames=("split",))
def prepared(target: Any, rows: Any, split: Split) -> list[Array]:
    """What all rows know at θ̂."""
    return split.prepare(target, rows)


@jax.jit
def rows_of(indices: Array, rows: list[Array]) -> list[Array]:
    """What U's rows know, leaves `(chains, *shape, n)`."""
    return [jnp.moveaxis(leaf[indices], 1, -1) for leaf in rows]


@partial(jax.jit, static_argnames=("split",))
def scores(theta: Array, indices: Array, rows: list[Array], target: Any, split: Split) -> Terms:
    """The log target of each chain."""
    return jax.vmap(partial(evaluate, target=target, split=split))(theta, rows_of(indices, rows))


def assess_nothing(indices: Array) -> Subset:
    """U without statistics."""
    return jax.vmap(assess)(indices, jnp.zeros((len(indices), 0, indices.shape[-1])))


def blank(place: Place, problem: Problem) -> Played:
    """Room for the draws of a page."""
    shape, d = (len(place.indices), problem.page), place.state.theta.shape[-1]
    extra = {name: jnp.zeros(shape, zero.dtype) for name, zero in problem.kernel.extra().items()}
    info = Info(jnp.zeros(shape), jnp.zeros(shape, bool), jnp.zeros(shape, bool), jnp.zeros(shape, jnp.int32), extra)
    draws = Draw(jnp.zeros((*shape, d), place.state.theta.dtype), jnp.zeros(shape), info)
    return Played(draws, jnp.zeros((shape[0], problem.page // problem.subsets.move.every), bool))


@partial(jax.jit, static_argnames=("length", "every"))
def moves_of(played: Played, at: int, length: int, every: int) -> Moves:
    """So many moves of a page, as pipelines tell them, `(moves, chains, ...)`."""

    def cut(leaf: Array) -> Any:
        return jnp.swapaxes(jax.lax.dynamic_slice_in_dim(leaf, at, length, 1), 0, 1)

    moves = played.draws.theta.shape[1]
    changed = jnp.repeat(played.refreshed, every, axis=1) & (jnp.arange(moves) % every == 0)
    theta, log_density, info = jax.tree.map(cut, played.draws)
    ends: Any = jnp.ones((length, len(changed)), bool)
    nowhere: Any = jnp.zeros(ends.shape)  # U has no statistics
    return Moves(
        theta, log_density, info.acceptance.astype(jnp.float64), info.accepted, info.invalid, cut(changed), ends,
        nowhere, info.evaluations, info.extra,
    )  # fmt: skip
