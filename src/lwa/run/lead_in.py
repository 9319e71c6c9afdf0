"""What must be known of a sequence before windows of it can move: how long its model remembers, and running sums."""

import warnings

from lwa.data.data import SEGMENT, Layout
from lwa.data.lead_in import PASS_SHIFT, extend_lead_in
from lwa.errors import LwaWarning
from lwa.rows.passes import spread_passes
from lwa.rows.units import Units
from lwa.run.plan import SMALLEST, Steps
from lwa.run.settings import Settings
from lwa.subsets.moves import Window
from lwa.summaries.running_sums import has_room_for, compute_running_sums, count_sums_per_step
from lwa.targets.reference import Reference, find_reference, expand_at
from lwa.user.progress import Display


def remember(
    layout: Layout, expanded: Reference, settings: Settings, display: Display
) -> tuple[Layout, Reference, Steps]:
    """How long the model of a sequence remembers at θ̂, and running sums of what its steps say there."""
    model, N = layout.model, len(layout.rows)
    looked_back = layout.lead_in
    layout, memory = extend_lead_in(layout, expanded.theta, expanded.factor)
    if layout.lead_in > looked_back and settings.reference is None:
        expanded = find_reference(model, layout.full, expanded.theta, settings.seed)
    elif layout.lead_in > looked_back:
        expanded = expand_at(model, layout.full, expanded.theta)
    segments = spread_passes(layout.full, None)
    assert isinstance(segments, Units)
    curvature = settings.transport is not False
    sums = None
    if settings.subset_move is None or settings.subset_move.replaced(1):
        width = count_sums_per_step(model.dimension, curvature=curvature)
        if has_room_for(N, width):
            display.say(f"Running sums of gradients and curvatures: {8e-9 * N * width:.2g} GB in a temporary file.")
            sums = compute_running_sums(
                layout.given, segments, expanded, curvature=curvature,
                progress=lambda done: display.show("running sums", done, N),
            )  # fmt: skip
        else:
            display.say("No room on disk for running sums of gradients and curvatures: each window's own are computed.")
    return layout, expanded, Steps(memory, sums)


def forgetting(steps: Steps, layout: Layout, settings: Settings) -> list[str]:
    """What to say of a model that remembers longer than windows, or segments of a pass, look back.

    Where windows are transported their own start does not matter: gradient and curvature are corrected as they are.
    """
    n, N = settings.subset_size or SMALLEST, len(layout.rows)
    asked = settings.subset_move.lead_in if isinstance(settings.subset_move, Window) else "auto"
    told = []
    if not steps.memory.forgets(SEGMENT * layout.lead_in, N, PASS_SHIFT):
        told.append(
            f"After {layout.lead_in:,} steps the model still remembers where it was started, so that sums over all "
            "rows, which are taken over segments, are not those of the whole series. Draws and certificate are of a "
            "posterior that forgets by then: give the parameters that make for so long a memory a prior against it."
        )
    if settings.transport is False and not isinstance(asked, str) and asked < (enough := steps.memory.lead_in(n, N)):
        told.append(
            f"lead_in={asked} is shorter than the model remembers, and with transport=False windows are biased by "
            f"their start. Pass lead_in={enough}, or 'auto'."
        )
    for remark in told:
        warnings.warn(remark, LwaWarning, stacklevel=5)
    return told
