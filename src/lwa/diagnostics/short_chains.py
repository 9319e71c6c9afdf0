"""Whether many short chains are long enough to be trusted."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtri

from lwa.diagnostics.running import ChainMoments, NestedRhat, compute_nested_rhat, effective_draws_from_means
from lwa.errors import LwaWarning

RHAT_TOLERANCE = 0.004
"""By how much nested R-hat may exceed 1 beyond chance: superchain means are then off by at most √0.008 = 0.09 sd."""
FALSE_ALARMS = 0.01
"""How often a warning says that chains remember their start although they do not, over all parameters together."""
RHAT_LIMIT = 1.01
"""R-hat above which chains disagree, if nothing is known of chance (Vehtari et al., 2021)."""
FEWEST_TIMES = 3.0
"""Autocorrelation times that a chain's draws should span: over fewer, it has not moved through the posterior once."""
LONG_RUN_TIMES = 100.0
"""Autocorrelation times over which a start that tune did not forget is a hundredth of the draws."""


def rhat_limits(found: NestedRhat, chains: int, superchains: int) -> NDArray[np.float64]:
    """Return, for each scalar, the largest nested R-hat to expect of chains that have forgotten their start.

    Under independence, the variance between the means of K superchains over its expected value by chance,
    Var_m θ̄_mk / M, has the law F(K - 1, K (M - 1)). The limit is the quantile of that law plus the tolerance.
    """
    if chains < 2 * superchains:  # superchains of one chain do not show what chance leaves
        return np.full(len(found.rhat), RHAT_LIMIT)
    quantile = fdtri(superchains - 1, chains - superchains, 1 - FALSE_ALARMS / len(found.rhat))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(1 + quantile * found.chance / found.within) + RHAT_TOLERANCE


def describe_remembered_starts(
    state: ChainMoments, superchains: int | None, names: Sequence[str], tune: int
) -> LwaWarning | None:
    """Return a warning if chains still remember where they began; None if not, or if no chains shared a start."""
    chains = len(state.mean)
    if superchains is None or chains < 2 * superchains or int(state.count) == 0:
        return None
    found = compute_nested_rhat(state, superchains)
    most = rhat_limits(found, chains, superchains)
    worst = int(np.argmax(np.nan_to_num(found.rhat - most, nan=-1.0)))
    if not found.rhat[worst] > most[worst]:
        return None
    longer = round_up(max(100, 2 * tune))
    return LwaWarning(
        f"Chains still remember where they began: nested R-hat of {names[worst]} is {found.rhat[worst]:.4g}, over "
        f"{superchains} groups of chains that share a start; at most {most[worst]:.3f} is expected. "
        f"Pass tune={longer}.",
        advice={"tune": longer},
    )


def describe_slow_chains(state: ChainMoments, names: Sequence[str], thinning: int, tune: int) -> LwaWarning | None:
    """Return a warning if chains, or the tune of short ones, span too few autocorrelation times.

    τ = draws · chains / ESS, in draws, with ESS from the variance of chain means. This is a lower bound: a chain never
    seems to remember for longer than it is.
    """
    chains, count = len(state.mean), int(state.count)
    worth, error = effective_draws_from_means(state)
    if chains < 2 or count < 2 or np.isnan(worth).all():
        return None
    worst = int(np.nanargmin(worth))
    tau = count * chains / worth[worst] / (1 + 2 * error)  # without what chance may add to it
    if count < FEWEST_TIMES * tau:
        more = round_up(int(np.ceil(4 * FEWEST_TIMES * tau)))
        return LwaWarning(
            f"Each chain has {count} draws, and the autocorrelation time of {names[worst]} is about {tau:.1f} draws: "
            "too few to have moved through the posterior. "
            f"Pass draws={more}, or thinning={round_up(int(np.ceil(thinning * tau)))}.",
            advice={"draws": more},
        )
    if tune < FEWEST_TIMES * tau * thinning and count < LONG_RUN_TIMES * tau:
        longer = round_up(int(np.ceil(10 * tau * thinning)))
        return LwaWarning(
            f"tune={tune} is less than {FEWEST_TIMES:.0f} autocorrelation times of {names[worst]}, each about "
            f"{tau * thinning:.1f} moves. Pass tune={longer}.",
            advice={"tune": longer},
        )
    return None


def round_up(moves: int) -> int:
    """Return a number with two significant digits that is no smaller, and at least 10."""
    step = 10 ** max(0, len(str(moves)) - 2)
    return max(10, -(-moves // step) * step)
