"""Whether many short chains are long enough to be trusted."""

from collections.abc import Sequence

import numpy as np
from scipy.special import fdtri

from lwa.diagnostics.running import Moments, effective, nested

TOLERANCE = 0.004
"""What nested R-hat may exceed 1 by, chance apart: the mean of a superchain is then 0.09 sd off at most, √0.008."""
ERROR = 0.01
"""How often chains that have forgotten their start are said to remember it, over all parameters together."""
TIMES = 3.0
"""Autocorrelation times that a chain's draws should span: over fewer, it has not moved through the posterior once."""


def remembering(state: Moments, superchains: int | None, names: Sequence[str], tune: int) -> str:
    """Says so where chains still remember where they began; nothing where starts tell nothing.

    Under independence, the variance between the means of K superchains over what is expected of it by chance,
    Var_m θ̄_mk / M, has the law F(K - 1, K (M - 1)). It must exceed its quantile, and n-R-hat the tolerance besides.
    """
    chains, count = len(state.mean), int(state.count)
    if superchains is None or chains < 2 * superchains or count == 0:
        return ""
    found = nested(state, superchains)
    chance = fdtri(superchains - 1, chains - superchains, 1 - ERROR / len(names))
    excess = np.nan_to_num((found.between - chance * found.chance) / found.within)
    worst = int(np.argmax(excess))
    if excess[worst] <= (1 + TOLERANCE) ** 2 - 1:
        return ""
    return (
        f"Chains still remember where they began: nested R-hat of {names[worst]} is {found.rhat[worst]:.4g}, over "
        f"{superchains} groups of chains that share a start, where at most "
        f"{np.sqrt(1 + chance * found.chance[worst] / found.within[worst]) + TOLERANCE:.3f} is expected. "
        f"Pass tune={longer(max(100, 2 * tune))}."
    )


def scarcely_moving(state: Moments, names: Sequence[str], thinning: int, tune: int) -> str:
    """Says so where chains, or their tune, span less than a few autocorrelation times.

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
    if tune < TIMES * tau * thinning:
        return (
            f"tune={tune} is less than {TIMES:.0f} times the {tau * thinning:.0f} moves in which a chain forgets where "
            f"it was. Pass tune={longer(int(np.ceil(10 * tau * thinning)))}."
        )
    return ""


def longer(moves: int) -> int:
    """A round number that is no smaller."""
    step = 10 ** max(0, len(str(moves)) - 2)
    return max(10, -(-moves // step) * step)
