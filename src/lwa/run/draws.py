"""From moves to kept draws: how far apart they are, what is kept of them, and their running summary."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import numpy as np
from jaxtyping import Float64, Shaped

from lwa.diagnostics.autocorrelation import autocorrelation_time
from lwa.diagnostics.running import MANY_CHAINS, RunningSummary, find_scales, start_summary, update_summary
from lwa.diagnostics.table import stack_scalars
from lwa.engine.cohort import Moves
from lwa.engine.device.recorder import RecorderOnDevice
from lwa.engine.exact import Correction, Surrogate
from lwa.engine.problem import Problem
from lwa.engine.recorder import Kept, Recorder, select_kept
from lwa.run.begin import Run
from lwa.run.budget import Retention

TUNE_MEMORY = 4096
"""Moves of tune remembered to choose the thinning, of at most `MANY_CHAINS` chains."""
SKETCHED_FROM = 4096
"""Values of θ, the last ones of tune, that determine the width of a summary's cells."""


@dataclass
class RunState:
    """A run between two blocks, besides its chains: what its next blocks and its result depend on."""

    path: Recorder | None = None  # of tune, if that is kept
    memory: deque[Shaped[np.ndarray, "moves chains d"]] = field(default_factory=deque)  # θ over the last moves of tune
    recorder: Recorder | None = None  # of draws that no keeper has taken, once tune is over
    tuned: int | None = None  # moves, once tune is over
    thinning: int = 1
    tune_clock: list[tuple[int, float]] = field(default_factory=list)
    surrogates: list[Surrogate] = field(default_factory=list)  # with exact=True, once tune is over
    values: list[Float64[np.ndarray, " chains"]] | None = None  # log π at their θ
    retention: Retention = field(default_factory=Retention)
    running: RunningSummary | None = None  # of the draws that every chain has, if they are summarised
    torn: bool = False  # a block failed half-way: some chains may be further on than what was recorded

    @property
    def draws(self) -> int:
        """Draws that every chain has."""
        return 0 if self.recorder is None else self.recorder.count


def build_recorder(run: Run, thinning: int, room: int = 0) -> Recorder:
    """Return a recorder of all chains that has recorded nothing yet."""
    return Recorder(run.settings.chains, thinning, run.problem.reads, run.problem.kernel.extra(), room)


def record_moves(recorder: Recorder, played: Sequence[Moves]) -> None:
    """Record the moves of every cohort."""
    size = played[0].theta.shape[1]
    for cohort, moves in enumerate(played):
        recorder.add(moves, cohort * size)


def record_corrected(recorder: Recorder, made: Correction, n: int, N: int) -> None:
    """Record one draw of every chain, made by `exact=True`."""
    kept = Kept(
        theta=made.theta, lp=made.log_posterior, acceptance_rate=made.acceptance, accepted=made.accepted,
        subset_accepted=made.refreshed, subset_distance=made.distance, n_rows_read=made.evaluations * n + N,
        extra=made.extra,
    )  # fmt: skip
    recorder.put(jax.tree.map(lambda leaf: leaf[:, None], kept))


def remember_tune(state: RunState, played: Sequence[Moves]) -> None:
    """Remember where θ was over the last moves of tune."""
    state.memory.append(select_chains(played))
    while sum(map(len, state.memory)) - len(state.memory[0]) >= TUNE_MEMORY:
        state.memory.popleft()


def select_chains(played: Sequence[Moves]) -> Shaped[np.ndarray, "moves chains d"]:
    """Return θ of all chains, or of some from all over them if they are many."""
    chains = sum(done.theta.shape[1] for done in played)
    if len(played) == 1 and chains > MANY_CHAINS:  # picked on their device
        return np.asarray(played[0].theta[:, np.arange(MANY_CHAINS) * chains // MANY_CHAINS])
    theta = np.concatenate([done.theta for done in played], axis=1)
    return theta if chains <= MANY_CHAINS else theta[:, np.arange(MANY_CHAINS) * chains // MANY_CHAINS]


def take_path(state: RunState, moves: int) -> Shaped[np.ndarray, "moves chains d"]:
    """Return the second half of tune, as far as it is remembered, and forget it."""
    path = np.concatenate(state.memory) if state.memory else np.empty((0, 1, 1))
    state.memory.clear()
    return path[-min(len(path), TUNE_MEMORY, max(1, moves // 2)) :]


def choose_thinning(path: Shaped[np.ndarray, "moves chains d"], refresh_rate: float, problem: Problem) -> int:
    """Return the transitions per kept draw: θ's autocorrelation time, or a quarter of U's renewal."""
    if problem.reference is not None:  # calibrated: every U has nearly the same target
        return max(1, round(autocorrelation_time(path)))
    # θ follows U, so draws taken within one renewal of U are alike however well θ mixes given U.
    subsets = problem.subsets
    renewal = subsets.renewing / refresh_rate if refresh_rate > 0 and subsets.n < len(subsets.rows) else 0.0
    return int(np.ceil(max(autocorrelation_time(path), renewal / 4)))


def start_recording(state: RunState, run: Run, path: Shaped[np.ndarray, "moves chains d"], *, on_disk: bool) -> None:
    """Make room for draws as the run retains them, and begin their summary if there is one."""
    state.recorder = build_recorder(run, state.thinning, state.retention.room)
    if not state.retention.summarised or not path.size:
        return
    state.running = begin_summary(run, path)
    if can_stay_on_device(run) and not on_disk:
        state.running = jax.device_put(state.running)
        state.recorder = RecorderOnDevice(run.settings.chains, state.thinning, run.problem.reads, state.retention.last)


def can_stay_on_device(run: Run) -> bool:
    """Return whether draws can stay on the device: chains are there, and a draw is θ and nothing else."""
    model = run.data.given
    return run.on_device and not run.problem.kernel.extra() and not model.constrained and model.derived is None


def begin_summary(run: Run, path: Shaped[np.ndarray, "moves chains d"]) -> RunningSummary:
    """Return a summary without draws, with cells as fine as the end of θ's path requires."""
    some = path.reshape(-1, path.shape[-1])[-SKETCHED_FROM:].astype(np.float64)
    values = stack_scalars(run.data.given.with_derived(some[None]))
    return start_summary(run.settings.chains, *find_scales(values[0]))


def summarise(state: RunState, run: Run) -> None:
    """Add the draws that every chain has since the last time to the summary, and keep only the last few."""
    recorder, last = state.recorder, state.retention.last
    assert recorder is not None
    if state.running is not None and (summary := recorder.summarise(state.running)) is not None:
        state.running = summary
        return
    ready = min(run.settings.draws, recorder.count)
    if not state.retention.summarised or ready == 0:
        return
    if state.running is None:  # there was no tune
        theta = recorder.slice_draws(0, ready - recorder.taken).theta
        state.running = begin_summary(run, np.swapaxes(theta, 0, 1))
    seen = int(state.running.moments.count)
    new = recorder.slice_draws(seen - recorder.taken, ready - recorder.taken)
    values = stack_scalars(run.data.given.with_derived(new.theta))
    state.running = update_summary(state.running, np.swapaxes(values, 0, 1))
    if ready - recorder.taken >= 2 * last:  # not each time: what stays is moved
        recorder.drop(ready - recorder.taken - last)


def take_last_draws(state: RunState, run: Run) -> Kept:
    """Return the draws that the run retains, at most as many as were asked for."""
    if state.recorder is None:
        return blank_kept(run)
    state.recorder.bring_home()
    recorder, ready = state.recorder, min(run.settings.draws, state.draws)
    if not state.retention.summarised or ready == 0:
        return select_draws(recorder, run, run.settings.draws)
    return recorder.slice_draws(max(0, ready - state.retention.last - recorder.taken), ready - recorder.taken)


def select_draws(recorder: Recorder, run: Run, most: int) -> Kept:
    """Return the recorded draws of all chains, `most` per chain at the most."""
    return select_kept(recorder, run.problem.target.model.dimension, most, run.problem.kernel.extra())


def blank_kept(run: Run) -> Kept:
    """Return an empty set of draws with the arrays that draws have."""
    return select_draws(build_recorder(run, 1), run, 0)
