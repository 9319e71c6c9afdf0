"""How U is to be moved for a given target: by which statistic, from which rows, how many of them, how transported.

All of it is settled on the U chain alone, before θ exists, so it biases nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lwa.algorithm import Subset
from lwa.backend import xla
from lwa.backend.random import Purpose, generator
from lwa.data.data import Layout
from lwa.data.lead_in import SequenceMemory
from lwa.engine.cohort import page_length
from lwa.errors import InputError
from lwa.models.model import Model
from lwa.models.sums import split_into_blocks
from lwa.rows import Rows
from lwa.rows.units import build_windows
from lwa.run.pilot import excess_sd, predicted_error, score_points
from lwa.run.settings import Settings
from lwa.subsets.bandwidth import find_epsilon, find_random_distance
from lwa.subsets.chain import Chain, SubsetChain
from lwa.subsets.leverage import Leverage, find_leverage
from lwa.subsets.moves import Fixed, Move, Swap, Window
from lwa.subsets.windows.chain import WindowChain
from lwa.summaries import Curvature, WindowStatistic
from lwa.summaries.running_sums import RunningSums
from lwa.summaries.summary import NO_STATISTIC
from lwa.targets.calibration import Calibration, calibrate, expansion_of, identified_by_rows
from lwa.targets.reference import Reference, sum_batches
from lwa.targets.target import Target

EVERY = 4
"""Where U is transported all subsets have the same curvature, so θ's law hardly depends on how fast U moves, while a
new A_U costs more than a move of θ: 5.3 µs a move with every=1, 2.3 with 4 (`benchmarks/choices.py`, n = 100)."""
RENEWED = 100
"""... and as many rows come in at a time as renew U in so many proposals. Φ plays no part, so all are accepted."""
KNOWN = 4
"""A proposal with a row that U holds already is refused: with at most N/4n rows, one in e^(1/4) is accepted, 78 %."""
SMALLEST, STEP = 100, 1.5
"""subset_size="auto" begins here and grows by this factor."""
PILOT_CHAINS = range(8)
PILOT_SUBSETS = 8
WEAKEST = 0.15
"""Leverage is used where a uniform subset has less than this share of all rows' curvature along some direction. Normal
covariates leave 0.47 at n = 10 d; a dummy that five rows of U have leaves less in one subset of 25."""
FEASIBLE = 0.9
"""Fewer subsets than this share with a positive definite curvature: n is refused."""
ROWS_A_PARAMETER = 10
"""Rows of a subset for each parameter, with which its curvature is well away from singular."""
LARGEST_CARRIED = 2**31
"""Bytes of curvature that all chains' subsets may carry."""
LARGEST_TRANSPORTED = 12
"""Parameters from which on rows are expanded to second order instead: A_U costs d³. On a GPU always: U then brings
nothing along, and can be moved where θ is."""


class WindowColumn(NamedTuple):
    """S of windows, and the column that it summarises, series after series."""

    statistic: WindowStatistic
    column: NDArray[Any]


class Steps(NamedTuple):
    """What is known of a sequence at θ̂."""

    memory: SequenceMemory
    sums: RunningSums | None  # None: there is no room for them

    def needed(self, n: int, N: int) -> float:
        """Steps that must lead in for a window's gradient to be the difference of running sums, as if it knew all."""
        return self.memory.lead_in(n, N) if self.memory.forgets(n, N) else np.inf


@dataclass(frozen=True)
class Plan:
    """The U chain with everything settled, and each cohort's first subset."""

    subsets: Chain
    firsts: list[tuple[list[int], Subset]]
    refresh_rate: float
    predicted: float | None  # by how much sds are off because curvature varies with U; None where it is not tracked
    random_distance: float | None  # ‖S̄(Y_U) - s_N‖ of subsets that are only random; None without a statistic

    @property
    def renewal(self) -> float:
        """Transitions in which every slot of U is renewed once."""
        return self.subsets.renewing * self.subsets.move.every / self.refresh_rate if self.refresh_rate else np.inf


def plan(
    layout: Layout,
    settings: Settings,
    statistic: Any,
    reference: Reference | None,
    cohorts: Sequence[list[int]],
    most_rows: float,
    steps: Steps | None = None,
) -> Plan:
    """Settle how U moves; `statistic` is S where a pass has gathered it, `most_rows` what a budget allows n to be."""
    found: list[Leverage] = []

    def tried(n: int, cohorts: Sequence[list[int]]) -> Plan:
        if layout.ordered:
            return settled(window_chain(layout, settings, n, statistic, reference, steps), settings, reference, cohorts)
        if reference is not None and not found and leverage_helps(layout, settings, n, reference):
            found.append(find_leverage(layout.model, layout.full, reference))
        chain = subset_chain(layout, settings, n, statistic, reference, found[0] if found else None)
        return settled(chain, settings, reference, cohorts)

    if settings.subset_size is not None:
        return tried(settings.subset_size, cohorts)
    assert reference is not None
    scored = score_points(layout.model, layout.full, reference, settings.seed)

    def error_of(pilot: Plan) -> float:
        if pilot.predicted is not None:
            return pilot.predicted
        target = target_of(layout, settings, pilot.subsets.size, reference)
        return predicted_error(pilot.subsets, target, pilot.firsts[0][1], reference, scored)

    d = layout.model.dimension
    carried = not (layout.ordered or second_order(layout, settings))
    room = LARGEST_CARRIED / (4 * d * (d + 3) * settings.chains) if carried else np.inf
    n = min(SMALLEST, layout.available)
    most = max(n, int(min(layout.available, most_rows, room)))
    while True:
        try:
            pilot = tried(min(n, most), [list(PILOT_CHAINS)])
            if (error := error_of(pilot)) <= settings.tolerance or n >= most:
                return replace(tried(min(n, most), cohorts), predicted=error)
        except InputError:  # so few rows cannot work at all
            if n >= most:
                raise
        n = int(STEP * n)


def second_order(layout: Layout, settings: Settings) -> bool:
    """Whether the calibrated target takes H_N for U's curvature, so that U need not be transported."""
    if settings.target != "calibrated" or layout.ordered or layout.model.host:
        return False
    if settings.transport == "auto":
        return settings.summary is None and (layout.model.dimension > LARGEST_TRANSPORTED or xla.accelerated())
    return settings.transport == "second_order"


def target_of(layout: Layout, settings: Settings, n: int, reference: Reference | None) -> Target:
    """What θ is scored by, given subsets of n."""
    expansion = None
    if reference is not None:
        expansion = expansion_of(reference, second_order=second_order(layout, settings))
    return Target(layout.model, layout.power(settings.target, n), expansion)


def subset_chain(
    layout: Layout,
    settings: Settings,
    n: int,
    statistic: Any,
    reference: Reference | None,
    leverage: Leverage | None,
) -> Chain:
    """The U chain of n rows or groups, ε apart."""
    model, rows, calibration, reach = layout.model, layout.full, None, np.inf
    N = len(rows)
    move = settings.subset_move or Swap(1)
    if reference is not None:
        if isinstance(settings.summary, Curvature):
            statistic, reach = settings.summary.at(model, reference, N), 1.0
        elif settings.summary is None:
            statistic = NO_STATISTIC
        expanded = second_order(layout, settings)
        transport = n < N if settings.transport == "auto" else bool(settings.transport)
        if settings.subset_move is None and (transport or expanded):
            move = Swap(1 if statistic.dimension else exchanged(n, N), every=EVERY)
        if not expanded:
            calibration = calibrate(model, reference, layout.power(settings.target, n), transport=transport)
    leverage = None if leverage is None else leverage.cut(n)
    page = page_size(model, rows, statistic, move, n, calibration, settings.chains)
    return SubsetChain(
        rows, statistic, move, settings.subset_weight, settings.epsilon or 1.0, n, settings.seed, page, calibration,
        leverage, reach,
    )  # fmt: skip


def exchanged(n: int, N: int) -> int:
    """k: as many rows as renew U soon, unless U holds so many of all that one of them is likely there already."""
    return max(1, min(n // RENEWED, N // (KNOWN * n)))


def window_chain(
    layout: Layout, settings: Settings, n: int, statistic: Any, reference: Reference | None, steps: Steps | None
) -> Chain:
    """The U chain of windows of n steps, ε apart."""
    model, calibration, move = layout.model, None, settings.subset_move or Window()
    lead_in = lead_in_of(settings.subset_move, layout, n, steps)
    rows, column = build_windows(layout.rows, layout.series, n, lead_in), None
    sums = None if steps is None or lead_in < steps.needed(n, len(layout.rows)) else steps.sums
    if isinstance(statistic, WindowColumn):
        statistic, column = statistic.statistic, statistic.column
    if reference is not None:
        transport = len(rows) > 1 if settings.transport == "auto" else bool(settings.transport)
        if settings.subset_move is None and transport:
            move = Window(every=EVERY)
        calibration = calibrate(model, reference, layout.power(settings.target, n), transport=transport)
    page = page_size(model, rows, statistic, move, 1, calibration, settings.chains)
    return WindowChain(
        rows, statistic, move, settings.subset_weight, settings.epsilon or 1.0, 1, settings.seed, page, calibration,
        steps=n, sums=sums, column=column,
    )  # fmt: skip


def lead_in_of(move: Move | None, layout: Layout, n: int, steps: Steps | None) -> int:
    """Steps before each window: as asked, or as many as the model remembers at θ̂; none where there is no θ̂."""
    asked = move.lead_in if isinstance(move, Window) else "auto"
    if not isinstance(asked, str):
        return asked
    return 0 if steps is None else steps.memory.lead_in(n, len(layout.rows))


def page_size(
    model: Model, rows: Rows, statistic: Any, move: Move, n: int, calibration: Calibration | None, chains: int
) -> int:
    """Proposals a page."""
    one = rows.take(np.zeros(1, np.int64))
    carried = 0 if calibration is None else calibration.width
    matrix = 8 * model.dimension**2 if calibration is not None and calibration.frame is not None else 0
    entry = entry_bytes(model, one, statistic.dimension, move.replaced(n), carried) + matrix
    return max(1, page_length(entry, chains) // move.every)


def require_room(layout: Layout, settings: Settings) -> None:
    """Refuse, before any pass over the rows, so many parameters that subsets cannot carry their curvature along."""
    d, N, move = layout.model.dimension, layout.available, settings.subset_move
    n = layout.slots(settings.subset_size or SMALLEST)
    if settings.transport is False or second_order(layout, settings) or (move is not None and move.replaced(n) == 0):
        return
    if (size := 4 * d * (d + 3) * n * settings.chains) > LARGEST_CARRIED and n < N:
        enough = min(N, max(n, ROWS_A_PARAMETER * d))
        raise InputError(
            f"With {d} parameters, subset_size={n} and {settings.chains} chains, moving subsets would carry "
            f"{size / 2**30:.0f} GiB of curvature along. Pass subset_move=lwa.subsets.Fixed() with "
            f"subset_size={enough}: one subset a chain, which carries none; fit.polish() corrects what that leaves."
        )


def settled(chain: Chain, settings: Settings, reference: Reference | None, cohorts: Sequence[list[int]]) -> Plan:
    """ε found where it was not given, and every cohort's U burnt in."""
    if settings.epsilon is None:
        chain = chain.with_epsilon(find_epsilon(chain))
    firsts, rates = [], []
    for chains in cohorts:
        U, rate = chain.burn_in(chain.start(chains), chains)
        if np.isfinite(chain.reach):
            require_definite(np.asarray(U.distance), chain.n, len(chain.rows))
        U = until_feasible(chain, U, chains)
        firsts.append((chains, U))
        rates.append(rate)
    excess = excess_sd(chain, reference, [U for _, U in firsts])
    return Plan(chain, firsts, float(np.mean(rates)), excess, find_random_distance(chain))


def leverage_helps(layout: Layout, settings: Settings, n: int, reference: Reference) -> bool:
    """Whether q is asked for, or some uniform subsets hardly identify a direction that all rows identify."""
    model, rows = layout.model, layout.full
    if settings.leverage != "auto" or n == len(rows):
        return settings.leverage is True
    identified = identified_by_rows(reference)
    for pilot in range(PILOT_SUBSETS):
        drawn = generator(settings.seed, Purpose.SUBSET_PILOT, pilot, n).choice(len(rows), n, replace=False)
        few = sum_batches(model, split_into_blocks(rows.take(np.sort(drawn))), reference.theta)
        own = identified.T @ (len(rows) / n * few.curvature) @ identified
        if np.linalg.eigvalsh(own).min(initial=1.0) < WEAKEST:
            return True
    return False


def require_definite(distance: NDArray[np.float64], n: int, N: int) -> None:
    """Refuse subsets whose curvature is so far from that of all rows that it need not be positive definite.

    Distances fall like 1/√n, so this tells which n would do.
    """
    if (worst := float(distance.max())) >= 1.0:
        enough = min(N, int(np.ceil(n * (worst / 0.5) ** 2)))
        raise InputError(
            f"subset_size={n} is too small for the calibrated target: a subset's curvature differs from that of all "
            f"rows by {worst:.2g} of it, and must differ by less than 1. Pass subset_size={enough}, or less epsilon."
        )


def until_feasible(chain: Chain, U: Subset, chains: Sequence[int]) -> Subset:
    """Let U move on until its curvature is positive definite for every chain; refuse an n for which it often is not."""
    if not feasible(chain, U).all() and share_feasible(chain) < FEASIBLE:
        enough = chain.size
        while enough < chain.largest and share_feasible(chain.resize(enough)) < FEASIBLE:
            enough = min(2 * enough, chain.largest)
        raise InputError(
            f"subset_size={chain.size} is too small for the calibrated target: the curvature of many subsets is not "
            f"positive definite, so they do not identify all parameters. Pass subset_size={enough}."
        )
    page, lacking = 0, np.flatnonzero(~feasible(chain, U))
    while len(lacking):  # those alone: of thousands of chains some would always lack it
        some = jax.tree.map(partial(at_places, lacking), U)
        some, _ = chain.advance(some, [chains[i] for i in lacking.tolist()], page, Purpose.SUBSET_FEASIBLE)
        U = jax.tree.map(partial(put_at, lacking), U, some)
        page, lacking = page + 1, lacking[~feasible(chain, some)]
    return U


def at_places(places: NDArray[np.intp], leaf: Any) -> Any:
    """Some of the chains."""
    return leaf[places]


def put_at(places: NDArray[np.intp], leaf: Any, new: Any) -> Any:
    """All chains, some of them anew."""
    return jnp.asarray(leaf).at[places].set(new)


def feasible(chain: Chain, U: Subset) -> NDArray[np.bool_]:
    """Whether each chain's subset has a positive definite curvature, as far as the target asks for it."""
    given = chain.given(U)
    return np.ones(1, bool) if given is None or given.feasible is None else np.asarray(given.feasible)


def share_feasible(chain: Chain) -> float:
    """The share of such subsets among some, drawn as U is before Φ."""
    return float(feasible(chain, replace(chain, move=Fixed()).start(range(PILOT_SUBSETS * 2))).mean())


def entry_bytes(model: Model, one: Any, statistic: int, k: int, carried: int) -> int:
    """What one move of one chain takes on the tape and among the draws."""
    row = sum(leaf.nbytes for leaf in jax.tree.leaves(one))
    return k * (row + 8 * (statistic + carried) + 12) + 16 * model.dimension
