"""Windows of a sequence: how long its model remembers, running sums at θ̂, and the chain of windows."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped

from lwa.data.data import SEGMENT, Data
from lwa.data.lead_in import PASS_SHIFT, SequenceMemory, extend_lead_in
from lwa.errors import LwaWarning, warn
from lwa.rows.passes import spread_passes
from lwa.rows.units import Units, build_windows
from lwa.run.settings import Settings
from lwa.subsets.moves import Move, Window
from lwa.subsets.tape import count_page_proposals
from lwa.subsets.windows.chain import WindowChain
from lwa.summaries import SubsetStatistic, WindowStatistic
from lwa.summaries.running_sums import RunningSums, compute_running_sums, count_sums_per_step, has_room_for
from lwa.targets.calibration import calibrate
from lwa.targets.reference import Reference, expand_at, find_reference
from lwa.targets.target import Calibrated
from lwa.user.progress import Display


class WindowColumn(NamedTuple):
    """S of windows, and the column that it summarises, series after series."""

    statistic: WindowStatistic
    column: Shaped[np.ndarray, " N"]

    @property
    def dimension(self) -> int:
        """The number of entries of S."""
        return self.statistic.dimension


@dataclass(frozen=True)
class SequenceFacts:
    """What is known of a sequence at θ̂."""

    memory: SequenceMemory
    sums: RunningSums | None  # None: there is no room for them

    def steps_for_sums(self, n: int, N: int) -> float:
        """Return the steps that must lead in for a window's gradient to be the difference of running sums."""
        return self.memory.lead_in(n, N) if self.memory.forgets(n, N) else np.inf


def learn_sequence(
    data: Data, reference: Reference, settings: Settings, options: Calibrated, display: Display
) -> tuple[Data, Reference, SequenceFacts]:
    """Measure how long the model remembers at θ̂, and compute running sums. If passes looked back less, find θ̂ again."""
    looked_back, N = data.lead_in, len(data.rows)
    data, memory = extend_lead_in(data, reference.theta, reference.factor)
    if data.lead_in > looked_back and options.reference is None:
        reference = find_reference(data.model, data.full, reference.theta, settings.seed)
    elif data.lead_in > looked_back:
        reference = expand_at(data.model, data.full, reference.theta)
    segments = spread_passes(data.full, None)
    assert isinstance(segments, Units)
    curvature, sums = options.transport is not False, None
    if settings.subset_move is None or settings.subset_move.replaced(1):
        width = count_sums_per_step(data.model.dimension, curvature=curvature)
        if has_room_for(N, width):
            display.say(f"Running sums of gradients and curvatures: {8e-9 * N * width:.2g} GB in a temporary file.")
            sums = compute_running_sums(
                data.given, segments, reference, curvature=curvature,
                progress=lambda done: display.show("running sums", done, N),
            )  # fmt: skip
        else:
            display.say("No room on disk for running sums of gradients and curvatures: each window's own are computed.")
    return data, reference, SequenceFacts(memory, sums)


def warn_of_long_memory(facts: SequenceFacts, data: Data, settings: Settings, n: int) -> list[str]:
    """Warn of a model that remembers longer than windows, or segments of a pass, look back; return the warnings."""
    N, options = len(data.rows), settings.calibration
    move = settings.subset_move if isinstance(settings.subset_move, Window) else Window()
    remarks = list[LwaWarning]()
    if not facts.memory.forgets(SEGMENT * data.lead_in, N, PASS_SHIFT):
        text = (
            f"After {data.lead_in:,} steps the model still remembers where it was started, so that sums over all "
            "rows, which are taken over segments, are not those of the whole series. Draws and certificate are of a "
            "posterior that forgets by then: give the parameters that cause so long a memory a prior against it."
        )
        remarks.append(LwaWarning(text))
    # A transported window's start does not matter: its gradient and curvature are corrected as they are.
    untransported = options is not None and options.transport is False
    if untransported and not isinstance(move.lead_in, str) and move.lead_in < (enough := facts.memory.lead_in(n, N)):
        text = (
            f"lead_in={move.lead_in} is shorter than the model remembers, and with transport=False windows are biased "
            f"by their start. Pass lead_in={enough}, or 'auto'."
        )
        remarks.append(LwaWarning(text, advice={"subset_move": replace(move, lead_in=enough)}))
    for remark in remarks:
        warn(str(remark), remark.advice)
    return [str(remark) for remark in remarks]


def build_window_chain(
    data: Data, settings: Settings, n: int, statistic: SubsetStatistic, *, reference: Reference | None,
    facts: SequenceFacts | None, every: int,
) -> WindowChain:  # fmt: skip
    """Return the chain of windows of n steps, ε apart; `every` is how seldom a transported window moves."""
    move, calibration = settings.subset_move or Window(), None
    lead_in = choose_lead_in(settings.subset_move, data, n, facts)
    rows = build_windows(data.rows, data.series, n, lead_in)
    sums = None if facts is None or lead_in < facts.steps_for_sums(n, len(data.rows)) else facts.sums
    column = statistic.column if isinstance(statistic, WindowColumn) else None
    own = statistic.statistic if isinstance(statistic, WindowColumn) else statistic
    if reference is not None and (options := settings.calibration) is not None:
        transport = len(rows) > 1 if options.transport == "auto" else bool(options.transport)
        if settings.subset_move is None and transport:
            move = Window(every=every)
        calibration = calibrate(data.model, reference, options.power(n, data.scored), transport=transport)
    subsets = WindowChain(
        rows=rows, statistic=own, move=move, weight=settings.subset_weight, epsilon=settings.epsilon or 1.0, n=1,
        seed=settings.seed, page=1, calibration=calibration, steps=n, sums=sums, column=column,
    )  # fmt: skip
    return replace(subsets, page=count_page_proposals(subsets, data.model.dimension, settings.chains))


def choose_lead_in(move: Move | None, data: Data, n: int, facts: SequenceFacts | None) -> int:
    """Return the steps before each window: as asked, or as many as the model remembers at θ̂; none without a θ̂."""
    asked = move.lead_in if isinstance(move, Window) else "auto"
    if not isinstance(asked, str):
        return asked
    return 0 if facts is None else facts.memory.lead_in(n, len(data.rows))
