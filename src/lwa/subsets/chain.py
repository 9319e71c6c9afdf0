"""The chain on ν(U) ∝ Φ(‖S̄(Y_U) - s_N‖/ε), as an object of its own: it knows rows and statistics, never θ."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.algorithm import Candidate, Subset, assess, write
from lwa.backend.random import Purpose, generator
from lwa.errors import InputError
from lwa.rows import Batch, Rows
from lwa.rows.slots import arrange, map_arrays, split_layers
from lwa.subsets.moves import Fixed, Move, Swap
from lwa.subsets.strata import Drawing, SizeStrata
from lwa.subsets.weights import Weight
from lwa.summaries.summary import AdditiveStatistic, SubsetStatistic
from lwa.targets.calibration import Calibration
from lwa.targets.target import Given

BURN_IN_RENEWALS = 5
"""The burn-in of U ends once its n rows have been renewed about this many times."""
PILOT_SUBSETS = 16
"""Subsets by which it is judged how many have a positive definite curvature."""
FEASIBLE = 0.9
"""If fewer subsets than this share have one, n is refused."""
BURN_IN_LIMIT = 50
"""... or after this many times the proposals for that: it does not wait for a chain that accepts less than a tenth."""


class Page(NamedTuple):
    """What the subset chain did in a page of transitions; arrays are `(transitions, chains, ...)`."""

    accepted: NDArray[np.bool_]
    distance: NDArray[np.float64]
    slots: NDArray[np.int32]  # (..., k)
    rows: Batch  # the incoming rows, leaves (..., k, *shape)
    given: Given | None  # what else θ's target needs of U; leaves (..., d) and (..., d, d)
    counts: NDArray[np.float64] | None  # (..., k)  the weights of the incoming rows, if q is not uniform


@dataclass(frozen=True)
class Chain(ABC):
    """ν and R over rows or units of them. Methods that run chains take their numbers, and run them side by side."""

    rows: Rows
    statistic: SubsetStatistic  # S; its `dimension` is 0 if every subset weighs the same
    move: Move
    weight: Weight
    epsilon: float
    n: int  # slots of U
    seed: int
    page: int  # proposals per page
    calibration: Calibration | None = None  # what rows carry for the calibrated target; no part of ν
    leverage: Drawing | None = None  # q; if None, uniform and without repeats
    reach: float = np.inf  # the distance at which ν ends

    @abstractmethod
    def start(self, chains: Sequence[int]) -> Subset:
        """Draw a subset for each chain, as U is before Φ."""

    @abstractmethod
    def advance(
        self, U: Subset, chains: Sequence[int], page: int, purpose: Purpose = Purpose.SUBSET, known: Given | None = None
    ) -> tuple[Subset, Page]:
        """Run one page of transitions for each chain. `U` is consumed: the new one takes its memory.

        `known` is what `given` returns for a U that never changes, so that it need not be computed again.
        """

    @abstractmethod
    def counts(self, U: Subset) -> NDArray[np.float64] | None:
        """Return what each row of U counts, 1/(N q_k); None if q is uniform."""

    @property
    @abstractmethod
    def size(self) -> int:
        """subset_size: rows, groups, or the steps of a window."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """The largest subset_size that the data allow."""

    @abstractmethod
    def resize(self, size: int) -> Self:
        """Return the chain on larger or smaller subsets."""

    def rescale_calibration(self, size: int) -> Calibration | None:
        """Return what rows carry, counted as for subsets of another size."""
        if self.calibration is None:
            return None
        return replace(self.calibration, power=self.calibration.power * self.size / size)

    @property
    @abstractmethod
    def renewing(self) -> float:
        """Accepted proposals after which hardly a row of U is left."""

    @property
    def weighs(self) -> bool:
        """Whether Φ tells subsets apart: not for a move that it does not weigh, nor without a statistic."""
        return self.move.weighted and self.replaced > 0 and self.statistic.dimension > 0

    @property
    def moves(self) -> int:
        """The least number of θ moves that follow a page of proposals."""
        return self.page * self.move.every

    def given(self, U: Subset) -> Given | None:
        """Return what θ's target needs of each chain's subset besides its rows."""
        if self.calibration is None or U.sums is None:
            return None
        if not self.calibration.in_batch:
            return self.calibration.given(U.sums)
        page = np.broadcast_to(np.asarray(U.sums), (self.page, *U.sums.shape))  # the program that every page uses
        return jax.tree.map(lambda leaf: np.asarray(leaf)[0], self.calibration.given(page))

    def given_over(self, U: Subset, sums: Array | NDArray[np.float64] | None, known: Given | None) -> Given | None:
        """Return `given` at each transition of a page, whose sums are `(transitions, chains, c)`."""
        if self.calibration is None or sums is None:
            return None
        if self.replaced:
            return self.calibration.given(sums)
        held = self.given(U) if known is None else known
        return jax.tree.map(lambda leaf: np.broadcast_to(np.asarray(leaf), (self.page, *leaf.shape)), held)

    def burn_in(self, U: Subset, chains: Sequence[int]) -> tuple[Subset, float]:
        """Forget the uniform start before θ sees any subset. It does not depend on θ, so it biases nothing.

        Return the subsets, and the share of proposals accepted in the last page.
        """
        if not self.weighs:
            return U, 1.0  # a uniform subset is a draw of ν already
        accepted, proposed, page, rate = np.zeros(len(chains)), 0, 0, 0.0
        while accepted.min() < BURN_IN_RENEWALS * self.renewing and proposed < BURN_IN_LIMIT * self.renewing:
            U, done = self.advance(U, chains, page, Purpose.SUBSET_BURN_IN)
            accepted, proposed, page = accepted + done.accepted.sum(0), proposed + self.page, page + 1
            rate = float(done.accepted.mean())
        return U, rate

    def feasible(self, U: Subset) -> NDArray[np.bool_]:
        """Return whether each chain's subset has a positive definite curvature, as far as the target asks for it."""
        given = self.given(U)
        return np.ones(1, bool) if given is None or given.feasible is None else np.asarray(given.feasible)

    def share_feasible(self) -> float:
        """Return the share of such subsets among some, drawn as U is before Φ."""
        return float(self.feasible(replace(self, move=Fixed()).start(range(PILOT_SUBSETS))).mean())

    def move_until_feasible(self, U: Subset, chains: Sequence[int]) -> Subset:
        """Let U move on until every chain's curvature is positive definite; refuse an n for which it often is not."""
        if not self.feasible(U).all() and self.share_feasible() < FEASIBLE:
            enough = self.size
            while enough < self.largest and self.resize(enough).share_feasible() < FEASIBLE:
                enough = min(2 * enough, self.largest)
            raise InputError(
                f"subset_size={self.size} is too small for the calibrated target: the curvature of many subsets is not "
                f"positive definite, so they do not identify all parameters. Pass subset_size={enough}.",
                advice={"subset_size": enough},
            )
        page, lacking = 0, np.flatnonzero(~self.feasible(U))
        while len(lacking):  # those alone: of thousands of chains some would always lack it
            some = jax.tree.map(lambda leaf, places=lacking: leaf[places], U)
            some, _ = self.advance(some, [chains[i] for i in lacking.tolist()], page, Purpose.SUBSET_FEASIBLE)
            U = jax.tree.map(lambda leaf, new, places=lacking: jnp.asarray(leaf).at[places].set(new), U, some)
            page, lacking = page + 1, lacking[~self.feasible(some)]
        return U

    def with_epsilon(self, epsilon: float) -> Self:
        """Return the chain with another bandwidth."""
        return replace(self, epsilon=epsilon)

    def take(self, U: Subset) -> Batch:
        """Return Y_U, the rows of each chain's subset, leaves `(chains, n, *shape)`."""
        return self.take_slots(np.asarray(U.indices))

    def take_slots(self, indices: NDArray[np.int64]) -> Batch:
        """Return rows `(..., slots)`, leaves `(..., slots, *shape)`; of groups in strata, a layer for each stratum."""
        if self.strata is not None:
            return self.rows.take(indices)
        return arrange(self.rows.take(indices.ravel()), indices.shape)

    @property
    def strata(self) -> SizeStrata | None:
        """Which slots hold groups of which size, if groups are in strata."""
        return self.leverage if isinstance(self.leverage, SizeStrata) else None

    @property
    def by_leverage(self) -> bool:
        """Whether rows that matter more are drawn more often."""
        return self.leverage is not None and not (self.strata is not None and self.strata.uniform)

    @property
    def replaced(self) -> int:
        """The slots that one proposal replaces."""
        k = self.move.replaced(self.n)
        return k if self.strata is None else int(self.strata.count_exchanged(k).sum())

    def take_examples(self, *, incoming: bool = False) -> Batch:
        """Return rows of the shapes of those that U holds, or of those that a proposal brings in."""
        if self.strata is None:
            return self.rows.take(np.zeros(self.replaced if incoming else self.n, np.int64))
        each = self.strata.count_exchanged(self.move.replaced(self.n)) if incoming else self.strata.slots
        return self.rows.take(np.repeat(self.strata.first[:-1], each))


@dataclass(frozen=True)
class SubsetChain(Chain):
    """Rows, or units, drawn one by one: k of n are exchanged at a time."""

    statistic: AdditiveStatistic

    @property
    def size(self) -> int:
        """n, the rows or units of a subset."""
        return self.n

    @property
    def largest(self) -> int:
        """N, the number of rows or units."""
        return len(self.rows)

    def resize(self, size: int) -> Self:
        """Return the chain on subsets of another size."""
        leverage = None if self.leverage is None else self.leverage.cut(size)
        return replace(self, n=size, calibration=self.rescale_calibration(size), leverage=leverage)

    @property
    def renewing(self) -> float:
        """n/k, the proposals that exchange every slot once."""
        return self.n / self.replaced if self.replaced else np.inf

    def exchange_seldom(self) -> Self:
        """Return the chain with so few proposals that groups which come in cost no more than those that U holds.

        They are read, and for the calibrated target differentiated. If a stratum of long groups has few slots, each
        proposal exchanges a large share of U's rows.
        """
        if self.strata is None or not isinstance(self.move, Swap):
            return self
        evaluations = 1 if self.calibration is None else 1 + 3 * self.calibration.model.dimension
        cost = max(1.0, evaluations * self.strata.share_exchanged(self.move.k))
        return replace(self, move=replace(self.move, every=max(self.move.every, 1 << int(np.ceil(np.log2(cost))))))

    def start(self, chains: Sequence[int]) -> Subset:
        """Draw a uniform subset for each chain, or each slot from its piece of q."""
        rngs = [generator(self.seed, Purpose.FIRST_SUBSET, chain) for chain in chains]
        if self.leverage is None:
            return self.assess(np.stack([rng.choice(len(self.rows), self.n, replace=False) for rng in rngs]))
        return self.assess(np.stack([self.leverage.draw(rng, np.arange(self.n)) for rng in rngs]))

    def assess(self, indices: NDArray[np.int64]) -> Subset:
        """Return these subsets, `(chains, n)`, with statistics computed from their rows."""
        if self.calibration is not None and self.replaced == 0:  # rows stay: their sums are enough
            held = [replace(self, calibration=None).assess(one[None]) for one in indices]
            sums = jnp.stack([self.calibration.total(self.rows.take(one), self._find_counts(one)) for one in indices])
            return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *held)._replace(sums=sums)
        if self.calibration is None and self.statistic.dimension == 0:  # rows need not be read
            return jax.vmap(assess)(jnp.asarray(indices), jnp.zeros((len(indices), 0, self.n)))
        return jax.vmap(assess)(jnp.asarray(indices), *self._per_slot(self.take_slots(indices), indices))

    def _find_counts(self, indices: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Return 1/(N q_k) of rows; None if q is uniform."""
        return None if self.leverage is None else self.leverage.counts(indices)

    def _per_slot(self, batch: Batch, indices: NDArray[np.int64]) -> tuple[Array, Array | None]:
        """Return what U sums over its slots: c_k S(Y_k) - s_N and c_k times what is carried, `(..., s, slots)`."""
        counts, s, calibration = self._find_counts(indices), self.statistic.dimension, self.calibration
        arranged = jnp.asarray(np.zeros((*indices.shape[:-1], s, indices.shape[-1])))
        if s and indices.size:
            arranged = arrange_by_slot(self.statistic.centred, batch, indices.shape, counts)
        if calibration is None or not indices.size:
            return arranged, None

        def carry(rows: Batch, counts: NDArray[np.float64] | None) -> NDArray[np.float64]:
            carried = calibration.carry(rows)
            return carried if counts is None else counts[:, None] * carried

        return arranged, arrange_by_slot(carry, batch, indices.shape, counts)

    def counts(self, U: Subset) -> NDArray[np.float64] | None:
        """Return what each row of U counts, 1/(N q_k); None if q is uniform."""
        return self._find_counts(np.asarray(U.indices))

    def candidates(self, chains: Sequence[int], page: int, purpose: Purpose) -> tuple[Candidate, Batch]:
        """Return a page of proposals and the rows they would bring in, fetched in one vectorised call."""
        N, size, k = len(self.rows), self.page, self.replaced
        slots = np.empty((size, len(chains), k), np.int32)
        incoming = np.empty((size, len(chains), k), np.int64)
        uniform = np.empty((size, len(chains)))
        for c, chain in enumerate(chains):
            rng = generator(self.seed, purpose, chain, page)
            if self.strata is None:
                slots[:, c], incoming[:, c] = self.move.propose(rng, size, self.n, N)
            else:
                slots[:, c] = self.strata.propose(rng, size, self.move.replaced(self.n))
            uniform[:, c] = rng.random(size)
            if self.leverage is not None:
                incoming[:, c] = self.leverage.draw(rng, slots[:, c])
        batch = self.take_slots(incoming)
        statistics, carried = self._per_slot(batch, incoming)
        with np.errstate(divide="ignore"):  # log 0 = -inf accepts whatever has a positive weight, as it should
            log_u = np.log(uniform)
        candidates = Candidate(jnp.asarray(slots), jnp.asarray(incoming), statistics, jnp.asarray(log_u), carried)
        return candidates, batch

    def advance(
        self, U: Subset, chains: Sequence[int], page: int, purpose: Purpose = Purpose.SUBSET, known: Given | None = None
    ) -> tuple[Subset, Page]:
        """Run all proposals of a page at once: which rows would come in does not depend on U."""
        candidates, batch = self.candidates(chains, page, purpose)
        epsilon = jnp.asarray(self.epsilon if self.move.weighted else np.inf)
        exchange = self.move.exchange and self.leverage is None  # independent slots may repeat a row
        U, accepted, distance, sums = write(U, candidates, self.weight, epsilon, exchange=exchange, reach=self.reach)
        given = self.given_over(U, sums, known)
        accepted, distance, slots, given = jax.tree.map(np.asarray, (accepted, distance, candidates.slots, given))
        counts = self._find_counts(np.asarray(candidates.incoming))
        return U, Page(accepted, distance, slots=slots, rows=batch, given=given, counts=counts)


type PerRow = Callable[[Batch, NDArray[np.float64] | None], NDArray[np.float64]]
"""(m rows, what they count) -> (m, s)."""


def arrange_by_slot(
    function: PerRow, batch: Batch, shape: tuple[int, ...], counts: NDArray[np.float64] | None
) -> Array:
    """Return `function` of each row of a batch, which is of this shape, as `(..., s, slots)`; stratum by stratum."""
    found, at = list[NDArray[np.float64]](), 0
    for layer in split_layers(batch):
        own = (*shape[:-1], jax.tree.leaves(layer)[0].shape[len(shape) - 1])
        some = None if counts is None else counts[..., at : at + own[-1]].ravel()
        if own[-1]:
            flat = map_arrays(lambda leaf: leaf.reshape(-1, *leaf.shape[len(shape) :]), layer)
            values = function(flat, some)
            found.append(values.reshape(*own, values.shape[-1]))
        at += own[-1]
    return jnp.asarray((found[0] if len(found) == 1 else np.concatenate(found, axis=-2)).swapaxes(-1, -2))
