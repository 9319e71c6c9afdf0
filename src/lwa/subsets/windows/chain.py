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
from lwa.rows.units import Units, Windows, build_windows, number_windows
from lwa.subsets.chain import Chain, Page
from lwa.subsets.moves import Fixed, Free, Window
from lwa.subsets.windows.law import WindowLaw, build_window_law, draw_window_page
from lwa.subsets.windows.walk import WindowPath, walk_page
from lwa.summaries.running_sums import RunningSums
from lwa.summaries.windowed import WindowStatistic
from lwa.targets.target import Given


@dataclass(frozen=True)
class WindowChain(Chain):
    """Windows numbered series after series; a proposal moves the whole subset."""

    steps: int = 0  # n, scored steps per window
    sums: RunningSums | None = None  # of gradients and curvatures at θ̂; if None, they are computed for each window
    column: NDArray[Any] | None = None  # what S summarises, series after series

    @property
    def size(self) -> int:
        """n, the scored steps per window."""
        return self.steps

    @property
    def largest(self) -> int:
        """The number of steps of the shortest series."""
        return int(self.units.parts.sizes.min())

    def resize(self, size: int) -> Self:
        """Return the chain on longer or shorter windows behind the same lead-in."""
        units = self.units
        rows = build_windows(units.rows, units.parts, size, units.length - self.steps)
        return replace(self, rows=rows, steps=size, calibration=self.rescale_calibration(size))

    @property
    def renewing(self) -> float:
        """One proposal in 1/(1-ω) is remote; without these, the window diffuses by √2/λ steps per proposal."""
        if isinstance(self.move, Fixed):
            return np.inf
        if isinstance(self.move, Free):
            return 1.0
        assert isinstance(self.move, Window)
        diffusing = max(1.0, (self.steps * self.move.rate) ** 2 / 2)
        return min(diffusing, 1.0 / (1.0 - self.move.local)) if self.move.local < 1 else diffusing

    def start(self, chains: Sequence[int]) -> Subset:
        """Draw a uniform window for each chain."""
        windows = [generator(self.seed, Purpose.FIRST_SUBSET, chain).integers(len(self.rows)) for chain in chains]
        return self.assess(np.array(windows, np.int64)[:, None])

    def assess(self, indices: NDArray[np.int64]) -> Subset:
        """Return these windows, `(chains, 1)`, with their statistics."""
        away, sums = self.find_statistics(indices[:, 0]), self.find_sums(indices[:, 0])
        return Subset(
            jnp.asarray(indices), statistics=jnp.asarray(away[:, :, None]), total=jnp.asarray(away),
            distance=jnp.asarray(np.sqrt((away**2).sum(1))), sums=None if sums is None else jnp.asarray(sums),
        )  # fmt: skip

    def find_statistics(self, windows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return S(Y_U) - s_N of these windows, `(m, s)`."""
        found = np.zeros((len(windows), self.statistic.dimension))
        if isinstance(self.statistic, WindowStatistic) and self.column is not None and found.size:
            for out, begin in zip(found, self.units.spans(windows).begin, strict=True):
                self.statistic.function(self.column[begin : begin + self.steps], out)
            found -= self.statistic.full
        return found

    @property
    def units(self) -> Units:
        """All windows, as units of rows."""
        assert isinstance(self.rows, Units)
        return self.rows

    @cached_property
    def numbered(self) -> Windows:
        """All windows, numbered for the walk over them."""
        return number_windows(self.units.parts, self.steps)

    @cached_property
    def law(self) -> WindowLaw:
        """R over all windows."""
        assert isinstance(self.move, Window)
        return build_window_law(self.numbered.number, self.move)

    def find_sums(self, windows: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Return what the calibrated target needs of these windows: gradient and curvature at θ̂, `(m, c)`."""
        if self.calibration is None:
            return None
        if not len(windows):
            return np.empty((0, self.calibration.width))
        if self.sums is None:
            return self.calibration.carry(self.rows.take(windows))
        span = self.units.spans(windows)
        return self.sums.between(span.begin, span.stop)[:, : self.calibration.width]  # curvature comes last

    def counts(self, U: Subset) -> NDArray[np.float64] | None:
        """Return None: every window counts the same."""
        return None

    def advance(
        self, U: Subset, chains: Sequence[int], page: int, purpose: Purpose = Purpose.SUBSET, known: Given | None = None
    ) -> tuple[Subset, Page]:
        """Run one page, chain by chain: a proposal depends on where the chain is. Rows are read afterwards."""
        k, at = self.move.replaced(self.n), np.asarray(U.indices)[:, 0]
        walks = [self.walk(int(x), generator(self.seed, purpose, c, page)) for x, c in zip(at, chains, strict=True)]
        windows, accepted, distance = (np.stack(leaves, axis=1) for leaves in zip(*walks, strict=True))
        came = windows[accepted]
        rows = jax.tree.map(lambda leaf: place_accepted(leaf, accepted)[:, :, :k], self.rows.take(came))
        sums = self.find_sums(came)
        if sums is not None:
            sums = hold_accepted(np.asarray(U.sums), sums, accepted)
        U = self.assess(windows[-1][:, None]) if accepted.any() else U
        given = jax.tree.map(np.asarray, self.given_over(U, sums, known))
        slots = np.zeros((*accepted.shape, k), np.int32)
        return U, Page(accepted, distance, slots=slots, rows=rows, given=given, counts=None)

    def walk(self, x: int, rng: np.random.Generator) -> WindowPath:
        """Run a page of transitions of one chain, from window x."""
        if isinstance(self.move, Fixed):
            still = np.zeros(self.page)
            return WindowPath(np.full(self.page, x), still.astype(bool), still)
        if isinstance(self.move, Free):
            free = rng.integers(len(self.rows), size=self.page)
            return WindowPath(free, np.diff(free, prepend=x) != 0, np.zeros(self.page))
        draws = draw_window_page(rng, self.page, self.law)
        statistic = self.statistic if isinstance(self.statistic, WindowStatistic) else None
        return walk_page(
            x, draws, self.numbered, self.law, column=self.column, statistic=statistic, weight=self.weight,
            epsilon=self.epsilon,
        )  # fmt: skip


def place_accepted(values: NDArray[Any], accepted: NDArray[np.bool_]) -> NDArray[Any]:
    """Put values of accepted proposals in their places, `(transitions, chains, 1, ...)`; other places are not read."""
    placed = np.zeros((*accepted.shape, 1, *values.shape[1:]), values.dtype)
    placed[accepted, 0] = values
    return placed


def hold_accepted(
    first: NDArray[np.float64], values: NDArray[np.float64], accepted: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Hold each value of accepted proposals `(m, c)` until the next, `(transitions, chains, c)`; `first` before any."""
    number = np.zeros(accepted.shape, np.int64)
    number[accepted] = np.arange(1, len(values) + 1)
    number = np.maximum.accumulate(number, axis=0)
    chains = np.broadcast_to(np.arange(accepted.shape[1]), accepted.shape)
    unused = np.zeros((1, values.shape[1]))
    return np.where((number > 0)[..., None], np.concatenate([unused, values])[number], first[chains])
