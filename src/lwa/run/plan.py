"""SubsetPlan: how subsets move for a target. It is settled on their chain alone, before θ exists: it biases nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from lwa.algorithm import Subset
from lwa.data.data import Data
from lwa.errors import InputError, warn
from lwa.run.design import Design, Designer, prefers_second_order
from lwa.run.pilot import predict_error, predict_excess_sd, score_points
from lwa.run.settings import MOST_ROWS, Settings
from lwa.run.windows import SequenceFacts, build_window_chain
from lwa.subsets.bandwidth import find_epsilon, find_random_distance
from lwa.subsets.chain import Chain, SubsetChain
from lwa.subsets.moves import Fixed, Swap
from lwa.subsets.tape import count_page_proposals
from lwa.summaries import AdditiveStatistic, Curvature, SubsetStatistic
from lwa.targets.calibration import build_expansion, calibrate
from lwa.targets.reference import Reference
from lwa.targets.target import Target

EVERY = 4
"""If subsets are transported, all have the same curvature, so θ's law hardly depends on how fast they move, while a new
A_U costs more than a move of θ: 5.3 µs per move with every=1, 2.3 with 4 (`benchmarks/choices.py`, n = 100)."""
RENEWED = 100
"""Transported subsets exchange so many rows at a time that U is renewed in this many proposals: all are accepted."""
KNOWN = 4
"""A proposal with a row that U already holds is rejected: with at most N/4n rows, one in e^(1/4) is accepted, 78 %."""
SMALLEST_SIZE, GROWTH = 100, 1.5
"""subset_size="auto" starts at this size and grows by this factor."""
PILOT_CHAINS = range(8)
WINDOW_PAIRS = 16
"""Pairs of points at which the error of windows is predicted."""
ACCEPTABLE_ERROR = 0.05
"""Predicted error of sds above which lwa warns before sampling."""
ROWS_PER_PARAMETER = 10
"""Rows per parameter with which a subset's curvature is far from singular."""
LARGEST_CARRIED = 2**31
"""Bytes of curvature that all chains' subsets may carry."""


@dataclass(frozen=True)
class SubsetPlan:
    """The chain of subsets with everything settled, the target given them, and each cohort's first subset."""

    subsets: Chain
    target: Target
    firsts: list[tuple[list[int], Subset]]  # the chains of each cohort, and where their subsets begin
    refresh_rate: float
    predicted: float | None  # relative error of sds because curvature varies with U; None if unknown
    random_distance: float | None  # ‖S̄(Y_U) - s_N‖ of subsets that are only random; None without a statistic

    @property
    def renewal(self) -> float:
        """Transitions in which every slot of U is renewed once."""
        return self.subsets.renewing * self.subsets.move.every / self.refresh_rate if self.refresh_rate else np.inf

    @property
    def in_words(self) -> str:
        """How subsets are chosen and corrected."""
        subsets, expansion = self.subsets, self.target.expansion
        by_statistics = f"Subsets drawn by their statistics, epsilon {subsets.epsilon:.3g}"
        if subsets.size == subsets.largest and not np.isfinite(subsets.renewing):
            return "Every step reads all of them: the target is the posterior itself"
        uniform = "Subsets drawn by influence" if subsets.by_leverage else "Subsets drawn uniformly"
        words = [by_statistics if subsets.statistic.dimension else uniform]
        if subsets.strata is not None:
            words.append(f"groups drawn from {len(subsets.strata.slots)} strata of size")
        if subsets.calibration is not None and subsets.calibration.frame is not None:
            words.append("curvature corrected to that of all rows")
        if expansion is not None and expansion.share is not None:
            words.append("curvature taken from all rows")
        if self.predicted is not None:
            words.append(f"draws predicted to be right to {self.predicted:.2g} posterior sds")
        if np.isfinite(self.renewal):
            words.append(f"all rows of a subset replaced in {self.renewal:,.0f} steps")
        return ", ".join(words)


@dataclass(frozen=True)
class Planner:
    """What all trials of a subset size share."""

    data: Data
    settings: Settings
    statistic: SubsetStatistic
    reference: Reference | None
    facts: SequenceFacts | None

    def build_chain(self, design: Design) -> Chain:
        """Return the chain of subsets of a design, ε apart."""
        data, settings, statistic, reference = self.data, self.settings, self.statistic, self.reference
        if data.ordered:
            return build_window_chain(
                data, settings, design.n, statistic, reference=reference, facts=self.facts, every=EVERY
            )
        additive = cast(AdditiveStatistic, statistic)  # of rows or groups, which add up
        return build_subset_chain(data, settings, design, additive, reference=reference)

    def try_design(self, design: Design, cohorts: Sequence[list[int]]) -> SubsetPlan:
        """Find ε if it was not given, burn every cohort's subsets in, and return the plan."""
        chain = self.build_chain(design)
        if self.settings.epsilon is None:
            chain = chain.with_epsilon(find_epsilon(chain) if chain.weighs else np.inf)
        firsts, rates = [], []
        for chains in cohorts:
            U, rate = chain.burn_in(chain.start(chains), chains)
            if np.isfinite(chain.reach):
                require_definite(np.asarray(U.distance), chain.n, len(chain.rows))
            firsts.append((chains, chain.move_until_feasible(U, chains)))
            rates.append(rate)
        predicted = design.predicted
        if np.isfinite(chain.reach) and self.reference is not None:
            predicted = predict_excess_sd(chain, self.reference, [U for _, U in firsts])
        return SubsetPlan(
            subsets=chain, target=build_target(self.data, self.settings, design, self.reference), firsts=firsts,
            refresh_rate=float(np.mean(rates)), predicted=predicted,
            random_distance=find_random_distance(chain) if chain.statistic.dimension else None,
        )  # fmt: skip


def plan_subsets(
    data: Data, settings: Settings, statistic: SubsetStatistic, *, reference: Reference | None,
    facts: SequenceFacts | None, cohorts: Sequence[list[int]], rows_per_second: float,
) -> SubsetPlan:  # fmt: skip
    """Return how subsets move, for chains in these cohorts; a budget bounds n by `rows_per_second` of passes."""
    planner = Planner(data, settings, statistic, reference, facts)
    designer = Designer(data, settings, reference)
    if data.ordered and reference is not None and not data.model.in_python and settings.subset_size is not None:
        return plan_windows(planner, settings.subset_size, reference, cohorts)
    if settings.subset_size is not None:
        design = designer.choose(settings.subset_size)
        return planner.try_design(designer.enlarge(design) if settings.grows else design, cohorts)
    assert reference is not None
    assert settings.calibration is not None
    scored = score_points(data.model, data.full, reference, settings.seed)
    for n, last in list_sizes(data, settings, rows_per_second):
        try:
            design = designer.choose(n)
            pilot = planner.try_design(design, [list(PILOT_CHAINS)])
            error = pilot.predicted
            if error is None or not design.second_order:
                error = predict_error(pilot.subsets, pilot.target, pilot.firsts[0][1], reference, scored)
            if error <= settings.calibration.tolerance or last:
                return replace(planner.try_design(design, cohorts), predicted=error)
        except InputError:  # so few rows cannot work at all
            if last:
                raise
    raise AssertionError("unreachable: the last size returns or raises")


def plan_windows(planner: Planner, n: int, reference: Reference, cohorts: Sequence[list[int]]) -> SubsetPlan:
    """Return the plan for windows of n steps, or of more if the user named no number and the error asks for it."""
    data, settings, error = planner.data, planner.settings, np.inf
    most = min(data.available, MOST_ROWS) if settings.grows else n
    scored = score_points(data.model, data.full, reference, settings.seed, pairs=WINDOW_PAIRS)
    while True:
        try:
            pilot = planner.try_design(Design(n), [list(PILOT_CHAINS)])
            error = predict_error(pilot.subsets, pilot.target, pilot.firsts[0][1], reference, scored)
        except InputError:  # so few steps cannot work at all
            if n >= most:
                raise
        if error <= ACCEPTABLE_ERROR or n >= most:
            return replace(planner.try_design(Design(n), cohorts), predicted=error)
        n = min(2 * n, most)


def list_sizes(data: Data, settings: Settings, rows_per_second: float) -> Iterator[tuple[int, bool]]:
    """Yield growing subset sizes, each with whether it is the largest that data, budget and memory allow."""
    d = data.model.dimension
    carried = not (data.ordered or prefers_second_order(data, settings))
    room = LARGEST_CARRIED / (4 * d * (d + 3) * settings.chains) if carried else np.inf
    n = min(SMALLEST_SIZE, data.available)
    most = max(n, int(min(data.available, count_affordable_rows(settings, data.available, rows_per_second), room)))
    while n < most:
        yield n, False
        n = int(GROWTH * n)
    yield most, True


def count_affordable_rows(settings: Settings, N: int, rows_per_second: float) -> float:
    """Return the largest n with which the draws fit half the budget, at the speed of the passes made so far."""
    moves = settings.chains * (settings.tune + 2 * (1000 if settings.filling else settings.draws))
    affordable = min(settings.budget.rows, settings.budget.seconds * rows_per_second) / (2 * moves)
    return max(1.0, min(N, affordable))


def build_target(data: Data, settings: Settings, design: Design, reference: Reference | None) -> Target:
    """Return the target of θ given subsets of a design."""
    expansion = None
    if reference is not None:
        whole = not data.ordered and design.n == data.scored
        expansion = build_expansion(reference, second_order=design.second_order, whole=whole)
    return Target(data.model, settings.target.power(design.n, data.scored), expansion)


def build_subset_chain(
    data: Data, settings: Settings, design: Design, statistic: AdditiveStatistic, *, reference: Reference | None
) -> SubsetChain:
    """Return the chain of subsets of n rows or groups, ε apart."""
    calibration, reach, n, N = None, np.inf, design.n, len(data.full)
    move, options = settings.subset_move or Swap(1), settings.calibration
    if reference is not None and options is not None:
        if isinstance(settings.summary, Curvature):
            statistic, reach = settings.summary.at(data.model, reference, N), 1.0
        transport = n < N if options.transport == "auto" else bool(options.transport)
        if settings.subset_move is None and n == N:
            move = Fixed()
        elif settings.subset_move is None and (transport or design.second_order):
            move = Swap(1 if statistic.dimension else count_exchanged_rows(n, N), every=EVERY)
        if not design.second_order:
            calibration = calibrate(data.model, reference, options.power(n, data.scored), transport=transport)
    subsets = SubsetChain(
        rows=data.full, statistic=statistic, move=move, weight=settings.subset_weight, epsilon=settings.epsilon or 1.0,
        n=n, seed=settings.seed, page=1, calibration=calibration, leverage=design.cut(data.full), reach=reach,
    )  # fmt: skip
    subsets = subsets.exchange_seldom() if settings.subset_move is None else subsets
    return replace(subsets, page=count_page_proposals(subsets, data.model.dimension, settings.chains))


def count_exchanged_rows(n: int, N: int) -> int:
    """Return k: as many rows as renew U soon, but few enough that U is unlikely to hold one of them already."""
    return max(1, min(n // RENEWED, N // (KNOWN * n)))


def require_room(data: Data, settings: Settings) -> None:
    """Raise, before any pass over the rows, if there are too many parameters for subsets to carry their curvature."""
    d, N, move, options = data.model.dimension, data.available, settings.subset_move, settings.calibration
    n = data.slots(settings.subset_size or SMALLEST_SIZE)
    fixed = move is not None and move.replaced(n) == 0
    if options is None or options.transport is False or prefers_second_order(data, settings) or fixed:
        return
    if (size := 4 * d * (d + 3) * n * settings.chains) > LARGEST_CARRIED and n < N:
        enough = min(N, max(n, ROWS_PER_PARAMETER * d))
        raise InputError(
            f"With {d} parameters, subset_size={n} and {settings.chains} chains, moving subsets would carry "
            f"{size / 2**30:.0f} GiB of curvature along. Pass subset_move=lwa.subsets.Fixed() with "
            f"subset_size={enough}: one subset per chain, which carries none; fit.polish() corrects what that leaves.",
            advice={"subset_move": Fixed(), "subset_size": enough},
        )


def require_definite(distance: NDArray[np.float64], n: int, N: int) -> None:
    """Raise if a subset's curvature is so far from that of all rows that it need not be positive definite."""
    if (worst := float(distance.max())) >= 1.0:
        enough = min(N, int(np.ceil(n * (worst / 0.5) ** 2)))  # distances fall like 1/√n
        raise InputError(
            f"subset_size={n} is too small for the calibrated target: a subset's curvature differs from that of all "
            f"rows by {worst:.2g} of it, and must differ by less than 1. Pass subset_size={enough}, or less epsilon.",
            advice={"subset_size": enough},
        )


def warn_of_error(plan: SubsetPlan, settings: Settings) -> list[str]:
    """Warn before the first move if draws are predicted to be off, and return the warning."""
    if plan.predicted is None or plan.predicted <= ACCEPTABLE_ERROR or settings.calibration is None or settings.exact:
        return []
    n, N = plan.subsets.size, plan.subsets.largest
    enough = int(min(N, np.ceil(n * plan.predicted / settings.calibration.tolerance)))
    remark = (
        f"With subset_size={n} draws are predicted to be off by {plan.predicted:.0%} of a posterior sd: what the rows "
        f"of a subset add varies from subset to subset. Pass subset_size={enough}, whose steps read "
        f"{enough / n:.0f} times as many rows, or exact=True, which reads all {N:,} rows per draw."
    )
    warn(remark, advice={"subset_size": enough})
    return [remark]
