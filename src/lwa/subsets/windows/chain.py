"""The chain on windows of a sequence: U is n consecutive steps, one unit in one slot."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lwa.algorithm import Subset
from lwa.backend.random import Purpose, generator
from lwa.rows.units import Units, Windows, windows_in, windows_of
from lwa.subsets.chain import Chain, Page
from lwa.subsets.moves import Fixed, Free, Window
from lwa.subsets.windows.law import WindowLaw, draw_page, window_law
from lwa.subsets.windows.walk import WindowPath, advance
from lwa.summaries.running_sums import RunningSums
from lwa.targets.target import Given


@dataclass(frozen=True)
class WindowChain(Chain):
    """Windows numbered series after series; a proposal moves the whole of U."""

    steps: int = 0  # n, scored steps of a window
    sums: RunningSums | None = None  # of gradients and curvatures at θ̂; None: each window's own are computed
    column: NDArray[Any] | None = None  # what S summarises, series after series

    @property
    def size(self) -> int:
        """n."""
        return self.steps

    @property
    def largest(self) -> int:
        """The steps of the shortest series."""
        return int(self.units.parts.sizes.min())

    def of_size(self, size: int) -> Self:
        """Longer or shorter windows behind the same lead-in."""
        units = self.units
        rows = windows_of(units.rows, units.parts, size, units.length - self.steps)
        return replace(self, rows=rows, steps=size, calibration=self.calibrated_for(size))

    @property
    def renewing(self) -> float:
        """One proposal in 1/(1-ω) is remote; without these U diffuses, √2/λ steps a proposal."""
        if isinstance(self.move, Fixed):
            return np.inf
        if isinstance(self.move, Free):
            return 1.0
        assert isinstance(self.move, Window)
        diffusing = max(1.0, (self.steps * self.move.rate) ** 2 / 2)
        return min(diffusing, 1.0 / (1.0 - self.move.local)) if self.move.local < 1 else diffusing

    def start(self, chains: Sequence[int]) -> Subset:
        """A uniform window for each chain."""
        windows = [generator(self.seed, Purpose.FIRST_SUBSET, chain).integers(len(self.rows)) for chain in chains]
        return self.of(np.array(windows, np.int64)[:, None])

    def of(self, indices: NDArray[np.int64]) -> Subset:
        """Given windows, `(chains, 1)`."""
        away = self.statistics_of(indices[:, 0])
        sums = self.sums_of(indices[:, 0])
        return Subset(
            jnp.asarray(indices),
            jnp.asarray(away[:, :, None]),
            jnp.asarray(away),
            jnp.asarray(np.sqrt((away**2).sum(1))),
            None,
            None if sums is None else jnp.asarray(sums),
        )

    def statistics_of(self, windows: NDArray[np.int64]) -> NDArray[np.float64]:
        """S(Y_U) - s_N of these windows, `(m, s)`."""
        found = np.zeros((len(windows), self.statistic.dimension))
        if self.statistic.dimension and self.column is not None:
            for out, begin in zip(found, self.units.spans(windows).begin, strict=True):
                self.statistic.function(self.column[begin : begin + self.steps], out)
            found -= self.statistic.full
        return found

    @property
    def units(self) -> Units:
        """All windows."""
        assert isinstance(self.rows, Units)
        return self.rows

    @cached_property
    def numbered(self) -> Windows:
        """All windows as the walk over them sees them."""
        return windows_in(self.units.parts, self.steps)

    @cached_property
    def law(self) -> WindowLaw:
        """R."""
        assert isinstance(self.move, Window)
        return window_law(self.numbered.number, self.move)

    def sums_of(self, windows: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """What the calibrated target needs to know of these windows: their gradient and curvature at θ̂, `(m, c)`."""
        if self.calibration is None:
            return None
        if not len(windows):
            return np.empty((0, self.calibration.width))
        if self.sums is None:
            return self.calibration.carry(self.rows.take(windows))
        span = self.units.spans(windows)
        return self.sums.between(span.begin, span.stop)[:, : self.calibration.width]  # curvature comes last

    def counts(self, U: Subset) -> NDArray[np.float64] | None:
        """Every window counts the same."""
        return None

    def advance(
        self,
        U: Subset,
        chains: Sequence[int],
        page: int,
        purpose: Purpose = Purpose.SUBSET,
        known: Given | None = None,
    ) -> tuple[Subset, Page]:
        """Chain by chain, since where a proposal leads depends on where the chain is; rows are read after it."""
        k, at = self.move.replaced(self.n), np.asarray(U.indices)[:, 0]
        walks = [self.walk(int(x), generator(self.seed, purpose, c, page)) for x, c in zip(at, chains, strict=True)]
        windows, accepted, distance = (np.stack(leaves, axis=1) for leaves in zip(*walks, strict=True))
        came = windows[accepted]
        rows = jax.tree.map(lambda leaf: spread_out(leaf, accepted)[:, :, :k], self.rows.take(came))
        sums = self.sums_of(came)
        if sums is not None:
            sums = held_until(np.asarray(U.sums), sums, accepted)
        U = self.of(windows[-1][:, None]) if accepted.any() else U
        given = jax.tree.map(np.asarray, self.given_over(U, sums, known))
        return U, Page(accepted, distance, np.zeros((*accepted.shape, k), np.int32), rows, given, None)

    def walk(self, x: int, rng: np.random.Generator) -> WindowPath:
        """A page of transitions of one chain, from window x."""
        if isinstance(self.move, Fixed):
            still = np.zeros(self.page)
            return WindowPath(np.full(self.page, x), still.astype(bool), still)
        if isinstance(self.move, Free):
            free = rng.integers(len(self.rows), size=self.page)
            return WindowPath(free, np.diff(free, prepend=x) != 0, np.zeros(self.page))
        draws = draw_page(rng, self.page, self.law)
        statistic = self.statistic if self.statistic.dimension else None
        return advance(x, draws, self.numbered, self.law, self.column, statistic, self.weight, self.epsilon)


def spread_out(values: NDArray[Any], accepted: NDArray[np.bool_]) -> NDArray[Any]:
    """Values of accepted proposals at their places, `(transitions, chains, 1, ...)`; nothing is read elsewhere."""
    placed = np.zeros((*accepted.shape, 1, *values.shape[1:]), values.dtype)
    placed[accepted, 0] = values
    return placed


def held_until(
    first: NDArray[np.float64], values: NDArray[np.float64], accepted: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Values of accepted proposals `(m, c)`, each held until the next, `(transitions, chains, c)`; `first` before."""
    number = np.zeros(accepted.shape, np.int64)
    number[accepted] = np.arange(1, len(values) + 1)
    number = np.maximum.accumulate(number, axis=0)
    chains = np.broadcast_to(np.arange(accepted.shape[1]), accepted.shape)
    unused = np.zeros((1, values.shape[1]))
    return np.where((number > 0)[..., None], np.concatenate([unused, values])[number], first[chains])
