"""Whether many short chains are long enough to be trusted."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtri

from lwa.diagnostics.running import Moments, Nested, effective, nested

TOLERANCE = 0.004
"""What nested R-hat may exceed 1 by, chance apart: the mean of a superchain is then 0.09 sd off at most, √0.008."""
ERROR = 0.01
"""How often chains that have forgotten their start are said to remember it, over all parameters together."""
RHAT = 1.01
"""R-hat above which chains disagree, where nothing is known of chance (Vehtari et al., 2021)."""
TIMES = 3.0
"""Autocorrelation times that a chain's draws should span: over fewer, it has not moved through the posterior once."""
LONG = 100.0
"""Autocorrelation times over which a start that was not forgotten in tune is a hundredth of the draws."""


def limits(found: Nested, chains: int, superchains: int) -> NDArray[np.float64]:
    """Nested R-hat that chains may have which have forgotten their start, of each scalar.

    Under independence, the variance between the means of K superchains over what is expected of it by chance,
    Var_m θ̄_mk / M, has the law F(K - 1, K (M - 1)). Its quantile is allowed for, and the tolerance.
    """
    if chains < 2 * superchains:  # a superchain of one chain says nothing of chance
        return np.full(len(found.rhat), RHAT)
    quantile = fdtri(superchains - 1, chains - superchains, 1 - ERROR / len(found.rhat))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(1 + quantile * found.chance / found.within) + TOLERANCE


def remembering(state: Moments, superchains: int | None, names: Sequence[str], tune: int) -> str:
    """Says so where chains still remember where they began; nothing where starts tell nothing."""
    chains = len(state.mean)
    if superchains is None or chains < 2 * superchains or int(state.count) == 0:
        return ""
    found = nested(state, superchains)
    most = limits(found, chains, superchains)
    worst = int(np.argmax(np.nan_to_num(found.rhat - most, nan=-1.0)))
    if not found.rhat[worst] > most[worst]:
        return ""
    return (
        f"Chains still remember where they began: nested R-hat of {names[worst]} is {found.rhat[worst]:.4g}, over "
        f"{superchains} groups of chains that share a start, where at most {most[worst]:.3f} is expected. "
        f"Pass tune={longer(max(100, 2 * tune))}."
    )


def scarcely_moving(state: Moments, names: Sequence[str], thinning: int, tune: int) -> str:
    """Says so where chains, or the tune of short ones, span less than a few autocorrelation times.

    τ = draws · chains / ESS, in draws, with ESS from the variance of chain means. A lower bound: a chain never seems to
    remember for longer than it is.
    """
    chains, count = len(state.mean), int(state.count)
    worth, error = effective(state)
    if chains < 2 or count < 2 or np.isnan(worth).all():
        return ""
    worst = int(np.nanargmin(worth))
    tau = count * chains / worth[worst] / (1 + 2 * error)  # with what chance may add to it left out
    if count < TIMES * tau:
        return (
            f"Each chain has {count} draws and needs about {tau:.1f} of them to forget one, of {names[worst]}: too few "
            f"to have moved through the posterior. Pass draws={longer(int(np.ceil(4 * TIMES * tau)))}, or thinning="
            f"{longer(int(np.ceil(thinning * tau)))}."
        )
    if tune < TIMES * tau * thinning and count < LONG * tau:
        return (
            f"tune={tune} is less than {TIMES:.0f} times what a chain needs to forget where it was, about "
            f"{tau * thinning:.1f} moves. Pass tune={longer(int(np.ceil(10 * tau * thinning)))}."
        )
    return ""


def longer(moves: int) -> int:
    """A round number that is no smaller."""
    step = 10 ** max(0, len(str(moves)) - 2)
    return max(10, -(-moves // step) * step)
