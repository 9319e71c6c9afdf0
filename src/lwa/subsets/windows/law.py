"""R of contiguous windows, eq. (def_R): near the current window with probability ω, else anywhere.

Windows are the numbers x = 0, …, M-1. A local proposal has probability e^{-λ|x-x'|} / Z(x); a remote one is local to a
window n' drawn uniformly. Z varies near both ends, so R is not symmetric, and n' must be summed over:

    R(x, x') = ω e^{-λ|x-x'|} / Z(x) + (1-ω) h(x'),   h(x') = M⁻¹ Σ_n' e^{-λ|n'-x'|} / Z(n').

Leaving R out of the acceptance ratio would give the first and last window 0.61 of their weight (λ = 0.1); keeping n' in
it would refuse nearly all remote jumps. Here are plain functions of scalars, which `lwa.backend.numba_jit` compiles.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.backend.numba_jit import compiled
from lwa.errors import InputError
from lwa.subsets.moves import Window

REACH = 45
"""An end is felt as x e^{-λx}, so that beyond 45/λ from it nothing is left of it in a float64."""
MOST_TABULATED = 2**24
"""Windows near an end for which Z and h may be kept: 256 MiB for both."""


class WindowLaw(NamedTuple):
    """R over M windows: Z and h near an end; both ends are alike, and between them Z and h are constant."""

    windows: int  # M
    local: float  # ω
    rate: float  # λ
    normalisers: NDArray[np.float64]  # Z(0), Z(1), …
    arrivals: NDArray[np.float64]  # h(0), h(1), …


class WindowDraws(NamedTuple):
    """The randomness of a page of transitions, drawn whatever the state; arrays are `(transitions,)`."""

    is_local: NDArray[np.bool_]
    local_u: NDArray[np.float64]
    remote: NDArray[np.int64]
    log_u: NDArray[np.float64]


def window_law(windows: int, move: Window) -> WindowLaw:
    """R over so many windows, in time and memory O(min(M, 1/λ))."""
    rate = float(move.rate)
    reach, half = math.ceil(min(REACH / rate, windows)), (windows + 1) // 2
    if min(half, reach) > MOST_TABULATED:
        raise InputError(
            f"Window(rate={move.rate}) is too small for {windows} windows: their ends would be felt everywhere. "
            f"Pass rate >= {REACH / MOST_TABULATED:.1e}, or Window(local=0) for remote jumps alone."
        )
    normalisers, arrivals = compiled(near_an_end)(windows, rate, reach)
    return WindowLaw(windows, float(move.local), rate, normalisers, arrivals)


def draw_page(rng: np.random.Generator, size: int, law: WindowLaw) -> WindowDraws:
    """`size` proposals' worth of randomness; remote windows are settled here, around uniform n'."""
    is_local, local_u = rng.random(size) < law.local, rng.random(size)
    remote = compiled(neighbours)(rng.integers(law.windows, size=size), rng.random(size), law.windows, law.rate)
    with np.errstate(divide="ignore"):  # log 0 = -inf accepts whatever has a positive weight, as it should
        return WindowDraws(is_local, local_u, remote, np.log(rng.random(size)))


def one_side(steps: int, rate: float) -> float:
    """Σ_{k=1}^{steps} e^{-λk}."""
    return math.exp(-rate) * math.expm1(-rate * steps) / math.expm1(-rate)


def normaliser(x: int, windows: int, rate: float) -> float:
    """Z(x) = Σ_j e^{-λ|j-x|} over all windows j."""
    return 1.0 + one_side(x, rate) + one_side(windows - 1 - x, rate)


def near_an_end(windows: int, rate: float, reach: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Z(x) and h(x) for x up to `reach`, or the middle.

    h sums 1/Z(n') e^{-λ|n'-x|} over n' ≤ x and n' > x; each sum follows from its neighbour's. The sum to the right
    starts at nothing, at the other end or `reach` further on, where nothing is left of how it started.
    """
    length, stop, fade = min((windows + 1) // 2, reach), min(windows, 2 * reach), math.exp(-rate)
    normalisers, arrivals = np.empty(length), np.empty(length)
    after = 0.0
    for x in range(stop - 1, -1, -1):
        here = normaliser(x, windows, rate)
        if x < length:
            normalisers[x], arrivals[x] = here, after
        after = fade * (after + 1.0 / here)
    before = 0.0
    for x in range(length):
        before = fade * before + 1.0 / normalisers[x]
        arrivals[x] = (arrivals[x] + before) / windows
    return normalisers, arrivals


def neighbour(x: int, u: float, windows: int, rate: float) -> int:
    """x' with probability e^{-λ|x-x'|} / Z(x): u cuts [0, Z(x)) into x itself, the windows below, the windows above."""
    below = one_side(x, rate)
    at = u * normaliser(x, windows, rate)
    if at < 1.0:
        return x
    if at < 1.0 + below:
        return x - steps_to(at - 1.0, x, rate)
    return x + steps_to(at - 1.0 - below, windows - 1 - x, rate)


def steps_to(at: float, most: int, rate: float) -> int:
    """The k in 1, …, most for which Σ_{j<k} e^{-λj} ≤ at < Σ_{j≤k} e^{-λj}."""
    left = 1.0 - at * math.expm1(rate) if rate < 700.0 else 0.0  # e^{-λ(k-1)} ≥ left > e^{-λk}
    if left <= 0.0:  # the far end, by rounding
        return most
    return int(min(-math.log(left) / rate, most - 1.0)) + 1


def neighbours(x: NDArray[np.int64], u: NDArray[np.float64], windows: int, rate: float) -> NDArray[np.int64]:
    """`neighbour` of each."""
    found = np.empty_like(x)
    for i in range(len(x)):
        found[i] = neighbour(x[i], u[i], windows, rate)
    return found


def propose(law: WindowLaw, x: int, is_local: bool, local_u: float, remote: int) -> int:
    """Line 2: x' ~ R(x, ·)."""
    return neighbour(x, local_u, law.windows, law.rate) if is_local else remote


def from_end(law: WindowLaw, x: int) -> int:
    """Where the tables tell of x."""
    return min(x, law.windows - 1 - x, len(law.arrivals) - 1)


def probability(law: WindowLaw, x: int, new: int) -> float:
    """R(x, x')."""
    near = math.exp(-law.rate * abs(x - new)) / law.normalisers[from_end(law, x)]
    return law.local * near + (1.0 - law.local) * law.arrivals[from_end(law, new)]


def log_hastings(law: WindowLaw, x: int, new: int) -> float:
    """log R(x', x) - log R(x, x'): what the ends are owed. Between them it is 0."""
    return math.log(probability(law, new, x) / probability(law, x, new))
