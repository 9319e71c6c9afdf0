"""Draws summarised while they are made, so that none of them need be kept: moments, quantiles, nested R-hat.

All functions are pure. `begun` and `update` take NumPy's arrays or JAX's, the latter inside `jax.jit` too, with
`jax.enable_x64`; what reads a summary takes NumPy's.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

CELLS, REACH = 4096, 10.0
"""Cells of a sketch, and how far they reach from its centre, in units of its scale: each is 0.0049 wide."""
SUPERCHAINS = 16
"""Groups of chains that share a start, where chains are many: enough for a variance between groups that is known to
√(2/15) = 37 %, and few enough to leave many chains to each, whose mean then tells a small remainder of the start."""
MANY = 64
"""Chains past which starts are shared."""
CHUNK = 2**21
"""Numbers looked at together."""


class Moments(NamedTuple):
    """Of each chain's draws so far, of k scalars."""

    count: Any  # draws a chain
    mean: Any  # (chains, k)
    squares: Any  # (chains, k)  Σ (x - mean)²


class Sketch(NamedTuple):
    """Where the draws of all chains lie: a histogram of each of k scalars."""

    centre: Any  # (k,)
    scale: Any  # (k,)
    cells: Any  # (k, CELLS + 2)  how many draws lie in each; the first and the last are open
    low: Any  # (k,)  the smallest and the largest draw
    high: Any  # (k,)


class Running(NamedTuple):
    """What is known of all draws so far."""

    moments: Moments
    sketch: Sketch


def begun(chains: int, centre: Any, scale: Any) -> Running:
    """Nothing seen yet; with about the middle and the sd of each scalar, which only decide how fine cells are."""
    xp, k = of_kind(centre), len(centre)
    none = xp.zeros((chains, k))
    edge = xp.full(k, np.inf)
    cells = xp.zeros((k, CELLS + 2), np.int64)
    return Running(Moments(xp.zeros((), np.int64), none, none), Sketch(centre, scale, cells, edge, -edge))


def update(state: Running, theta: Any) -> Running:
    """The same with more draws, `(draws, chains, k)`."""
    if theta.shape[0] == 0:
        return state
    theta = theta.astype(np.float64)
    return Running(more(state.moments, theta), spread(state.sketch, theta))


def more(state: Moments, theta: Any) -> Moments:
    """Both sums about their own means, merged as Chan, Golub and LeVeque (1983) do: no digits are lost far from 0."""
    new, mean = theta.shape[0], theta.mean(0)
    total, apart = state.count + new, mean - state.mean
    return Moments(
        total,
        state.mean + apart * (new / total),
        state.squares + ((theta - mean) ** 2).sum(0) + apart**2 * (state.count * new / total),
    )


def spread(state: Sketch, theta: Any) -> Sketch:
    """Draws counted by cell. What is no number lies beyond the last, and makes `high` NaN."""
    xp, (k, size) = of_kind(theta), state.cells.shape
    place = (theta - state.centre) * (CELLS / (2 * REACH) / state.scale) + CELLS / 2
    place = xp.where(xp.isnan(place), CELLS, xp.clip(xp.floor(place), -1, CELLS)).astype(np.int64)
    flat = (place + 1 + xp.arange(k) * size).reshape(-1)
    found = np.bincount(flat, minlength=k * size) if xp is np else jnp.bincount(flat, length=k * size)
    return state._replace(
        cells=state.cells + found.reshape(k, size),
        low=xp.minimum(state.low, theta.min((0, 1))),
        high=xp.maximum(state.high, theta.max((0, 1))),
    )


def of_kind(values: Any) -> ModuleType:
    """JAX's NumPy for JAX's arrays, else NumPy."""
    return jnp if isinstance(values, jax.Array) else np


def scales_of(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centre and scale for a sketch, of values `(many, k)`: the median, and half of what holds two thirds of them.

    A few chains that are still far away do not widen it, as they would an sd.
    """
    finite = np.where(np.isfinite(values), values, np.nan)
    finite = np.where(np.isnan(finite).all(0), 0.0, finite)
    low, centre, high = np.nanquantile(finite, [0.16, 0.5, 0.84], axis=0)
    still = np.maximum(np.abs(centre), 1.0) * 1e-3  # of what does not vary yet
    return centre, np.where(high > low, (high - low) / 2, still)


def moments_of(posterior: Mapping[str, NDArray[Any]]) -> Moments:
    """Of draws that are there, arrays `(chains, draws, *shape)` by name, some chains at a time."""
    means, squares, count = [], [], 0
    for array in posterior.values():
        chains, count = array.shape[:2]
        size = int(np.prod(array.shape[2:]))
        step = max(1, CHUNK // max(1, count * size))
        none = Moments(np.zeros((), np.int64), np.zeros((chains, size)), np.zeros((chains, size)))
        for first in range(0, chains, step) if count else ():
            own = slice(first, first + step)
            some = np.asarray(array[own], np.float64).reshape(-1, count, size)
            found = more(Moments(0, none.mean[own], none.squares[own]), np.swapaxes(some, 0, 1))
            none.mean[own], none.squares[own] = found.mean, found.squares
        means.append(none.mean)
        squares.append(none.squares)
    return Moments(np.array(count), np.concatenate(means, 1), np.concatenate(squares, 1))


# What they say


def mean(state: Moments) -> NDArray[np.float64]:
    """Of all draws of all chains."""
    return np.asarray(state.mean).mean(0)


def variance(state: Moments) -> NDArray[np.float64]:
    """The same, over one less than there are."""
    chains, count = len(state.mean), int(state.count)
    between = ((state.mean - mean(state)) ** 2).sum(0)
    return (np.asarray(state.squares).sum(0) + count * between) / max(1, chains * count - 1)


def quantiles(state: Sketch, shares: Sequence[float]) -> NDArray[np.float64]:
    """`(shares, k)`: the draw of that rank, to within its cell of 0.0049 scales. Between the outermost cell and the
    most extreme draw by a straight line. NaN where some draw is no number."""
    edges = np.linspace(-REACH, REACH, CELLS + 1)
    found = np.full((len(shares), len(state.centre)), np.nan)
    for i, cells in enumerate(np.asarray(state.cells)):
        low, high, total = float(state.low[i]), float(state.high[i]), int(cells.sum())
        if total == 0 or np.isnan(high):
            continue
        ends = np.concatenate([[low], np.clip(state.centre[i] + state.scale[i] * edges, low, high), [high]])
        upto = np.concatenate([[0], np.cumsum(cells)])
        for j, share in enumerate(shares):
            rank = share * (total - 1)
            cell = int(np.searchsorted(upto, np.floor(rank), side="right")) - 1
            inside = min(1.0, (rank - upto[cell] + 0.5) / cells[cell])
            found[j, i] = ends[cell] + (ends[cell + 1] - ends[cell]) * inside
    return found


def effective(state: Moments) -> tuple[NDArray[np.float64], float]:
    """Effective draws of all chains together, and by which share that may be off (one standard error).

    ESS = chains · Var(θ) / Var(chain means): how much the mean of a chain varies from chain to chain says directly what
    a chain is worth, and needs no autocorrelation. Its relative error is √(2 / (chains - 1)). NaN of a single chain,
    and of what does not vary.
    """
    chains, count = len(state.mean), int(state.count)
    if chains < 2 or count == 0:
        return np.full(state.mean.shape[1], np.nan), np.inf
    between, total = np.asarray(state.mean).var(0, ddof=1), variance(state)
    with np.errstate(invalid="ignore", divide="ignore"):
        worth = np.minimum(chains * total / between, chains * count)
    return np.where(total > 0, worth, np.nan), float(np.sqrt(2 / (chains - 1)))


class Nested(NamedTuple):
    """Nested R-hat of each scalar, and its parts."""

    rhat: NDArray[np.float64]  # √(1 + between / within)
    between: NDArray[np.float64]  # variance of the means of superchains
    within: NDArray[np.float64]  # mean over superchains of the variance inside each
    chance: NDArray[np.float64]  # what `between` is expected to be where superchains differ by chance alone


def superchain_of(chains: int, superchains: int) -> NDArray[np.int64]:
    """Which superchain each chain belongs to: neighbours, in groups that differ by one chain at the most."""
    return np.arange(chains) * superchains // chains


def superchains_for(chains: int) -> int:
    """How many superchains so many chains make; each chain is its own where they are few."""
    return SUPERCHAINS if chains > MANY else chains


def nested(state: Moments, superchains: int) -> Nested:
    """Nested R-hat (Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman, 2022).

    K superchains of M chains each, and those of one share their start. With θ̄_k the mean of a superchain and θ̄_mk of
    one of its chains:

        B = Var_k θ̄_k,   W = mean over k of (Var_m θ̄_mk + mean over m of Var_n θ_nmk),   n-R-hat = √(1 + B/W),

    where Var_n is 0 for chains of one draw, and Var_m for superchains of one chain. While chains remember where they
    began, superchains differ, however short chains are and however many each has. Once they have forgotten it, B is
    what chance leaves: Var_m θ̄_mk / M.
    """
    means = np.asarray(state.mean)
    inside = np.asarray(state.squares) / max(1, int(state.count) - 1)
    group = superchain_of(len(means), superchains)
    size = np.bincount(group, minlength=superchains)[:, None]
    firsts = np.searchsorted(group, np.arange(superchains))

    def total(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.add.reduceat(values, firsts, axis=0)

    centres = total(means) / size
    among = total((means - centres[group]) ** 2) / np.maximum(1, size - 1)
    within = (among + total(inside) / size).mean(0)
    between = centres.var(0, ddof=1) if superchains > 1 else np.zeros_like(within)
    with np.errstate(invalid="ignore", divide="ignore"):
        rhat = np.sqrt(1 + between / within)
    return Nested(rhat, between, within, (among / size).mean(0))
