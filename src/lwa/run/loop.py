"""The run loop: tune, freeze, sample, block by block, until all draws are made, the budget is spent or Ctrl-C."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.running import RunningSummary
from lwa.engine.cohort import Cohort, Moves
from lwa.engine.exact import build_surrogates, correct, enter_support
from lwa.engine.recorder import Kept
from lwa.engine.tally import Tally, add_tallies, count_block
from lwa.errors import ExecutorError, ModelError, out_of_memory
from lwa.models.check import describe_theta
from lwa.models.python_model import is_users_error
from lwa.run import draws
from lwa.run.begin import Run
from lwa.run.budget import Budget
from lwa.run.draws import RunState
from lwa.run.settings import count_keepable
from lwa.subsets.tape import ADAPT_EVERY
from lwa.user.progress import Display, Interruption, catch_interrupts

TUNE_SHARE = 0.5
"""Share of a budget that tune may use: the rest belongs to the draws."""
SEGMENT_SECONDS = 2.0
"""Length of a block that workers play: sending a cohort there and back takes little of it."""
MOST_INVALID = 0.5
"""Share of NaN densities among a block's proposals, above which the run ends rather than stand still."""
ENOUGH_MOVES = 1000
"""Moves over which the share must be that high."""
MOST_TICKS = 4096
"""Entries of the clock: if there are more, every second one is dropped, so that memory does not grow with the run."""


@dataclass(frozen=True)
class Spent:
    """What a run of `lwa.sample` or of a rival has spent."""

    thinning: int
    moves: int  # per chain, tune included
    tuned: int
    rows_read: int
    invalid: int
    stopped: str  # why, if the run ended early
    seconds: float  # of tune and sampling
    clock: list[tuple[int, float]]  # draws per chain, and seconds since the first move
    tune_clock: list[tuple[int, float]]  # as `clock`, of the path of tune if it is kept
    fault: BaseException | None  # what the user's function raised once there were draws


@dataclass(frozen=True)
class Outcome(Spent):
    """What a run has made, and what it spent on it."""

    kept: Kept | None  # None: draws are on disk
    stored: Mapping[str, NDArray[Any]] | None  # on disk, by "group/name"
    furthest: float  # from the reference point, in posterior sds; 0 without one
    infeasible: float  # share of the moves during which U had no positive definite curvature
    tuning: Any  # what the kernel learnt, per chain
    rate: float  # moves per second in the last block; 0 if there was only one
    warmup: Kept | None  # the path of tune, if it is kept
    running: RunningSummary | None  # of all draws, if only the last ones are kept


class Keeper(Protocol):
    """Writes a run to disk while it samples."""

    def load_state(self, runner: "BlockRunner", state: RunState) -> None:
        """Restore the state that an earlier process wrote, if there is one."""

    def after_block(self, runner: "BlockRunner", state: RunState) -> None:
        """Write new draws and the state, if it is time."""

    def finish(self, runner: "BlockRunner", state: RunState) -> Mapping[str, NDArray[Any]]:
        """Write everything, of a torn run only its draws; return all draws, by "group/name"."""


def carry_out(run: Run, display: Display, keeper: Keeper | None = None) -> Outcome:
    """Tune, freeze, sample, block by block, until all draws are made, the budget is spent or Ctrl-C is pressed."""
    with display.stages("compiling"):
        for cohort in run.cohorts:
            cohort.wait_for_compilation()  # no budget pays for it
    settings, meter = run.settings, Meter(run.settings.budget)
    threads = len(run.cohorts) if run.data.runs_remotely else os.cpu_count()  # remote cohorts only wait
    precise = jax.enable_x64(True) if run.on_device else nullcontext()  # for counters there
    with precise, catch_interrupts() as interruption, ThreadPoolExecutor(threads) as pool:
        runner, state = BlockRunner(run, meter, interruption, pool), RunState()
        if settings.keep_tune:
            state.path = draws.build_recorder(run, settings.thinning or 1)
        if keeper is not None:
            keeper.load_state(runner, state)
        if state.tuned is None:
            with display.stages("tune"):
                tune(runner, state, display, keeper)
                if not interruption.asked:  # else resuming ends it, after all its moves
                    display.say(end_tune(runner, state, on_disk=keeper is not None))
        tuning = jax.tree.map(  # before any move that may fail: moves reuse the memory of the state
            lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[: settings.chains],
            *(cohort.state.tuning for cohort in run.cohorts),
        )
        if state.tuned is None:
            stopped, fault = f"{interruption.asked} after 0 {settings.of_draws}", None
        else:
            display.say(forecast_draws(runner, run, state.thinning))
            with display.stages("draws"):
                stopped, fault = (sample_exactly if settings.exact else sample_draws)(runner, state, display, keeper)
        kept = draws.take_last_draws(state, run) if keeper is None else None
        stored = None if keeper is None else keeper.finish(runner, state)
        warmup = None if state.path is None else draws.select_draws(state.path, run, settings.tune)
    tuned = runner.position if state.tuned is None else state.tuned
    if tuned < settings.tune and not stopped:
        stopped = f"tune ended after {tuned} of {settings.tune} moves with its share of the budget"
    return Outcome(
        kept=kept, stored=stored, thinning=state.thinning, moves=runner.position, tuned=tuned, rows_read=meter.rows,
        invalid=runner.invalid, stopped=stopped, seconds=time.monotonic() - meter.start, furthest=runner.furthest,
        infeasible=runner.infeasible / max(1, runner.position * settings.chains), tuning=tuning, rate=runner.rate,
        clock=runner.clock, warmup=warmup, tune_clock=state.tune_clock, fault=fault,
        running=jax.tree.map(np.asarray, state.running),
    )  # fmt: skip


class Meter:
    """What has been spent of a budget since the meter was made."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.rows = 0
        self.start = time.monotonic()

    def share(self) -> float:
        """Return the fraction that is spent, 1 or more when it is used up."""
        return max((time.monotonic() - self.start) / self.budget.seconds, self.rows / self.budget.rows)

    def seconds_left(self, share: float = 1.0) -> float:
        """Return the seconds until that share of the time is spent."""
        return share * self.budget.seconds - (time.monotonic() - self.start)

    def rows_left(self, share: float = 1.0) -> float:
        """Return the row reads until that share of them is spent."""
        return share * self.budget.rows - self.rows


class BlockRunner:
    """Plays blocks of moves on all cohorts and keeps count."""

    def __init__(self, run: Run, meter: Meter, interruption: Interruption, pool: ThreadPoolExecutor) -> None:
        self.run, self.meter, self.interruption, self.pool = run, meter, interruption, pool
        seconds = SEGMENT_SECONDS if run.data.runs_remotely else BlockLength.seconds
        self.blocks = BlockLength(max(1, count_first_moves(run)), seconds)
        self.position = self.invalid = self.refreshed = self.transitions = self.infeasible = 0
        self.furthest = 0.0
        self.without = 0  # moves since most proposals last had densities
        self.accepted = 0.0  # corrections of exact=True, added up
        self.rate = 0.0  # moves per second
        self.last: Tally  # of the last block
        self.clock: list[tuple[int, float]] = []

    def allow(self, wanted: int, share: float = 1.0) -> int:
        """Return how many of the wanted moves fit the next block and the budget; 0 if the run ends."""
        if self.interruption.asked or self.meter.seconds_left(share) <= 0:
            return 0
        moves = min(wanted, self.meter.rows_left(share) / self.run.rows_per_move)
        if self.rate:
            moves = min(moves, max(1, self.rate * self.meter.seconds_left(share)))
        if self.run.on_device:
            return self._fit_programs(int(moves), wanted)
        return int(min(moves, self.blocks.moves))

    def _fit_programs(self, moves: int, wanted: int) -> int:
        """Return a length for which a device has a program: a page, all that is wanted, or a power of two."""
        page = self.run.problem.page
        left = page - self.position % page
        if moves >= left or moves == wanted:
            return min(moves, left)
        return 1 << (moves.bit_length() - 1) if moves else 0

    def play(self, moves: int) -> list[Moves]:
        """Play one block on every cohort."""
        began = time.monotonic()
        cohorts, size = self.run.cohorts, len(self.run.cohorts[0].chains)
        own = [max(0, self.run.settings.chains - i * size) for i in range(len(cohorts))]  # the last may be padded

        def play_cohort(cohort: Cohort, own: int) -> tuple[Moves, Tally]:
            done = cohort.run(self.position + moves)
            return done, count_block(done, own, self.run.problem.reference)

        if self.run.problem.in_python:  # a user's function is called on the user's thread
            both = [play_cohort(*pair) for pair in zip(cohorts, own, strict=True)]
        else:
            both = play_side_by_side(play_cohort, cohorts, own, self.pool)
        took = time.monotonic() - began
        self.rate = moves / took if self.position else 0.0  # the first block compiles
        self.blocks = self.blocks.after(took, moves)
        self.position += moves
        self._count(add_tallies([counts for _, counts in both]))
        return [done for done, _ in both]

    def _count(self, block: Tally) -> None:
        """Add the counts of a block."""
        self.last = block
        self.meter.rows += block.evaluations * self.run.problem.reads
        self.invalid += block.invalid
        self.refreshed += block.refreshed
        self.transitions += block.transitions
        if self.run.problem.reference is not None:
            self.infeasible += block.standing
            self.furthest = max(self.furthest, block.furthest)

    @property
    def note(self) -> str:
        """How the last block went."""
        return f"accepted {self.last.acceptance / self.last.moves:.2f}, subset changes {self.refresh_rate:.2f}"

    def require_densities(self, moves: int) -> None:
        """Raise if proposal after proposal has a density that is NaN: the run would only stand still."""
        share = self.last.invalid / self.last.moves
        self.without = self.without + moves if share > MOST_INVALID else 0
        if self.without < ENOUGH_MOVES:
            return
        found = [theta for theta in (cohort.find_last_invalid() for cohort in self.run.cohorts) if theta is not None]
        where = f", for example at theta = {describe_theta(self.run.data.given, found[0])}" if found else ""
        raise ModelError(
            f"{share:.0%} of the proposals had a log target that was NaN or +inf over the last {self.without:,} moves"
            f"{where}. Fix the model there, or give those values log density -inf."
        )

    def tick(self, draws: int) -> None:
        """Record the time at which so many draws per chain are made."""
        self.clock.append((draws, time.monotonic() - self.meter.start))
        if len(self.clock) > MOST_TICKS:
            del self.clock[1:-1:2]

    def progress(self, draws: int) -> tuple[int, int]:
        """Return how many draws there are, of how many; the latter is estimated from the budget for draws="auto"."""
        if not self.run.settings.filling:
            return draws, self.run.settings.draws
        return draws, max(draws, round(draws / max(1e-9, min(1.0, self.meter.share()))))

    @property
    def stop_reason(self) -> str:
        """Why the run ends early; empty if it was asked to use up its budget."""
        if self.interruption.asked:
            return self.interruption.asked
        return "" if self.run.settings.filling else "the budget was spent"

    @property
    def may_overrun(self) -> bool:
        """Whether the run may exceed its time: only that is used up, not rows, and nobody interrupted."""
        return not self.interruption.asked and self.meter.rows_left() >= self.run.rows_per_move

    @property
    def affordable(self) -> int:
        """Moves that the rest of the budget allows, at the speed so far; 1 if that is unknown."""
        rows = self.meter.rows_left() / self.run.rows_per_move
        left, spent = self.meter.seconds_left(), time.monotonic() - self.meter.start
        rate = self.rate or self.position / max(spent, 1e-9)  # the first block's includes compiling
        seconds = rate * left if self.position or left <= 0 else float("inf")
        affordable = min(rows, seconds)
        return int(max(1.0, affordable)) if affordable < float("inf") else 1

    @property
    def refresh_rate(self) -> float:
        """Share of the subset proposals that were accepted."""
        return self.refreshed / max(1, self.transitions)


@dataclass(frozen=True)
class BlockLength:
    """How many moves to play between two looks at the clock: as many as fit into a quarter of a second.

    Only how soon a run reacts depends on it; no block lasts longer than half a second once two have been timed.
    """

    moves: int = ADAPT_EVERY
    seconds: float = 0.25

    def after(self, took: float, moves: int) -> "BlockLength":
        """Return the next block's length, from the seconds that the last took; it may grow after a slow one."""
        fitting = moves * self.seconds / max(took, 1e-6)
        return replace(self, moves=max(1, min(int(fitting), 4 * self.moves)))


def count_first_moves(run: Run) -> int:
    """Return the moves before the first look at the clock: fewer if a move may evaluate often, or Python is slow."""
    moves = ADAPT_EVERY // run.problem.kernel.most_evaluations()
    if run.python_call is None:
        return moves
    return min(moves, int(BlockLength.seconds / (1e-6 * run.python_call * run.settings.chains + 1e-6)))


def play_side_by_side[R](
    play: Callable[[Cohort, int], R], cohorts: Sequence[Cohort], own: Sequence[int], pool: ThreadPoolExecutor
) -> list[R]:
    """Play every cohort up to the same move, one per thread. If one fails, reset those that can be reset."""
    before = [(cohort, cohort.checkpoint()) for cohort in cohorts]
    playing = [pool.submit(play, *pair) for pair in zip(cohorts, own, strict=True)]
    try:
        return [future.result() for future in playing]
    except BaseException:
        wait(playing)
        for cohort, held in before:
            if held is not None:
                cohort.resume_from(held)
        raise


def tune(runner: BlockRunner, state: RunState, display: Display, keeper: Keeper | None) -> None:
    """Adapt the kernel, and remember where θ was."""
    total = runner.run.settings.tune
    while moves := runner.allow(total - runner.position, TUNE_SHARE):
        played = runner.play(moves)
        if state.path is not None:
            draws.record_moves(state.path, played)
            runner.tick(state.path.count)
        draws.remember_tune(state, played)
        display.show("tune", runner.position, total, runner.note)
        if keeper is not None:
            keeper.after_block(runner, state)
        runner.require_densities(moves)


def end_tune(runner: BlockRunner, state: RunState, *, on_disk: bool) -> str:
    """Freeze the kernels, choose thinning and retention; return the latter in words if it depends on the budget."""
    run, settings = runner.run, runner.run.settings
    state.tuned, state.tune_clock, runner.clock = runner.position, runner.clock, []
    for cohort in run.cohorts:
        cohort.freeze()
    path = draws.take_path(state, runner.position)
    thinning = settings.thinning or draws.choose_thinning(path, runner.refresh_rate, run.problem)
    if settings.filling and not settings.exact and settings.keep != "summary":
        room = count_keepable(settings.chains, run.problem.target.model.dimension)
        thinning = max(thinning, -(-runner.affordable // room))
    budgeted = min(settings.budget.seconds, settings.budget.rows) < float("inf")
    expected = min(settings.draws, runner.affordable // thinning + 1) if budgeted else settings.draws
    state.thinning = thinning
    state.retention, words = run.decide_retention(expected)
    draws.start_recording(state, run, path, on_disk=on_disk)
    if settings.exact:
        for cohort in run.cohorts:
            cohort.close()
        state.surrogates = build_surrogates(run.cohorts, thinning)
    return words if budgeted else ""


type Ended = tuple[str, BaseException | None]
"""Why sampling stopped early, if it did, and what the user's function raised, if that was why."""


def sample_draws(runner: BlockRunner, state: RunState, display: Display, keeper: Keeper | None) -> Ended:
    """Sample block by block, one draw per `thinning` moves."""
    settings, recorder = runner.run.settings, state.recorder
    assert recorder is not None
    while state.draws < settings.draws:
        moves = runner.allow(recorder.count_missing(settings.draws))
        if settings.filling and not moves and state.draws == 0 and runner.may_overrun:
            moves = state.thinning  # even if tune has used the budget up, one draw is made
        if not moves:
            return runner.stop_reason and f"{runner.stop_reason} after {state.draws} {settings.of_draws}", None
        try:
            state.torn = not runner.run.data.runs_remotely  # chains on workers can be reset
            played = runner.play(moves)
            draws.record_moves(recorder, played)
            draws.summarise(state, runner.run)
            state.torn = False
            runner.tick(min(settings.draws, state.draws))
            display.show("draws", *runner.progress(min(settings.draws, state.draws)), runner.note)
            if keeper is not None:
                keeper.after_block(runner, state)
            runner.require_densities(moves)
        except BaseException as error:
            if state.draws == 0 or not keeps_draws(error):
                raise
            return explain_stop(error, f"{state.draws} {settings.of_draws}")
    return "", None


def sample_exactly(runner: BlockRunner, state: RunState, display: Display, keeper: Keeper | None) -> Ended:
    """Sample from the full posterior: for each draw, `thinning` moves on the surrogate, then a pass over all rows."""
    run, settings = runner.run, runner.run.settings
    n, N = run.problem.reads, run.survey.length
    most, recorder = state.thinning * run.rows_per_move + N * settings.chains, state.recorder
    assert recorder is not None
    while state.draws < settings.draws:
        if runner.interruption.asked or runner.meter.share() >= 1 or runner.meter.rows_left() < most:
            return runner.stop_reason and f"{runner.stop_reason} after {state.draws} {settings.of_draws}", None
        try:
            state.torn = True
            values = enter_support(state.surrogates, run.problem) if state.values is None else state.values
            done, state.values = correct(state.surrogates, run.problem, values)
            made = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: settings.chains], *done)
            draws.record_corrected(recorder, made, n, N)
            draws.summarise(state, run)
            runner.position += state.thinning
            runner.accepted += float(made.accepted.mean())
            runner.meter.rows += int(made.evaluations.sum()) * n + N * settings.chains
            state.torn = False
            runner.tick(state.draws)
            note = f"corrections accepted {runner.accepted / state.draws:.2f}"
            display.show("exact draws", *runner.progress(state.draws), note)
            if keeper is not None:
                keeper.after_block(runner, state)
        except BaseException as error:
            if state.draws == 0 or not keeps_draws(error):
                raise
            return explain_stop(error, f"{state.draws} {settings.of_draws}")
    return "", None


def keeps_draws(error: BaseException) -> bool:
    """Return whether a run that fails like this returns its draws; not if the process is being stopped."""
    return isinstance(error, Exception) or is_users_error(error)


def explain_stop(error: BaseException, kept: str) -> Ended:
    """Return why a run stopped, and the error if it came from the user's own function or cluster."""
    what = f"{'no memory was left' if out_of_memory(error) else type(error).__name__} after {kept}: {error}"
    return what, error if is_users_error(error) or isinstance(error, ExecutorError) else None


def forecast_draws(runner: BlockRunner, run: Run, thinning: int) -> str:
    """Return a sentence on what the draws will cost, at the speed of tune."""
    moves = runner.affordable if run.settings.filling else run.settings.draws * thinning
    seconds = f", about {moves / runner.rate:.0f} s" if runner.rate else ""
    rows = runner.meter.rows / runner.position if runner.position else run.rows_per_move
    every = "step" if thinning == 1 else f"{thinning} steps"
    return f"Keeping one draw every {every}: {moves:,} steps per chain, {round(moves * rows):,} row reads{seconds}."


def shift_clock(clock: Sequence[tuple[int, float]], before: float) -> list[list[float]]:
    """Return draws per chain and seconds since the call, if the first move was made `before` seconds after it."""
    return [[draws, round(before + at, 3)] for draws, at in clock]
