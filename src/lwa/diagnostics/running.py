"""Summaries that grow while draws are made, so that no draw need be kept: moments, quantiles, nested R-hat.

All functions are pure. `start_summary` and `update_summary` take arrays of NumPy or JAX (also inside `jax.jit`, with
`jax.enable_x64`). Functions that read a summary take NumPy's arrays.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Float64, Int, Shaped
from numpy.typing import NDArray

type EitherArray = Array | np.ndarray
"""An array of JAX or NumPy."""

SKETCH_CELLS, SKETCH_REACH = 4096, 10.0
"""Cells of a sketch, and how far they reach from its centre, in units of its scale: each cell is 0.0049 wide."""
SUPERCHAINS = 16
"""Groups of chains that share a start, if there are many chains. With 16, the variance between groups is known to
√(2/15) = 37 %, and each group still has many chains, whose mean shows a small remainder of the start."""
MANY_CHAINS = 64
"""With more chains than this, groups of them share a start."""
NUMBERS_AT_ONCE = 2**21
"""Numbers that are converted to float64 at a time."""


class ChainMoments(NamedTuple):
    """Moments of each chain's draws so far, of k scalars."""

    count: Int[EitherArray, ""]  # type: ignore[assignment]  # draws per chain; saved runs call it so
    mean: Float[EitherArray, "chains k"]
    squares: Float[EitherArray, "chains k"]  # Σ (x - mean)²


class Sketch(NamedTuple):
    """A histogram of each of k scalars, over the draws of all chains."""

    centre: Float[EitherArray, " k"]
    scale: Float[EitherArray, " k"]
    cells: Int[EitherArray, "k cells"]  # draws per cell; the first and the last cell are open
    low: Float[EitherArray, " k"]  # the smallest draw
    high: Float[EitherArray, " k"]  # the largest draw


class RunningSummary(NamedTuple):
    """Moments and quantiles of all draws so far."""

    moments: ChainMoments
    sketch: Sketch


def start_summary(chains: int, centre: Float[EitherArray, " k"], scale: Float[EitherArray, " k"]) -> RunningSummary:
    """Return the summary of no draws. Pass a rough centre and sd of each scalar: they decide how fine the cells are."""
    xp, k = array_module(centre), len(centre)
    none = xp.zeros((chains, k))
    edge = xp.full(k, np.inf)
    cells = xp.zeros((k, SKETCH_CELLS + 2), np.int64)
    return RunningSummary(ChainMoments(xp.zeros((), np.int64), none, none), Sketch(centre, scale, cells, edge, -edge))


def update_summary(state: RunningSummary, theta: Float[EitherArray, "draws chains k"]) -> RunningSummary:
    """Return the summary with more draws."""
    if theta.shape[0] == 0:
        return state
    theta = theta.astype(np.float64)
    return RunningSummary(merge_moments(state.moments, theta), count_in_cells(state.sketch, theta))


def merge_moments(state: ChainMoments, theta: Float[EitherArray, "draws chains k"]) -> ChainMoments:
    """Return the moments with more draws (Chan, Golub and LeVeque, 1983): no digits are lost far from 0."""
    new, mean = theta.shape[0], theta.mean(0)
    total, apart = state.count + new, mean - state.mean
    return ChainMoments(
        total,
        state.mean + apart * (new / total),
        state.squares + ((theta - mean) ** 2).sum(0) + apart**2 * (state.count * new / total),
    )


def count_in_cells(state: Sketch, theta: Float[EitherArray, "draws chains k"]) -> Sketch:
    """Return the sketch with more draws. NaN counts in the last cell, and makes `high` NaN."""
    xp, (k, size) = array_module(theta), state.cells.shape
    place = (theta - state.centre) * (SKETCH_CELLS / (2 * SKETCH_REACH) / state.scale) + SKETCH_CELLS / 2
    place = xp.where(xp.isnan(place), SKETCH_CELLS, xp.clip(xp.floor(place), -1, SKETCH_CELLS)).astype(np.int64)
    flat = (place + 1 + xp.arange(k) * size).reshape(-1)
    found = np.bincount(flat, minlength=k * size) if xp is np else jnp.bincount(flat, length=k * size)
    return state._replace(
        cells=state.cells + found.reshape(k, size),
        low=xp.minimum(state.low, theta.min((0, 1))),
        high=xp.maximum(state.high, theta.max((0, 1))),
    )


def array_module(values: EitherArray) -> ModuleType:
    """Return `jax.numpy` for arrays of JAX, else `numpy`."""
    return jnp if isinstance(values, jax.Array) else np


def find_scales(values: Float64[np.ndarray, "many k"]) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """Return centre and scale for a sketch: the median, and half the width of what holds two thirds of the values.

    A few chains that are still far away would widen an sd, but not this.
    """
    finite = np.where(np.isfinite(values), values, np.nan)
    finite = np.where(np.isnan(finite).all(0), 0.0, finite)
    low, centre, high = np.nanquantile(finite, [0.16, 0.5, 0.84], axis=0)
    still = np.maximum(np.abs(centre), 1.0) * 1e-3  # the scale of what does not vary yet
    return centre, np.where(high > low, (high - low) / 2, still)


def collect_moments(posterior: Mapping[str, Shaped[np.ndarray, "chains draws *shape"]]) -> ChainMoments:
    """Return the moments of draws in memory, taking some chains at a time."""
    means, squares, count = [], [], 0
    for array in posterior.values():
        chains, count = array.shape[:2]
        size = int(np.prod(array.shape[2:]))
        step = max(1, NUMBERS_AT_ONCE // max(1, count * size))
        mean, square = np.zeros((chains, size)), np.zeros((chains, size))
        for first in range(0, chains, step) if count else ():
            own = slice(first, first + step)
            some = np.asarray(array[own], np.float64).reshape(-1, count, size)
            found = merge_moments(ChainMoments(np.array(0), mean[own], square[own]), np.swapaxes(some, 0, 1))
            mean[own], square[own] = found.mean, found.squares
        means.append(mean)
        squares.append(square)
    return ChainMoments(np.array(count), np.concatenate(means, 1), np.concatenate(squares, 1))


def pooled_mean(state: ChainMoments) -> Float64[np.ndarray, " k"]:
    """Return the mean of all draws of all chains."""
    return np.asarray(state.mean).mean(0)


def pooled_variance(state: ChainMoments) -> Float64[np.ndarray, " k"]:
    """Return the variance of all draws of all chains, with denominator number of draws - 1."""
    chains, count = len(state.mean), int(state.count)
    between = ((state.mean - pooled_mean(state)) ** 2).sum(0)
    return (np.asarray(state.squares).sum(0) + count * between) / max(1, chains * count - 1)


def find_quantiles(state: Sketch, shares: Sequence[float]) -> Float64[np.ndarray, "shares k"]:
    """Return the draw of each rank, to within its cell of 0.0049 scales; NaN if some draw is NaN.

    Between the outermost cell and the most extreme draw, quantiles follow a straight line.
    """
    edges = np.linspace(-SKETCH_REACH, SKETCH_REACH, SKETCH_CELLS + 1)
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


def effective_draws_from_means(state: ChainMoments) -> tuple[Float64[np.ndarray, " k"], float]:
    """Return the effective draws of all chains together, and the relative standard error of that number.

    ESS = chains · Var(θ) / Var(chain means). How much the mean of a chain varies from chain to chain shows directly
    what a chain is worth, without autocorrelations. The relative error is √(2 / (chains - 1)). ESS is NaN for a single
    chain, and for what does not vary.
    """
    chains, count = len(state.mean), int(state.count)
    if chains < 2 or count == 0:
        return np.full(state.mean.shape[1], np.nan), np.inf
    between, total = np.asarray(state.mean).var(0, ddof=1), pooled_variance(state)
    with np.errstate(invalid="ignore", divide="ignore"):
        worth = np.minimum(chains * total / between, chains * count)
    return np.where(total > 0, worth, np.nan), float(np.sqrt(2 / (chains - 1)))


class NestedRhat(NamedTuple):
    """Nested R-hat of each scalar, and its parts."""

    rhat: NDArray[np.float64]  # √(1 + between / within)
    between: NDArray[np.float64]  # variance of the means of superchains
    within: NDArray[np.float64]  # mean over superchains of the variance inside each
    chance: NDArray[np.float64]  # expected value of `between` if superchains differ by chance alone


def assign_superchains(chains: int, superchains: int) -> NDArray[np.int64]:
    """Return the superchain of each chain: neighbours, in groups whose sizes differ by at most one chain."""
    return np.arange(chains) * superchains // chains


def count_superchains(chains: int) -> int:
    """Return how many superchains so many chains form; if chains are few, each is its own."""
    return SUPERCHAINS if chains > MANY_CHAINS else chains


def compute_nested_rhat(state: ChainMoments, superchains: int) -> NestedRhat:
    """Return nested R-hat (Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman, 2022).

    There are K superchains of M chains each; the chains of one superchain share their start. With θ̄_k the mean of a
    superchain and θ̄_mk the mean of one of its chains:

        B = Var_k θ̄_k,   W = mean over k of (Var_m θ̄_mk + mean over m of Var_n θ_nmk),   n-R-hat = √(1 + B/W).

    Var_n is 0 for chains of one draw, and Var_m for superchains of one chain. While chains remember where they began,
    superchains differ, however short the chains are and however many each superchain has. Once chains have forgotten
    it, B is what chance leaves: Var_m θ̄_mk / M.
    """
    means = np.asarray(state.mean)
    inside = np.asarray(state.squares) / max(1, int(state.count) - 1)
    group = assign_superchains(len(means), superchains)
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
    return NestedRhat(rhat, between, within, (among / size).mean(0))
