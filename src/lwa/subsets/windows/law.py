"""R of contiguous windows, eq. (def_R): near the current window with probability ω, otherwise anywhere.

Windows are the numbers x = 0, …, M-1. A local proposal has probability e^{-λ|x-x'|} / Z(x); a remote one is local to a
window n' drawn uniformly. Z varies near both ends, so R is not symmetric, and n' must be summed over:

    R(x, x') = ω e^{-λ|x-x'|} / Z(x) + (1-ω) h(x'),   h(x') = M⁻¹ Σ_n' e^{-λ|n'-x'|} / Z(n').

Without R in the acceptance ratio, the first and last window would have 0.61 of their weight (λ = 0.1). With n' in it,
nearly all remote jumps would be refused. These are plain functions of scalars, which `lwa.backend.numba_jit` compiles.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.backend.numba_jit import jit_compile
from lwa.errors import InputError
from lwa.subsets.moves import Window

END_REACH = 45
"""The effect of an end falls as x e^{-λx}: beyond 45/λ from it, nothing is left of it in a float64."""
MOST_TABULATED_WINDOWS = 2**24
"""Windows near an end whose Z and h may be kept: 256 MiB for both."""


class WindowLaw(NamedTuple):
    """R over M windows: Z and h near one end. Both ends are alike, and between them Z and h are constant."""

    windows: int  # M
    local: float  # ω
    rate: float  # λ
    normalisers: NDArray[np.float64]  # Z(0), Z(1), …
    arrivals: NDArray[np.float64]  # h(0), h(1), …


class WindowDraws(NamedTuple):
    """The randomness of a page of transitions, drawn independently of the state; arrays are `(transitions,)`."""

    is_local: NDArray[np.bool_]
    local_u: NDArray[np.float64]
    remote: NDArray[np.int64]
    log_u: NDArray[np.float64]


def build_window_law(windows: int, move: Window) -> WindowLaw:
    """Tabulate R over M windows, in time and memory O(min(M, 1/λ))."""
    rate = float(move.rate)
    reach, half = math.ceil(min(END_REACH / rate, windows)), (windows + 1) // 2
    if min(half, reach) > MOST_TABULATED_WINDOWS:
        raise InputError(
            f"Window(rate={move.rate}) is too small for {windows} windows: their ends would affect all of them. "
            f"Pass rate >= {END_REACH / MOST_TABULATED_WINDOWS:.1e}, or Window(local=0) for remote jumps alone."
        )
    normalisers, arrivals = jit_compile(tabulate_ends)(windows, rate, reach)
    return WindowLaw(windows, float(move.local), rate, normalisers, arrivals)


def draw_window_page(rng: np.random.Generator, size: int, law: WindowLaw) -> WindowDraws:
    """Draw the randomness of `size` proposals; remote windows are found here, around uniform n'."""
    is_local, local_u = rng.random(size) < law.local, rng.random(size)
    remote = jit_compile(find_neighbours)(rng.integers(law.windows, size=size), rng.random(size), law.windows, law.rate)
    with np.errstate(divide="ignore"):  # log 0 = -inf accepts whatever has a positive weight, as it should
        return WindowDraws(is_local, local_u, remote, np.log(rng.random(size)))


def sum_one_side(steps: int, rate: float) -> float:
    """Return Σ_{k=1}^{steps} e^{-λk}."""
    return math.exp(-rate) * math.expm1(-rate * steps) / math.expm1(-rate)


def normaliser(x: int, windows: int, rate: float) -> float:
    """Return Z(x) = Σ_j e^{-λ|j-x|} over all windows j."""
    return 1.0 + sum_one_side(x, rate) + sum_one_side(windows - 1 - x, rate)


def tabulate_ends(windows: int, rate: float, reach: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Z(x) and h(x) for x up to `reach`, or up to the middle.

    h sums 1/Z(n') e^{-λ|n'-x|} over n' ≤ x and n' > x; each sum follows from its neighbour's. The sum to the right
    starts at 0 at the other end, or `reach` further on, where its start makes no difference.
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


def find_neighbour(x: int, u: float, windows: int, rate: float) -> int:
    """Return x' with probability e^{-λ|x-x'|} / Z(x): u cuts [0, Z(x)) into x, the windows below, the windows above."""
    below = sum_one_side(x, rate)
    at = u * normaliser(x, windows, rate)
    if at < 1.0:
        return x
    if at < 1.0 + below:
        return x - count_steps(at - 1.0, x, rate)
    return x + count_steps(at - 1.0 - below, windows - 1 - x, rate)


def count_steps(at: float, most: int, rate: float) -> int:
    """Return the k in 1, …, most for which Σ_{j<k} e^{-λj} ≤ at < Σ_{j≤k} e^{-λj}."""
    left = 1.0 - at * math.expm1(rate) if rate < 700.0 else 0.0  # e^{-λ(k-1)} ≥ left > e^{-λk}
    if left <= 0.0:  # the far end, by rounding
        return most
    return int(min(-math.log(left) / rate, most - 1.0)) + 1


def find_neighbours(x: NDArray[np.int64], u: NDArray[np.float64], windows: int, rate: float) -> NDArray[np.int64]:
    """Return `find_neighbour` of each window."""
    found = np.empty_like(x)
    for i in range(len(x)):
        found[i] = find_neighbour(x[i], u[i], windows, rate)
    return found


def propose_window(law: WindowLaw, x: int, is_local: bool, local_u: float, remote: int) -> int:
    """Line 2: return x' ~ R(x, ·)."""
    return find_neighbour(x, local_u, law.windows, law.rate) if is_local else remote


def find_table_index(law: WindowLaw, x: int) -> int:
    """Return the place of x in the tables."""
    return min(x, law.windows - 1 - x, len(law.arrivals) - 1)


def window_probability(law: WindowLaw, x: int, new: int) -> float:
    """Return R(x, x')."""
    near = math.exp(-law.rate * abs(x - new)) / law.normalisers[find_table_index(law, x)]
    return law.local * near + (1.0 - law.local) * law.arrivals[find_table_index(law, new)]


def log_window_ratio(law: WindowLaw, x: int, new: int) -> float:
    """Return log R(x', x) - log R(x, x'), which is 0 away from both ends."""
    return math.log(window_probability(law, new, x) / window_probability(law, x, new))
