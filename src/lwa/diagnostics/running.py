"""Draws summarised while they are made, so that none of them need be kept: moments, quantiles, nested R-hat.

All functions are pure and take NumPy's arrays; `begun` and `update` take JAX's as well, inside `jax.jit` too, with
`jax.enable_x64`. Counts and sums are merged as Chan, Golub and LeVeque (1983) do it, about each block's own mean, so
that means far from 0 cost no digits.
"""

from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

CELLS, REACH = 4096, 10.0
"""Cells of a sketch, and how far they reach from its centre, in units of its scale: each is 0.0049 wide."""
SUPERCHAINS = 16
"""Groups of chains that share a start, as in most experiments of the paper on nested R-hat: enough for a variance
between them that is known to 37 %, and few enough to leave many chains to each."""
MANY = 64
"""Chains past which starts are shared."""


class Running(NamedTuple):
    """What is known of all draws so far, of k scalars."""

    count: Any  # draws a chain
    mean: Any  # (chains, k)
    squares: Any  # (chains, k)  Σ (x - mean)²
    centre: Any  # (k,)  of the sketch
    scale: Any  # (k,)
    cells: Any  # (k, CELLS + 2)  how many draws lie in each; the first and the last are open
    low: Any  # (k,)  the smallest and the largest draw
    high: Any  # (k,)


def begun(chains: int, centre: Any, scale: Any) -> Running:
    """Nothing seen yet; about the middle and the sd of each scalar, on which nothing depends but how fine cells are."""
    xp, k = of_kind(centre), len(centre)
    none = xp.zeros((chains, k))
    cells = xp.zeros((k, CELLS + 2), np.int64)
    edge = xp.full(k, np.inf)
    return Running(xp.zeros((), np.int64), none, none, centre, scale, cells, edge, -edge)


def update(state: Running, theta: Any) -> Running:
    """The same with more draws, `(draws, chains, k)`."""
    xp, new = of_kind(theta), theta.shape[0]
    if new == 0:
        return state
    theta = theta.astype(np.float64)
    mean = theta.mean(0)
    squares = ((theta - mean) ** 2).sum(0)
    total, apart = state.count + new, mean - state.mean
    return Running(
        total,
        state.mean + apart * (new / total),
        state.squares + squares + apart**2 * (state.count * new / total),
        state.centre,
        state.scale,
        state.cells + counted(xp, state, theta),
        xp.minimum(state.low, theta.min((0, 1))),
        xp.maximum(state.high, theta.max((0, 1))),
    )


def counted(xp: ModuleType, state: Running, theta: Any) -> Any:
    """How many draws lie in each cell; what is no number lies beyond the last, and makes `high` NaN."""
    k, size = state.cells.shape
    place = (theta - state.centre) * (CELLS / (2 * REACH) / state.scale) + CELLS / 2
    place = xp.where(xp.isnan(place), CELLS, xp.clip(xp.floor(place), -1, CELLS)).astype(np.int64)
    flat = (place + 1 + xp.arange(k) * size).reshape(-1)
    if xp is np:
        return np.bincount(flat, minlength=k * size).reshape(k, size)
    return jnp.bincount(flat, length=k * size).reshape(k, size).astype(np.int64)


def of_kind(values: Any) -> ModuleType:
    """JAX's NumPy for JAX's arrays, else NumPy."""
    return jnp if isinstance(values, jax.Array) else np


def scales_of(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centre and scale for a sketch, of values `(many, k)`: the median, and half of what holds two thirds of them.

    A few chains that are still far away do not widen it, as they would an sd.
    """
    low, centre, high = np.nanquantile(np.where(np.isfinite(values), values, np.nan), [0.16, 0.5, 0.84], axis=0)
    scale = (high - low) / 2
    fallback = np.maximum(np.abs(centre), 1.0) * 1e-3  # of what did not vary
    return np.nan_to_num(centre), np.where(scale > 0, scale, np.nan_to_num(fallback, nan=1.0))


def of_draws(values: NDArray[np.float64]) -> Running:
    """The same of draws that are there, `(chains, draws, k)`."""
    chains, _, k = values.shape
    return update(begun(chains, *scales_of(values.reshape(-1, k))), np.swapaxes(values, 0, 1))


# What it says


def mean(state: Running) -> NDArray[np.float64]:
    """Of all draws of all chains."""
    return np.asarray(state.mean).mean(0)


def variance(state: Running) -> NDArray[np.float64]:
    """The same, over one less than there are."""
    chains, count = len(state.mean), int(state.count)
    between = ((state.mean - mean(state)) ** 2).sum(0)
    return (np.asarray(state.squares).sum(0) + count * between) / max(1, chains * count - 1)


def quantiles(state: Running, shares: list[float]) -> NDArray[np.float64]:
    """`(shares, k)`: the draw of that rank, to within its cell of 0.0049 scales; between the last cell and the most
    extreme draw by a straight line."""
    edges = np.linspace(-REACH, REACH, CELLS + 1)
    total = len(state.mean) * int(state.count)
    found = np.full((len(shares), len(state.centre)), np.nan)
    for i in range(len(state.centre)):
        low, high = float(state.low[i]), float(state.high[i])
        if total == 0 or np.isnan(high):
            continue
        inner = np.clip(state.centre[i] + state.scale[i] * edges, low, high)
        ends = np.concatenate([[low], inner, [high]])
        upto = np.concatenate([[0], np.cumsum(state.cells[i])])
        for j, share in enumerate(shares):
            rank = share * (total - 1)
            cell = min(int(np.searchsorted(upto, np.floor(rank), side="right")) - 1, CELLS + 1)
            inside = (rank - upto[cell] + 0.5) / max(1, upto[cell + 1] - upto[cell])
            found[j, i] = ends[cell] + (ends[cell + 1] - ends[cell]) * min(1.0, inside)
    return found


def effective(state: Running) -> tuple[NDArray[np.float64], float]:
    """Effective draws of all chains together, and by which share that may be off (one standard error).

    ESS = chains · Var(θ) / Var(chain means): what the mean of a chain varies by from chain to chain says directly what
    a chain is worth, and needs no autocorrelation. Its relative error is √(2 / (chains - 1)). NaN of a single chain,
    and of what does not vary.
    """
    chains = len(state.mean)
    if chains < 2 or int(state.count) == 0:
        return np.full(len(state.centre), np.nan), np.inf
    between, total = np.asarray(state.mean).var(0, ddof=1), variance(state)
    with np.errstate(invalid="ignore", divide="ignore"):
        worth = chains * total / between
    worth = np.where(total > 0, np.minimum(worth, chains * int(state.count)), np.nan)
    return worth, float(np.sqrt(2 / (chains - 1)))


class Nested(NamedTuple):
    """Nested R-hat of each scalar, and its parts."""

    rhat: NDArray[np.float64]  # √(1 + between / within)
    between: NDArray[np.float64]  # variance of the means of superchains
    within: NDArray[np.float64]  # mean over superchains of the variance inside each
    chance: NDArray[np.float64]  # what `between` would be by chance alone, chains being independent
    superchains: int


def superchain_of(chains: int, superchains: int) -> NDArray[np.int64]:
    """Which superchain each chain belongs to: neighbours, in groups that differ by one chain at the most."""
    return np.arange(chains) * superchains // chains


def superchains_for(chains: int) -> int:
    """How many superchains so many chains make; each chain is its own where they are few."""
    return SUPERCHAINS if chains > MANY else chains


def nested(state: Running, superchains: int) -> Nested:
    """Nested R-hat (Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman, 2022).

    K superchains of M chains each, and those of one share their start. With θ̄_k the mean of a superchain and θ̄_mk of
    one of its chains:

        B = Var_k θ̄_k,   W = mean over k of (Var_m θ̄_mk + mean over m of Var_n θ_nmk),   n-R-hat = √(1 + B/W),

    where Var_n is 0 for chains of one draw, and Var_m for superchains of one chain. While chains remember where they
    began, superchains differ, however many chains each has and however short these are. Once they have forgotten, B is
    what chance leaves, Var_m θ̄_mk / M.
    """
    means = np.asarray(state.mean)
    inside = np.asarray(state.squares) / max(1, int(state.count) - 1)
    group = superchain_of(len(means), superchains)
    size = np.bincount(group, minlength=superchains)[:, None]

    def over(values: NDArray[np.float64]) -> NDArray[np.float64]:
        starts = np.searchsorted(group, np.arange(superchains))
        return np.add.reduceat(values, starts, axis=0)

    centres = over(means) / size
    among = over((means - centres[group]) ** 2) / np.maximum(1, size - 1)
    within = (among + over(inside) / size).mean(0)
    between = centres.var(0, ddof=1) if superchains > 1 else np.zeros_like(within)
    with np.errstate(invalid="ignore", divide="ignore"):
        rhat = np.sqrt(1 + between / within)
    return Nested(rhat, between, within, (among / size).mean(0), superchains)
