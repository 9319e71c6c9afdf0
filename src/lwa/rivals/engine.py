"""Any rival, block by block: tune, then keep draws, until they are there, the budget is spent or Ctrl-C is pressed."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float64, PyTree, Shaped

from lwa.backend.random import Purpose, as_seed, keys
from lwa.data.data import Data
from lwa.kernels.autoregressive import Noise
from lwa.kernels.blockwise import Noise as BlockNoise
from lwa.kernels.kernel import AnyArray, MetropolisKernel, MoveInfo, Tuning, steering_gain
from lwa.rivals.problem import RivalProblem, always_compiled
from lwa.rivals.rival import Info, Rival, draw_noise
from lwa.run.budget import NO_LIMIT, Budget, as_budget
from lwa.run.loop import TUNE_SHARE, BlockLength, Meter, Spent, explain_stop, keeps_draws
from lwa.run.settings import count_keepable, read_draws
from lwa.user.progress import Display, Interruption, catch_interrupts
from lwa.user.validate import require_bool, require_whole

STEPS_PER_CALL = 1024
"""Steps in one call of the compiled loop at most."""
LEARN_EVERY = 32
"""Steps of tune between two looks at the path's covariance."""

type Clock = list[tuple[int, float]]
"""Steps or draws per chain, and seconds since the first step."""


@dataclass(frozen=True)
class RivalPlan:
    """What a run is asked for."""

    draws: int | None  # None: as many as the budget allows
    tune: int
    thinning: int
    seed: int
    budget: Budget
    keep_tune: bool

    @classmethod
    def check(
        cls, *, draws: object, tune: object, thinning: object, seed: object, budget: object, keep_tune: object
    ) -> "RivalPlan":
        """Return the plan, or refuse what cannot be meant."""
        return cls(
            draws=read_draws(draws, budget), tune=require_whole("tune", tune, least=0, example=1000),
            thinning=require_whole("thinning", thinning, least=1, example=1), seed=as_seed(seed),
            budget=as_budget(budget), keep_tune=require_bool("keep_tune", keep_tune),
        )  # fmt: skip


@dataclass(frozen=True)
class RivalRun:
    """All that is decided before the first step."""

    rival: Rival
    problem: RivalProblem
    plan: RivalPlan
    starts: Float64[np.ndarray, "chains d"]
    data: Data
    fingerprint: str  # of the data
    warned: list[str]

    @property
    def in_words(self) -> str:
        """What the run is going to do."""
        plan, N = self.plan, len(self.data)
        draws = "as many draws as the budget allows" if plan.draws is None else f"{plan.draws:,} draws"
        steps = f"{len(self.starts)} chains, {plan.tune:,} steps of tune, then {draws}"
        return f"{self.rival.label}: {steps}, on {N:,} rows."


class Steps(NamedTuple):
    """Steps of one chain, leaves `(steps, ...)`; or kept ones of all chains, leaves `(chains, draws, ...)`."""

    theta: Shaped[AnyArray, "*steps d"]
    info: Info


class Record:
    """Every `thinning`-th step, with acceptance and rows added up from the first step on.

    The thinning doubles whenever more than `most` are kept.
    """

    def __init__(self, thinning: int, most: int | None) -> None:
        self.thinning, self.most = thinning, most
        self.parts: list[Steps] = []
        self.steps = self.kept = self.rows = 0
        self.acceptance = 0.0

    def add(self, made: Steps) -> None:
        """Add the next steps, with acceptance and rows of each."""
        steps = np.arange(self.steps, self.steps + len(made.theta))
        info = made.info._replace(
            acceptance=self.acceptance + np.cumsum(made.info.acceptance), rows=self.rows + np.cumsum(made.info.rows)
        )
        if len(steps):
            self.acceptance, self.rows = float(info.acceptance[-1]), int(info.rows[-1])
        self.steps += len(steps)
        due = steps % self.thinning == self.thinning - 1
        self._append(jax.tree.map(lambda leaf: leaf[due], Steps(made.theta, info)))
        while self.most is not None and self.kept > self.most:
            self.thinning *= 2
            everything, self.parts, self.kept = self.join(), [], 0
            self._append(jax.tree.map(lambda leaf: leaf[1::2], everything))

    def _append(self, made: Steps) -> None:
        self.parts.append(made)
        self.kept += len(made.theta)

    def join(self) -> Steps:
        """Return everything kept so far."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *self.parts)


@dataclass(frozen=True)
class RivalOutcome(Spent):
    """What came of a run. Steps are arrays `(chains, draws, ...)`; None if there are none."""

    kept: Steps | None
    warmup: Steps | None  # the steps of tune, if they are kept
    walk: Tuning  # what the kernel of every chain has learnt


class RivalChain(NamedTuple):
    """A chain between two steps."""

    state: PyTree
    recent: Float64[Array, "learn_every d"]  # θ of the last steps of tune


def run_rival(run: RivalRun, display: Display) -> RivalOutcome:
    """Tune all chains, freeze what they learnt, and keep draws."""
    plan = run.plan
    with catch_interrupts() as interruption, ExitStack() as stack:
        if run.problem.model.in_python:
            stack.enter_context(jax.disable_jit())  # the step runs in Python, so that the model's functions can
        pool = stack.enter_context(ThreadPoolExecutor(os.cpu_count()))
        runner = RivalRunner(run, interruption, pool)
        path, tune_clock = tune_chains(runner, display)
        tuned, most = runner.position, None
        if plan.draws is None:
            most = count_keepable(len(runner.chains), run.problem.model.dimension)
        records = [Record(plan.thinning, most) for _ in runner.chains]
        clock, stopped, fault = keep_draws(runner, records, display)
        length, thinning = min(plan.draws or NO_LIMIT, records[0].kept), records[0].thinning
        return RivalOutcome(
            thinning=thinning, moves=runner.position, tuned=tuned, rows_read=runner.meter.rows, invalid=runner.invalid,
            stopped=stopped, seconds=runner.seconds,
            clock=[(min(length, steps // thinning), at) for steps, at in clock], tune_clock=tune_clock, fault=fault,
            kept=stack_chains(records, length), warmup=stack_chains(path, path[0].kept), walk=runner.walk,
        )  # fmt: skip


def tune_chains(runner: "RivalRunner", display: Display) -> tuple[list[Record], Clock]:
    """Adapt the kernel; return the path and its clock, which are empty unless they are kept."""
    plan = runner.run.plan
    clock: Clock = []
    records = [Record(plan.thinning, None) for _ in runner.chains]
    while steps := runner.count_allowed(plan.tune - runner.position, TUNE_SHARE):
        made = runner.play(steps, tuning=True)
        if plan.keep_tune:
            for record, one in zip(records, made, strict=True):
                record.add(one)
            clock.append((records[0].kept, runner.seconds))
        display.show("tune", runner.position, plan.tune, describe_block(made))
    return records, clock


def keep_draws(
    runner: "RivalRunner", records: list[Record], display: Display
) -> tuple[Clock, str, BaseException | None]:
    """Record steps until all are there; return their clock, why it ended early, and what the user's function raised."""
    plan, tuned = runner.run.plan, runner.position
    clock: Clock = []
    total = NO_LIMIT if plan.draws is None else plan.draws * plan.thinning
    while (done := runner.position - tuned) < total:
        if not (steps := runner.count_allowed(total - done)):
            reason = runner.interruption.asked or ("" if plan.draws is None else "the budget was spent")
            return clock, reason and f"{reason} after {records[0].kept} draws", None
        try:
            made = runner.play(steps, tuning=False)
        except BaseException as error:
            if not records[0].kept or not keeps_draws(error):
                raise
            return clock, *explain_stop(error, f"{records[0].kept} draws")
        for record, one in zip(records, made, strict=True):
            record.add(one)
        clock.append((records[0].steps, runner.seconds))
        if plan.draws is None:
            display.show("% of the budget", round(100 * min(1.0, runner.meter.share())), 100, describe_block(made))
        else:
            display.show("draws", runner.position - tuned, total, describe_block(made))
    return clock, "", None


def stack_chains(records: Sequence[Record], draws: int) -> Steps | None:
    """Return the first `draws` kept steps of every chain, arrays `(chains, draws, ...)`; None if no step was made."""
    if not records[0].parts:
        return None
    return jax.tree.map(lambda *leaves: np.stack([leaf[:draws] for leaf in leaves]), *(one.join() for one in records))


def read_steps(page: Steps, steps: int, reads: float) -> Steps:
    """Return the first so many steps of a page as NumPy arrays, with rows in place of units of `reads` rows."""
    theta, info = jax.tree.map(lambda leaf: np.asarray(leaf)[:steps], page)
    return Steps(theta, info._replace(rows=np.rint(info.rows * reads).astype(np.int64)))


def describe_block(made: Sequence[Steps]) -> str:
    """Describe how a block went."""
    accepted, rows = (np.mean([getattr(one.info, name).mean() for one in made]) for name in ("acceptance", "rows"))
    return f"accepts {accepted:.2f}, reads {rows:,.0f} rows per step"


class RivalRunner:
    """Plays blocks on all chains and keeps count."""

    def __init__(self, run: RivalRun, interruption: Interruption, pool: ThreadPoolExecutor) -> None:
        self.run, self.rival, self.problem = run, run.rival, run.problem
        self.interruption, self.pool = interruption, pool
        self.blocks = BlockLength(1)
        self.position = self.invalid = 0
        chains = range(len(run.starts))
        self.keys = list(keys(run.plan.seed, Purpose.RIVAL, chains))
        beginnings = list(keys(run.plan.seed, Purpose.RIVAL_START, chains))
        self.chains = [
            start_chain(key, theta, run.rival, run.problem) for key, theta in zip(beginnings, run.starts, strict=True)
        ]
        self.room = make_blank_page(run.rival, self.chains[0].state, run.problem)
        self._play_chain(0, steps=0, tuning=True)  # to compile, which no budget pays for
        self.meter = Meter(run.plan.budget)

    @property
    def seconds(self) -> float:
        """Seconds since the first step."""
        return time.monotonic() - self.meter.start

    @property
    def walk(self) -> Tuning:
        """What the kernel of every chain has learnt; None if θ′ comes from elsewhere."""
        if not self.rival.walks:
            return None
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(chain.state.walk for chain in self.chains))

    def count_allowed(self, wanted: int, share: float = 1.0) -> int:
        """Return how many of the wanted steps fit the next block and the budget; 0 if it is spent."""
        rows = self.meter.rows_left(share)
        if self.interruption.asked or self.meter.seconds_left(share) <= 0 or rows <= 0:
            return 0
        per_step = self.meter.rows / self.position if self.position else self.problem.length * float(self.problem.reads)
        fitting = max(1.0, rows / max(per_step, 1.0))
        return int(min(wanted, self.blocks.moves, STEPS_PER_CALL, fitting))

    def play(self, steps: int, *, tuning: bool) -> list[Steps]:
        """Play one block of every chain, each on a thread; in Python one after the other, on the caller's thread."""
        began = time.monotonic()
        call = partial(self._play_chain, steps=steps, tuning=tuning)
        chains = range(len(self.chains))
        done = list(map(call, chains) if self.problem.model.in_python else self.pool.map(call, chains))
        self.blocks = self.blocks.after(time.monotonic() - began, steps)
        self.chains = [chain for chain, _ in done]
        self.position += steps
        made = [read_steps(page, steps, float(self.problem.reads)) for _, page in done]
        self.invalid += sum(int(one.info.invalid.sum()) for one in made)
        self.meter.rows += sum(int(one.info.rows.sum()) for one in made)
        return made

    def _play_chain(self, chain: int, steps: int, tuning: bool) -> tuple[RivalChain, Steps]:
        with jax.enable_x64(True):
            played = advance_chain(
                self.keys[chain], self.chains[chain], self.room, first=self.position, steps=steps, problem=self.problem,
                rival=self.rival, tuning=tuning,
            )  # fmt: skip
            jax.block_until_ready(played)  # type: ignore[no-untyped-call]
            return played


@partial(jax.jit, static_argnames=("rival",))
def start_chain(key: Array, theta: Float64[Array, " d"], rival: Rival, problem: RivalProblem) -> RivalChain:
    """Return a chain before its first step."""
    return RivalChain(rival.init(key, jnp.asarray(theta), problem), jnp.tile(jnp.asarray(theta), (LEARN_EVERY, 1)))


def make_blank_page(rival: Rival, state: PyTree, problem: RivalProblem) -> Steps:
    """Return zeros in the shape of a page."""
    if problem.model.in_python:
        info = rival.step(jax.random.key(0), state, problem)[1]
    else:
        info = jax.eval_shape(lambda state: rival.step(jax.random.key(0), state, problem)[1], state)
    return jax.tree.map(lambda leaf: jnp.zeros((STEPS_PER_CALL, *leaf.shape), leaf.dtype), Steps(state.theta, info))


@partial(jax.jit, static_argnames=("rival",))
def advance_chain(
    key: Array, chain: RivalChain, room: Steps, first: int, steps: int, problem: RivalProblem, rival: Rival,
    tuning: bool,
) -> tuple[RivalChain, Steps]:  # fmt: skip
    """Make so many steps of one chain, from its `first` on. Randomness depends on a step's number, not on the block."""

    def body(i: Array, carry: tuple[RivalChain, Steps]) -> tuple[RivalChain, Steps]:
        (state, recent), page = carry
        number = first + i
        own = derive_key(key, number)
        state, info = rival.step(own, state, problem)
        page = write_step(page, i, Steps(state.theta, info))
        if rival.walks:
            recent = recent.at[number % LEARN_EVERY].set(state.theta)
            noise = draw_noise(own, state.theta, problem.kernel)
            gain = jnp.where(tuning, steering_strength(number, problem), 0.0)
            walk = adapt_walk(
                state.walk, noise, info.acceptance, gain, recent=recent, number=number, tuning=tuning,
                kernel=problem.kernel,
            )  # fmt: skip
            state = state._replace(walk=walk)
        return RivalChain(state, recent), page

    return lax.fori_loop(0, steps, body, (chain, room))


def steering_strength(number: Array, problem: RivalProblem) -> Array:
    """Return how strongly scales follow acceptance rates: as in lwa; if the mode gave near ones, they settle sooner."""
    return steering_gain(number) if problem.gaussian is None else (number + 2.0) ** -0.6


@partial(always_compiled, static=("kernel",))
def adapt_walk(
    walk: Tuning, noise: Noise | BlockNoise, acceptance: AnyArray, gain: Array, recent: Array, number: Array,
    tuning: bool | Array, kernel: MetropolisKernel,
) -> Tuning:  # fmt: skip
    """Adapt to the acceptance rate, and every so many steps to the covariance of the path, unless the mode gave one.

    After tune nothing changes: the gain is zero.
    """
    info = MoveInfo(acceptance, None, None, None, {})  # type: ignore[arg-type]
    walk = kernel.steer(walk, noise, info, gain)
    due = tuning & ((number + 1) % LEARN_EVERY == 0)
    return lax.cond(due, lambda walk: kernel.adapt(walk, recent, number + 1.0), lambda walk: walk, walk)


derive_key = always_compiled(jax.random.fold_in)
"""Return a step's own key, from the chain's and the number of the step."""


@always_compiled
def write_step(page: Steps, i: Array, made: Steps) -> Steps:
    """Write a step to its place in a page."""
    return jax.tree.map(lambda room, leaf: room.at[i].set(leaf), page, made)
