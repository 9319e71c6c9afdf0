"""A run, block by block: tune, freeze, keep draws, until they are there, the budget is spent or Ctrl-C is pressed."""

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from lwa.data.data import Layout
from lwa.diagnostics.autocorrelation import autocorrelation_time
from lwa.diagnostics.running import MANY_CHAINS, RunningSummary, start_summary, find_scales, update_summary
from lwa.diagnostics.table import stack_scalars
from lwa.engine.cohort import ADAPT_EVERY, Moves, Problem
from lwa.engine.device.cohort import CohortOnDevice
from lwa.engine.device.recorder import RecorderOnDevice
from lwa.engine.exact import Corrected, Surrogate, correct, surrogates_of
from lwa.engine.recorder import Kept, Recorder, kept_by
from lwa.engine.remote_cohort import CohortAway, Playing
from lwa.engine.tally import Tally, tally, together
from lwa.errors import ExecutorError, ModelError, out_of_memory
from lwa.models.check import describe_theta
from lwa.models.user_calls import is_users_error
from lwa.rows import Survey
from lwa.run.budget import Meter
from lwa.run.plan import Plan
from lwa.run.retention import Memory, Retention, retention_of
from lwa.run.settings import Settings, keepable
from lwa.user.progress import Display, Interruption, catch_interrupts

TUNE_SHARE = 0.5
"""Tune may use so much of a budget: what is left belongs to the draws."""
SEGMENT_SECONDS = 2.0
"""Of a block that workers play: what it costs to send a cohort there and back is small beside it."""
MOST_INVALID = 0.5
"""Of the proposals of a block: where more have a density that is NaN, the run ends rather than stand still."""
ENOUGH = 1000
"""Proposals by which that is judged."""
TUNE_MEMORY = 4096
"""Moves of tune remembered to choose the thinning, of as many chains as are not yet many."""
SKETCHED_FROM = 4096
"""Values of θ, the last ones of tune, by which it is settled how fine cells of a summary are."""
MOST_TICKS = 4096
"""Entries of the clock: every second one goes where there are more, since memory must not grow with the run."""


@dataclass(frozen=True)
class Run:
    """All that is decided before the first move."""

    settings: Settings
    problem: Problem
    cohorts: list[Playing]
    survey: Survey
    planned: Plan
    warned: list[str]  # before the first move
    layout: Layout
    accepted: float | None = None  # of the Gaussian's proposals, predicted, where the kernel was chosen by it
    microseconds: float | None = None  # a call of the log-likelihood, where it runs in Python
    memory: Memory = field(default_factory=Memory)
    superchains: int | None = None  # groups of chains that began together, where chains are many

    @property
    def subset_size(self) -> int:
        """n: rows, groups, or the steps of a window."""
        assert self.settings.subset_size is not None
        return self.settings.subset_size

    @property
    def rows_a_move(self) -> int:
        """Rows that the log-likelihood reads at the most when every chain moves once."""
        return self.problem.kernel.most_evaluations() * self.problem.reads * self.settings.chains


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    kept: Kept | None  # None: they are kept elsewhere
    stored: Mapping[str, NDArray[Any]] | None  # there, by "group/name"
    thinning: int
    moves: int
    tuned: int
    rows_read: int
    invalid: int
    stopped: str  # why, where it was before all draws were there
    seconds: float  # of tune and sampling
    furthest: float  # from the reference point, in posterior sds; 0 where there is none
    infeasible: float  # share of the moves during which U had no positive definite curvature
    tuning: Any  # what the kernel learnt, every chain's
    rate: float  # moves a second in the last block; 0 where there was but one
    clock: list[tuple[int, float]]  # draws a chain, and seconds since the first move
    warmup: Kept | None = None  # the path of tune, where it is kept
    tune_clock: Sequence[tuple[int, float]] = ()  # as `clock`, of that path
    fault: BaseException | None = None  # what the user's function raised once there were draws
    running: RunningSummary | None = None  # of all draws, where only the last ones are kept


@dataclass
class Sofar:
    """A run between two blocks, besides its chains and its player: what its next blocks and its result depend on."""

    path: Recorder  # of tune, where that is kept
    memory: deque[NDArray[Any]]  # θ over the last moves of tune, each `(moves, chains, d)`
    recorder: Recorder  # of draws that no keeper has taken
    tuned: int | None = None  # moves, once tune is over
    thinning: int = 1
    tune_clock: list[tuple[int, float]] = field(default_factory=list)
    surrogates: list[Surrogate] = field(default_factory=list)  # with exact=True, once tune is over
    values: list[NDArray[np.float64]] | None = None  # log π where they are
    retention: Retention = field(default_factory=Retention)
    running: RunningSummary | None = None  # of the draws that every chain has, where they are summarised
    torn: bool = False  # a block failed half-way: some chains may be further on than what was recorded

    @property
    def draws(self) -> int:
        """That every chain has."""
        return self.recorder.count


class Keeper(Protocol):
    """What keeps a run on disk while it goes on."""

    def take_up(self, player: "Player", sofar: Sofar) -> None:
        """Put both where an earlier process left them, if there was one."""

    def after_block(self, player: "Player", sofar: Sofar) -> None:
        """Keep what is there, if it is time."""

    def finish(self, player: "Player", sofar: Sofar) -> Mapping[str, NDArray[Any]]:
        """Keep everything, of a torn run its draws; returns all draws, by "group/name"."""


def carry_out(run: Run, display: Display, keeper: Keeper | None = None) -> Outcome:
    """Tune, freeze, sample, block by block, until the draws are there, the budget is spent or Ctrl-C is pressed."""
    with display.stages("compiling"):
        for cohort in run.cohorts:
            cohort.compiled()  # which no budget pays for
    settings, meter = run.settings, Meter(run.settings.budget)
    threads = len(run.cohorts) if run.layout.plays_away else os.cpu_count()  # those only wait
    precise = jax.enable_x64(True) if on_device(run) else nullcontext()  # what is counted there
    with precise, catch_interrupts() as interruption, ThreadPoolExecutor(threads) as pool:
        player = Player(run, meter, interruption, pool)
        sofar = Sofar(recorder_of(run, settings.thinning or 1), deque(), recorder_of(run, 1))
        if keeper is not None:
            keeper.take_up(player, sofar)
        if sofar.tuned is None:
            with display.stages("tune"):
                tune(player, sofar, display, keeper)
                if not interruption.asked:  # else whoever goes on ends it, after as many moves as were asked for
                    display.say(end_tune(player, sofar, keeper))
        tuning = jax.tree.map(  # before any move that may fail: those take the memory of the state over
            lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[: settings.chains],
            *(cohort.state.tuning for cohort in run.cohorts),
        )
        if sofar.tuned is None:
            stopped, fault = f"{interruption.asked} after 0 {settings.of_draws}", None
        else:
            display.say(forecast(player, run, sofar.thinning))
            with display.stages("draws"):
                stopped, fault = (keep_exact if settings.exact else keep)(player, sofar, display, keeper)
        kept = last_draws(sofar, run) if keeper is None else None
        stored = None if keeper is None else keeper.finish(player, sofar)
        warmup = kept_of(sofar.path, run, settings.tune) if settings.keep_tune else None
    tuned = player.position if sofar.tuned is None else sofar.tuned
    if tuned < settings.tune and not stopped:
        stopped = f"tune ended after {tuned} of {settings.tune} moves with its share of the budget"
    seconds = time.monotonic() - meter.start
    return Outcome(
        kept, stored, sofar.thinning, player.position, tuned, meter.rows, player.invalid, stopped, seconds,
        player.furthest, player.infeasible / max(1, player.position * settings.chains), tuning, player.rate,
        player.clock, warmup, sofar.tune_clock, fault, jax.tree.map(np.asarray, sofar.running),
    )  # fmt: skip


class Player:
    """Plays blocks on all cohorts and keeps count."""

    def __init__(self, run: Run, meter: Meter, interruption: Interruption, pool: ThreadPoolExecutor) -> None:
        self.run, self.meter, self.interruption, self.pool = run, meter, interruption, pool
        self.blocks = Blocks(max(1, first_block(run)), SEGMENT_SECONDS if run.layout.plays_away else Blocks.seconds)
        self.position = self.invalid = self.refreshed = self.transitions = self.infeasible = 0
        self.furthest = 0.0
        self.without = 0  # moves since proposals last had densities, by and large
        self.accepted = 0.0  # corrections of exact=True, added up
        self.rate = 0.0  # moves a second
        self.last: Tally  # of the last block
        self.clock: list[tuple[int, float]] = []

    def allowed(self, wanted: int, share: float = 1.0) -> int:
        """How many of the wanted moves fit the next block and the budget; 0 where it is over."""
        if self.interruption.asked or self.meter.seconds_left(share) <= 0:
            return 0
        moves = min(wanted, self.meter.rows_left(share) / self.run.rows_a_move)
        if self.rate:
            moves = min(moves, max(1, self.rate * self.meter.seconds_left(share)))
        if on_device(self.run):
            return self._in_step(int(moves), wanted)
        return int(min(moves, self.blocks.moves))

    def _in_step(self, moves: int, wanted: int) -> int:
        """On a device programs are compiled for each length: a page, all that is wanted, or a power of two."""
        page = self.run.problem.page
        left = page - self.position % page
        if moves >= left or moves == wanted:
            return min(moves, left)
        return 1 << (moves.bit_length() - 1) if moves else 0

    def play(self, moves: int) -> list[Moves]:
        """One block."""
        began = time.monotonic()
        cohorts, size = self.run.cohorts, len(self.run.cohorts[0].chains)
        own = [max(0, self.run.settings.chains - i * size) for i in range(len(cohorts))]  # the last may be filled up

        def one(cohort: Playing, own: int) -> tuple[Moves, Tally]:
            done = cohort.run(self.position + moves)
            return done, tally(done, own, self.run.problem.reference)

        if self.run.problem.host:  # a user's function is called on the user's thread
            both = [one(*pair) for pair in zip(cohorts, own, strict=True)]
        else:
            both = side_by_side(one, cohorts, own, self.pool)
        played, tallies = [done for done, _ in both], [counts for _, counts in both]
        took = time.monotonic() - began
        self.rate = moves / took if self.position else 0.0  # the first block compiles
        self.blocks = self.blocks.after(took, moves)
        self.position += moves
        self.last = together(tallies)
        self.meter.rows += self.last.evaluations * self.run.problem.reads
        self.invalid += self.last.invalid
        self.refreshed += self.last.refreshed
        self.transitions += self.last.transitions
        if self.run.problem.reference is not None:
            self.infeasible += self.last.standing
            self.furthest = max(self.furthest, self.last.furthest)
        return played

    @property
    def note(self) -> str:
        """How the last block went."""
        return f"accepted {self.last.acceptance / self.last.moves:.2f}, subset changes {self.refresh_rate:.2f}"

    def require_densities(self, moves: int) -> None:
        """End a run that would only stand still, where proposal after proposal has a density that is NaN."""
        share = self.last.invalid / self.last.moves
        self.without = self.without + moves if share > MOST_INVALID else 0
        if self.without < ENOUGH:
            return
        found = [theta for theta in (cohort.last_invalid() for cohort in self.run.cohorts) if theta is not None]
        where = f", for example at theta = {describe_theta(self.run.layout.given, found[0])}" if found else ""
        raise ModelError(
            f"{share:.0%} of the proposals had a log target that was NaN or +inf over the last {self.without:,} moves"
            f"{where}. Mend the model there, or give those values log density -inf."
        )

    def tick(self, draws: int) -> None:
        """So many draws a chain are there now."""
        self.clock.append((draws, time.monotonic() - self.meter.start))
        if len(self.clock) > MOST_TICKS:
            del self.clock[1:-1:2]

    def progress(self, draws: int) -> tuple[int, int]:
        """How many draws there are, of how many: by the budget, where as many are asked for as it allows."""
        if not self.run.settings.filling:
            return draws, self.run.settings.draws
        return draws, max(draws, round(draws / max(1e-9, min(1.0, self.meter.share()))))

    @property
    def over(self) -> str:
        """Why there will be no more moves; nothing where that is what was asked for."""
        if self.interruption.asked:
            return self.interruption.asked
        return "" if self.run.settings.filling else "the budget was spent"

    @property
    def may_overrun(self) -> bool:
        """Whether nothing but time is short."""
        return not self.interruption.asked and self.meter.rows_left() >= self.run.rows_a_move

    @property
    def affordable(self) -> int:
        """Moves that what is left of the budget allows, at the speed so far; 1 where nothing is known of it."""
        rows = self.meter.rows_left() / self.run.rows_a_move
        left, spent = self.meter.seconds_left(), time.monotonic() - self.meter.start
        rate = self.rate or self.position / max(spent, 1e-9)  # of a first block that compiled, where that is all
        seconds = rate * left if self.position or left <= 0 else float("inf")
        affordable = min(rows, seconds)
        return int(max(1.0, affordable)) if affordable < float("inf") else 1

    @property
    def refresh_rate(self) -> float:
        """Accepted U proposals over all."""
        return self.refreshed / max(1, self.transitions)


def tune(player: Player, sofar: Sofar, display: Display, keeper: Keeper | None) -> None:
    """Adapt, and remember where θ was."""
    run, total = player.run, player.run.settings.tune
    while moves := player.allowed(total - player.position, TUNE_SHARE):
        played = player.play(moves)
        if run.settings.keep_tune:
            record(sofar.path, played)
            player.tick(sofar.path.count)
        sofar.memory.append(remembered(played))
        while sum(map(len, sofar.memory)) - len(sofar.memory[0]) >= TUNE_MEMORY:
            sofar.memory.popleft()
        display.show("tune", player.position, total, player.note)
        if keeper is not None:
            keeper.after_block(player, sofar)
        player.require_densities(moves)


def remembered(played: list[Moves]) -> NDArray[Any]:
    """θ of all chains, or of some from all over them where they are many."""
    chains = sum(done.theta.shape[1] for done in played)
    if len(played) == 1 and chains > MANY_CHAINS:  # looked for where they are
        return np.asarray(played[0].theta[:, np.arange(MANY_CHAINS) * chains // MANY_CHAINS])
    theta = np.concatenate([done.theta for done in played], axis=1)
    return theta if chains <= MANY_CHAINS else theta[:, np.arange(MANY_CHAINS) * chains // MANY_CHAINS]


def on_device(run: Run) -> bool:
    """Whether all chains are on one."""
    return isinstance(run.cohorts[0], CohortOnDevice)


def end_tune(player: Player, sofar: Sofar, keeper: Keeper | None) -> str:
    """Nothing is learnt from here on; how far draws are apart is settled, and what is kept of them.

    Returns what is to be said of that, where it depends on the budget.
    """
    run, settings = player.run, player.run.settings
    sofar.tuned, sofar.tune_clock, player.clock = player.position, player.clock, []
    for cohort in run.cohorts:
        cohort.freeze()
    path = np.concatenate(sofar.memory) if sofar.memory else np.empty((0, 1, 1))
    path = path[-min(len(path), TUNE_MEMORY, max(1, player.position // 2)) :]
    thinning = settings.thinning or choose_thinning(path, player.refresh_rate, run.problem)
    if settings.filling and not settings.exact and settings.keep != "summary":
        room = keepable(settings.chains, run.problem.target.model.dimension)
        thinning = max(thinning, -(-player.affordable // room))
    sofar.memory.clear()
    budgeted = min(settings.budget.seconds, settings.budget.rows) < float("inf")
    expected = min(settings.draws, player.affordable // thinning + 1) if budgeted else settings.draws
    sofar.retention, told = retention_of(settings, run.memory, expected)
    sofar.thinning, sofar.recorder = thinning, recorder_of(run, thinning, sofar.retention.room)
    if sofar.retention.summarised and path.size:
        sofar.running = summary_around(run, path)
        if summarised_on_device(run, keeper):
            sofar.running = jax.device_put(sofar.running)
            sofar.recorder = RecorderOnDevice(settings.chains, thinning, run.problem.reads, sofar.retention.last)
    if settings.exact:
        for cohort in run.cohorts:
            cohort.close()
        sofar.surrogates = surrogates_of(run.cohorts, thinning)
    return told if budgeted else ""


def summarised_on_device(run: Run, keeper: Keeper | None) -> bool:
    """Whether draws need not leave it: they are there, θ is all there is to them, and nobody keeps them on disk."""
    model, told = run.layout.given, run.problem.kernel.extra()
    return on_device(run) and keeper is None and not told and not model.constrained and model.derived is None


def summary_around(run: Run, path: NDArray[Any]) -> RunningSummary:
    """A summary without draws yet, whose cells are as fine as the end of θ's path, `(moves, chains, d)`, says."""
    some = path.reshape(-1, path.shape[-1])[-SKETCHED_FROM:].astype(np.float64)
    values = stack_scalars(run.layout.given.with_derived(some[None]))
    return start_summary(run.settings.chains, *find_scales(values[0]))


def summarise(sofar: Sofar, run: Run) -> None:
    """Add the draws that every chain has since the last time; of all of them only the last few stay."""
    recorder, last = sofar.recorder, sofar.retention.last
    if isinstance(recorder, RecorderOnDevice) and sofar.running is not None:
        sofar.running = recorder.summarise(sofar.running)
        return
    ready = min(run.settings.draws, recorder.count)
    if not sofar.retention.summarised or ready == 0:
        return
    if sofar.running is None:  # there was no tune
        theta = recorder.between(0, ready - recorder.taken).theta
        sofar.running = summary_around(run, np.swapaxes(theta, 0, 1))
    seen = int(sofar.running.moments.count)
    new = recorder.between(seen - recorder.taken, ready - recorder.taken)
    values = stack_scalars(run.layout.given.with_derived(new.theta))
    sofar.running = update_summary(sofar.running, np.swapaxes(values, 0, 1))
    if ready - recorder.taken >= 2 * last:  # not each time: what stays is moved
        recorder.drop(ready - recorder.taken - last)


def last_draws(sofar: Sofar, run: Run) -> Kept:
    """Of the draws that were asked for, those that stay."""
    if isinstance(sofar.recorder, RecorderOnDevice):
        sofar.recorder.bring_home()
    recorder, ready = sofar.recorder, min(run.settings.draws, sofar.draws)
    if not sofar.retention.summarised or ready == 0:
        return kept_of(recorder, run, run.settings.draws)
    return recorder.between(max(0, ready - sofar.retention.last - recorder.taken), ready - recorder.taken)


def recorder_of(run: Run, thinning: int, room: int = 0) -> Recorder:
    """Nothing recorded yet."""
    return Recorder(run.settings.chains, thinning, run.problem.reads, run.problem.kernel.extra(), room)


def record(recorder: Recorder, played: list[Moves]) -> None:
    """Every cohort's moves."""
    size = played[0].theta.shape[1]
    for cohort, moves in enumerate(played):
        there = moves if isinstance(recorder, RecorderOnDevice) else jax.tree.map(np.asarray, moves)
        recorder.add(there, cohort * size)


def kept_of(recorder: Recorder, run: Run, most: int) -> Kept:
    """The draws of all chains."""
    return kept_by(recorder, run.problem.target.model.dimension, most, run.problem.kernel.extra())


type Ended = tuple[str, BaseException | None]
"""Why there are no more draws where it stopped early, and what the user's function raised, if that was it."""


def keep(player: Player, sofar: Sofar, display: Display, keeper: Keeper | None) -> Ended:
    """Sample."""
    settings, recorder = player.run.settings, sofar.recorder
    while sofar.draws < settings.draws:
        moves = player.allowed(recorder.missing(settings.draws))
        if settings.filling and not moves and sofar.draws == 0 and player.may_overrun:
            moves = sofar.thinning  # a budget that tune has used up buys a draw all the same
        if not moves:
            return player.over and f"{player.over} after {sofar.draws} {settings.of_draws}", None
        try:
            sofar.torn = not player.run.layout.plays_away  # chains that are played elsewhere stay where they were
            played = player.play(moves)
            record(recorder, played)
            summarise(sofar, player.run)
            sofar.torn = False
            player.tick(min(settings.draws, sofar.draws))
            display.show("draws", *player.progress(min(settings.draws, sofar.draws)), player.note)
            if keeper is not None:
                keeper.after_block(player, sofar)
            player.require_densities(moves)
        except BaseException as error:
            if sofar.draws == 0 or not may_be_kept(error):
                raise
            return told(error, f"{sofar.draws} {settings.of_draws}")
    return "", None


def may_be_kept(error: BaseException) -> bool:
    """Whether a run that has draws ends with them, rather than with nothing: not where somebody else stops it."""
    return isinstance(error, Exception) or is_users_error(error)


def told(error: BaseException, kept: str) -> tuple[str, BaseException | None]:
    """Why a run stopped, and the error itself where it is for the user to see: it came from their own function, or
    from a cluster of theirs that is gone."""
    what = f"{'no memory was left' if out_of_memory(error) else type(error).__name__} after {kept}: {error}"
    return what, error if is_users_error(error) or isinstance(error, ExecutorError) else None


def keep_exact(player: Player, sofar: Sofar, display: Display, keeper: Keeper | None) -> Ended:
    """Sample from the full posterior: for each draw, `thinning` moves on the surrogate, then a pass over all rows."""
    run, settings = player.run, player.run.settings
    n, N = run.problem.reads, run.survey.length
    most = sofar.thinning * run.rows_a_move + N * settings.chains
    while sofar.draws < settings.draws:
        if player.interruption.asked or player.meter.share() >= 1 or player.meter.rows_left() < most:
            return player.over and f"{player.over} after {sofar.draws} {settings.of_draws}", None
        try:
            sofar.torn = True
            done, sofar.values = correct(sofar.surrogates, run.problem, sofar.values)
            made = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: settings.chains], *done)
            record_corrected(sofar.recorder, made, n, N)
            summarise(sofar, run)
            player.position += sofar.thinning
            player.accepted += float(made.accepted.mean())
            player.meter.rows += int(made.evaluations.sum()) * n + N * settings.chains
            sofar.torn = False
            player.tick(sofar.draws)
            note = f"corrections accepted {player.accepted / sofar.draws:.2f}"
            display.show("exact draws", *player.progress(sofar.draws), note)
            if keeper is not None:
                keeper.after_block(player, sofar)
        except BaseException as error:
            if sofar.draws == 0 or not may_be_kept(error):
                raise
            return told(error, f"{sofar.draws} {settings.of_draws}")
    return "", None


def record_corrected(recorder: Recorder, made: Corrected, n: int, N: int) -> None:
    """One draw of every chain."""
    kept = Kept(
        made.theta, made.log_posterior, made.acceptance, made.accepted, made.refreshed, made.distance,
        made.evaluations * n + N, made.extra,
    )  # fmt: skip
    recorder.put(jax.tree.map(lambda leaf: leaf[:, None], kept))


def forecast(player: Player, run: Run, thinning: int) -> str:
    """What the draws will cost, at the speed of tune."""
    moves = player.affordable if run.settings.filling else run.settings.draws * thinning
    seconds = f", about {moves / player.rate:.0f} s" if player.rate else ""
    rows = player.meter.rows / player.position if player.position else run.rows_a_move
    reads = round(moves * rows)
    every = "step" if thinning == 1 else f"{thinning} steps"
    return f"Keeping one draw every {every}: {moves:,} steps per chain, {reads:,} row reads{seconds}."


def choose_thinning(memory: NDArray[Any], refresh_rate: float, problem: Problem) -> int:
    """Transitions a kept draw: θ's autocorrelation time, and a quarter of what U needs to renew its n rows.

    θ follows U, so draws taken within one renewal of U are alike however well θ mixes given U.
    """
    if problem.reference is not None:  # calibrated: every U has nearly the same target
        return max(1, round(autocorrelation_time(memory)))
    subsets = problem.subsets
    renewal = subsets.renewing / refresh_rate if refresh_rate > 0 and subsets.n < len(subsets.rows) else 0.0
    return int(np.ceil(max(autocorrelation_time(memory), renewal / 4)))


@dataclass(frozen=True)
class Blocks:
    """How many moves to play between two looks at the clock: as many as fit into a quarter of a second.

    Nothing depends on it but how soon a run reacts; no block lasts longer than half a second once two have been timed.
    """

    moves: int = ADAPT_EVERY
    seconds: float = 0.25

    def after(self, took: float, moves: int) -> "Blocks":
        """The next block's length, from the seconds that so many moves took; the first ones compile, so it may shrink
        and grow again."""
        fitting = moves * self.seconds / max(took, 1e-6)
        return replace(self, moves=max(1, min(int(fitting), 4 * self.moves)))


def since_the_call(clock: Sequence[tuple[int, float]], before: float) -> list[list[float]]:
    """Draws a chain and seconds, where the first move was made `before` seconds after the call."""
    return [[draws, round(before + at, 3)] for draws, at in clock]


def first_block(run: Run) -> int:
    """Moves before the first look at the clock: fewer where a move may evaluate often, or Python is slow."""
    moves = ADAPT_EVERY // run.problem.kernel.most_evaluations()
    if run.microseconds is None:
        return moves
    return min(moves, int(Blocks.seconds / (1e-6 * run.microseconds * run.settings.chains + 1e-6)))


def side_by_side[R](
    play: Callable[[Playing, int], R], cohorts: Sequence[Playing], own: Sequence[int], pool: ThreadPoolExecutor
) -> list[R]:
    """Every cohort up to the same move, one a thread. Where that fails, those played elsewhere stay where they were."""
    before = [(cohort, cohort.held()) for cohort in cohorts if isinstance(cohort, CohortAway)]
    playing = [pool.submit(play, *pair) for pair in zip(cohorts, own, strict=True)]
    try:
        return [future.result() for future in playing]
    except BaseException:
        wait(playing)
        for cohort, held in before:
            cohort.go_on_from(held)
        raise
