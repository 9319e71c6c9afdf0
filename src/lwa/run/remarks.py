"""What a user should know about the draws of a finished run, and what to pass instead."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.long_chains import find_slow_chains
from lwa.diagnostics.running import MANY_CHAINS, collect_moments
from lwa.diagnostics.short_chains import LONG_RUN_TIMES, describe_remembered_starts, describe_slow_chains, round_up
from lwa.errors import LwaWarning, describe_arguments
from lwa.result.result import UNCONSTRAINED_GROUP
from lwa.run.begin import Run
from lwa.run.budget import Budget, RowReads
from lwa.run.escape import find_escape, stack_theta
from lwa.run.loop import Outcome
from lwa.run.settings import MOST_ROWS
from lwa.targets.target import Powered

RARELY = 1e-3
"""Share of moves without a valid subset, below which the draws do not show it and lwa does not warn."""
AT_THE_EDGE = 0.9
"""Share of the distance at which the calibrated target ends: 27 sds and more. Of a posterior like Student's t with 3
degrees of freedom, one draw in 10,000 is out there."""

type Groups = Mapping[str, Mapping[str, NDArray[Any]]]
"""Draws by group and name."""


def find_remarks(run: Run, outcome: Outcome, draws: Groups, names: Sequence[str]) -> list[LwaWarning]:
    """Return all warnings about the draws, of whose scalars these are the names."""
    remarks = find_faults(run, outcome, draws["sample_stats"])
    if not next(iter(draws["posterior"].values())).size:
        return remarks
    if run.problem.reference is not None:
        theta = stack_theta(run.data.given, draws.get(UNCONSTRAINED_GROUP) or draws["posterior"])
        with jax.enable_x64(True):
            escape = (None if run.settings.exact else find_escape(run, theta)) or find_edge(run, outcome, theta)
        remarks += [escape] if escape else []
    of_chains = find_short_chain_remarks if run.settings.chains > MANY_CHAINS else find_long_chain_remarks
    return remarks + of_chains(run, outcome, draws["posterior"], names)


def find_faults(run: Run, outcome: Outcome, stats: Mapping[str, NDArray[Any]]) -> list[LwaWarning]:
    """Return warnings about what went wrong on the way."""
    remarks, size = list[LwaWarning](), run.subset_size
    if outcome.stopped:
        remarks.append(LwaWarning(f"Stopped early: {outcome.stopped.removesuffix('.')}."))
    if outcome.invalid:
        share = outcome.invalid / max(1, outcome.moves * run.settings.chains)
        text = (
            f"{outcome.invalid} proposals ({share:.1%}) had a log target that was NaN or +inf and were rejected. "
            "Fix the model there, or give those values log density -inf."
        )
        remarks.append(LwaWarning(text))
    diverging = stats.get("diverging", np.zeros(0, bool))
    if diverging.any():
        text = (
            f"Trajectories diverged before {diverging.sum()} of the kept draws ({diverging.mean():.1%}): regions that "
            "need shorter steps are visited too rarely. Pass a larger target_accept to the kernel, or reparametrise "
            "the model."
        )
        remarks.append(LwaWarning(text))
    if (lag := estimate_mode_step(run)) > 2.0 * run.settings.refresh_steps**0.5:
        whole = run.problem.subsets.replaced == run.problem.subsets.n
        advice = ({} if whole else {"subset_size": int(lag * size / 2) + 1}) | {"refresh_steps": int(lag**2 / 4) + 1}
        text = (
            f"Each change of the subset moves its mode by about {lag:.0f} posterior sds, faster than theta follows, so "
            f"the draws lag behind. Pass {describe_arguments(advice)} or target='subposterior'."
        )
        remarks.append(LwaWarning(text, advice=advice))
    if outcome.infeasible >= RARELY:
        text = (
            f"In {outcome.infeasible:.1%} of the moves the subset's curvature was not positive definite and theta held "
            f"still. Pass subset_size={min(2 * size, run.data.available)}."
        )
        remarks.append(LwaWarning(text, advice={"subset_size": min(2 * size, run.data.available)}))
    if stats["lp"].size and (rate := float(stats["acceptance_rate"].mean())) < 0.05:
        advice = {"tune": 4 * max(run.settings.tune, 250)}
        text = f"Only {rate:.1%} of the moves were accepted: the kernel did not adapt."
        if run.settings.exact:
            advice = {"subset_size": min(4 * size, run.data.available)}
            text = f"Only {rate:.1%} of the corrections were accepted: subsets differ too much from all rows."
        remarks.append(LwaWarning(f"{text} Pass {describe_arguments(advice)}.", advice=advice))
    return remarks


def estimate_mode_step(run: Run) -> float:
    """Return how far the powered target's mode moves if k of n rows are exchanged, in sds of the N-row posterior.

    To first order the mode moves by H_N⁻¹ (N/n) Σ (g_in - g_out), and rows' gradients have variance H_N / N if the
    model is right: √(2 k N) / n along any direction, whatever the model.
    """
    settings, subsets, N, n = run.settings, run.problem.subsets, run.survey.length, run.subset_size
    if not isinstance(settings.target, Powered) or settings.exact or subsets.n == len(subsets.rows):
        return 0.0
    exchanged = n * subsets.replaced / subsets.n  # all steps of a window, at a remote jump
    return float(np.sqrt(2 * exchanged * N) / n)


def find_long_chain_remarks(
    run: Run, outcome: Outcome, posterior: Mapping[str, NDArray[Any]], names: Sequence[str]
) -> list[LwaWarning]:
    """Return a warning if few chains are worth too little, or disagree, with how many draws would do."""
    settings, made = run.settings, next(iter(posterior.values())).shape[1]
    count = made if outcome.running is None else int(outcome.running.moments.count)
    slow = find_slow_chains(posterior, names, count)
    if slow is None:
        return []
    if settings.filling or outcome.stopped:
        advice = enlarge_budget(settings.budget, slow.lacking)
    else:
        advice = {"draws": round_up(int(np.ceil(slow.lacking * count)))}
        if not slow.agree:
            advice["tune"] = round_up(max(1000, 4 * settings.tune))
    longer = f"Pass {describe_arguments(advice)}." if advice else "Let it run longer."
    if slow.agree:
        text = (
            f"The {settings.chains * count:,} draws of {slow.name} are worth {slow.worth:.0f} independent ones (R-hat "
            f"{slow.rhat:.3f}), so its mean is known to {slow.worth**-0.5:.2f} sd at best. {longer}"
        )
    else:
        text = (
            f"Chains disagree on {slow.name} (R-hat {slow.rhat:.2f}): these are not yet draws of one posterior. "
            f"{longer} If chains stay apart, it has several modes or a direction that is hardly identified: "
            "reparametrise the model, or give it a stronger prior."
        )
    return [LwaWarning(text, advice=advice)]


def enlarge_budget(budget: Budget, factor: float) -> dict[str, Any]:
    """Return the argument for a budget so many times as large; none if there was no budget."""
    if np.isfinite(budget.seconds):
        return {"budget": f"{factor * budget.seconds:.0f} s"}
    return {"budget": RowReads(int(factor * budget.rows))} if np.isfinite(budget.rows) else {}


def find_edge(run: Run, outcome: Outcome, theta: NDArray[np.float64]) -> LwaWarning | None:
    """Return a warning if draws came to where the calibrated target ends."""
    reference, data, expansion = run.problem.reference, run.data, run.problem.target.expansion
    end = np.inf if expansion is None else float(expansion.radius)  # infinite if a subset is all rows
    if reference is None or (outcome.furthest <= AT_THE_EDGE * end and not run.settings.exact):
        return None
    if (furthest := reference.furthest(theta)) <= AT_THE_EDGE * end:
        return None
    where = (
        f"The furthest draw is {furthest:.0f} posterior sds from the mode, and the calibrated target ends at {end:.0f}"
    )
    if run.settings.exact:
        whole = {"subset_size": data.available, "exact": False}
        return LwaWarning(f"{where}: the posterior is cut off there. Pass {describe_arguments(whole)}.", advice=whole)
    advice = {"exact": True} if data.ordered or data.available > MOST_ROWS else {"subset_size": data.available}
    return LwaWarning(
        f"{where}: chains left the region in which subsets stand for all rows. They are an escape and no draws of the "
        f"posterior. Pass {describe_arguments(advice)}.",
        advice=advice,
    )


def find_short_chain_remarks(
    run: Run, outcome: Outcome, posterior: Mapping[str, NDArray[Any]], names: Sequence[str]
) -> list[LwaWarning]:
    """Return warnings about many short chains."""
    planned = run.plan
    state = collect_moments(posterior) if outcome.running is None else outcome.running.moments
    remarks = [
        describe_remembered_starts(state, run.superchains, names, outcome.tuned),
        describe_slow_chains(state, names, outcome.thinning, outcome.tuned),
    ]
    # A uniform U begins with its own law, and the calibrated target hardly depends on it; elsewhere θ follows U.
    follows = run.problem.reference is None or run.problem.subsets.statistic.dimension > 0
    if follows and outcome.tuned < planned.renewal < np.inf and outcome.moves < LONG_RUN_TIMES * planned.renewal:
        longer = round_up(int(np.ceil(planned.renewal)))
        text = (
            f"tune={outcome.tuned} is less than the {planned.renewal:,.0f} moves in which a subset replaces all its "
            "rows, and theta follows the subset: chains still depend on the rows that they began with. "
            f"Pass tune={longer}."
        )
        remarks.append(LwaWarning(text, advice={"tune": longer}))
    return [remark for remark in remarks if remark]
