"""Any rival, block by block: tune, then keep draws, until they are there, the budget is spent or Ctrl-C is pressed."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from lwa.backend.random import Purpose, keys
from lwa.kernels.kernel import MoveInfo as Heard
from lwa.kernels.kernel import MetropolisKernel, steering_gain
from lwa.rivals.eager import always_compiled
from lwa.rivals.problem import Problem
from lwa.rivals.record import Record, Steps
from lwa.rivals.rival import Info, Rival, noise_of
from lwa.run.budget import Budget, Meter
from lwa.run.loop import TUNE_SHARE, Blocks, may_be_kept, told
from lwa.run.settings import keepable
from lwa.user.progress import Display, Interruption, catch_interrupts

PAGE = 1024
"""Steps in one call of the compiled loop at the most."""
LEARN_EVERY = 32
"""Steps of tune between two looks at the path's covariance."""


@dataclass(frozen=True)
class Plan:
    """What a run is asked for."""

    draws: int | None  # None: as many as the budget allows
    tune: int
    thinning: int
    seed: int
    budget: Budget
    keep_tune: bool


class Outcome(NamedTuple):
    """What came of it; `kept` has one entry a chain, all of one length."""

    kept: list[Steps]
    thinning: int
    steps: int  # a chain, tune included
    tuned: int
    rows: int
    invalid: int
    seconds: float
    stopped: str
    clock: list[tuple[int, float]]  # kept draws a chain, and seconds since the first step
    fault: BaseException | None
    warmup: list[Steps]  # the steps of tune, where they are kept
    tune_clock: list[tuple[int, float]]
    walk: Any  # what the kernel has learnt, every chain's


class Chain(NamedTuple):
    """A chain between two steps."""

    state: Any
    recent: Array  # (LEARN_EVERY, d)  θ of the last steps of tune


class Page(NamedTuple):
    """Room for the steps of one call."""

    theta: Array
    lp: Array
    accepted: Array
    acceptance: Array
    rows: Array
    invalid: Array
    extra: dict[str, Array]


def carry_out(rival: Rival, problem: Problem, starts: NDArray[np.float64], plan: Plan, display: Display) -> Outcome:
    """Tune, freeze, sample."""
    with catch_interrupts() as interruption, ExitStack() as stack:
        if problem.model.host:
            stack.enter_context(jax.disable_jit())  # the same step in Python, so that the model's functions can be
        pool = stack.enter_context(ThreadPoolExecutor(os.cpu_count()))
        player = Player(rival, problem, starts, plan.seed, plan.budget, interruption, pool)
        records = [Record(plan.thinning, None) for _ in player.chains]
        clock = list[tuple[int, float]]()
        while steps := player.allowed(plan.tune - player.position, TUNE_SHARE):
            made = player.play(steps, tuning=True)
            if plan.keep_tune:
                add(records, made)
                clock.append((records[0].kept, player.seconds))
            display.show("tune", player.position, plan.tune, in_words(made))
        sampled = sample(player, plan, player.position, display)
        warmup = [record.all() for record in records if record.parts]
        return sampled._replace(warmup=warmup, tune_clock=clock, walk=player.walk)


def add(records: list[Record], made: list[Steps]) -> None:
    """What every chain did."""
    for record, page in zip(records, made, strict=True):
        record.add(page)


def sample(player: "Player", plan: Plan, tuned: int, display: Display) -> Outcome:
    """Keep draws."""
    most = keepable(len(player.chains), player.problem.model.dimension) if plan.draws is None else None
    records = [Record(plan.thinning, most) for _ in player.chains]
    wanted = None if plan.draws is None else plan.draws * plan.thinning
    total = 2**62 if wanted is None else wanted
    clock, stopped, fault = list[tuple[int, float]](), "", None
    while (done := player.position - tuned) < total:
        if not (steps := player.allowed(total - done)):
            if plan.draws is not None or player.interruption.asked:
                reason = player.interruption.asked or "the budget was spent"
                stopped = f"{reason} after {records[0].kept} draws"
            break
        try:
            made = player.play(steps, tuning=False)
        except BaseException as error:
            if not records[0].kept or not may_be_kept(error):
                raise
            stopped, fault = told(error, f"{records[0].kept} draws")
            break
        add(records, made)
        clock.append((records[0].steps, player.seconds))
        done = player.position - tuned
        shown = (done, total) if wanted else (round(100 * min(1.0, player.meter.share())), 100)
        display.show("draws" if wanted else "% of the budget", *shown, in_words(made))
    length = min(record.kept for record in records)
    if plan.draws is not None:
        length = min(length, plan.draws)
    kept = [jax.tree.map(lambda leaf: leaf[:length], record.all()) if record.parts else None for record in records]
    seconds = player.seconds
    thinning = records[0].thinning
    ticks = [(min(length, steps // thinning), at) for steps, at in clock]
    return Outcome(
        [one for one in kept if one is not None], thinning, player.position, tuned, player.meter.rows, player.invalid,
        seconds, stopped, ticks, fault, [], [], None,
    )  # fmt: skip


def in_words(made: Sequence[Steps]) -> str:
    """How a block went."""
    accepted, rows = (np.mean([getattr(one, name).mean() for one in made]) for name in ("acceptance", "rows"))
    return f"accepts {accepted:.2f}, reads {rows:,.0f} rows a step"


class Player:
    """Plays blocks on all chains and keeps count."""

    def __init__(
        self,
        rival: Rival,
        problem: Problem,
        starts: NDArray[np.float64],
        seed: int,
        budget: Budget,
        interruption: Interruption,
        pool: ThreadPoolExecutor,
    ) -> None:
        self.rival, self.problem, self.interruption, self.pool = rival, problem, interruption, pool
        self.blocks = Blocks(1)
        self.position = self.invalid = 0
        chains = range(len(starts))
        self.keys = list(keys(seed, Purpose.RIVAL, chains))
        beginnings = list(keys(seed, Purpose.RIVAL_START, chains))
        self.chains = [begin(key, theta, rival, problem) for key, theta in zip(beginnings, starts, strict=True)]
        self.room = blank(rival, self.chains[0].state, problem)
        self.one(0, steps=0, tuning=True)  # to compile, which no budget pays for
        self.meter = Meter(budget)

    @property
    def seconds(self) -> float:
        """Since the first step."""
        return time.monotonic() - self.meter.start

    @property
    def walk(self) -> Any:
        """What the kernel has learnt, every chain's; None where θ′ comes from elsewhere."""
        if not self.rival.walks:
            return None
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(chain.state.walk for chain in self.chains))

    def allowed(self, wanted: int, share: float = 1.0) -> int:
        """How many of the wanted steps fit the next block and the budget; 0 where it is over."""
        rows = self.meter.rows_left(share)
        if self.interruption.asked or self.meter.seconds_left(share) <= 0 or rows <= 0:
            return 0
        a_step = self.meter.rows / self.position if self.position else self.problem.length * float(self.problem.reads)
        fitting = max(1.0, rows / max(a_step, 1.0))
        return int(min(wanted, self.blocks.moves, PAGE, fitting))

    def play(self, steps: int, *, tuning: bool) -> list[Steps]:
        """One block of every chain, one a thread; in Python one after the other, on the caller's."""
        began = time.monotonic()
        call = partial(self.one, steps=steps, tuning=tuning)
        chains = range(len(self.chains))
        done = list(map(call, chains) if self.problem.model.host else self.pool.map(call, chains))
        self.blocks = self.blocks.after(time.monotonic() - began, steps)
        self.chains = [chain for chain, _ in done]
        self.position += steps
        pages = [jax.tree.map(lambda leaf: np.asarray(leaf)[:steps], page) for _, page in done]
        reads = float(self.problem.reads)
        self.invalid += sum(int(page.invalid.sum()) for page in pages)
        made = [
            Steps(
                page.theta, page.lp, page.accepted, page.acceptance, np.rint(page.rows * reads).astype(np.int64),
                page.extra,
            )
            for page in pages
        ]  # fmt: skip
        self.meter.rows += sum(int(one.rows.sum()) for one in made)
        return made

    def one(self, chain: int, steps: int, tuning: bool) -> tuple[Chain, Page]:
        """A block of one chain."""
        with jax.enable_x64(True):
            played = advance(
                self.keys[chain], self.chains[chain], self.room, self.position, steps, self.problem, self.rival, tuning
            )
            jax.block_until_ready(played)  # type: ignore[no-untyped-call]
            return played


@partial(jax.jit, static_argnames=("rival",))
def begin(key: Array, theta: Array, rival: Rival, problem: Problem) -> Chain:
    """A chain before its first step."""
    return Chain(rival.init(key, jnp.asarray(theta), problem), jnp.tile(jnp.asarray(theta), (LEARN_EVERY, 1)))


def blank(rival: Rival, state: Any, problem: Problem) -> Page:
    """Zeros in the shape of a page."""
    if problem.model.host:
        info = rival.step(jax.random.key(0), state, problem)[1]
    else:
        info = jax.eval_shape(lambda state: rival.step(jax.random.key(0), state, problem)[1], state)

    def zeros(leaf: Any) -> Array:
        return jnp.zeros((PAGE, *leaf.shape), leaf.dtype)

    return jax.tree.map(zeros, noted_as(state.theta, info))


@partial(jax.jit, static_argnames=("rival",))
def advance(
    key: Array, chain: Chain, room: Page, first: Any, steps: Any, problem: Problem, rival: Rival, tuning: Any
) -> tuple[Chain, Page]:
    """So many steps of one chain, from its `first` on. A step's randomness depends on its number, not on the block."""

    def body(i: Array, carry: tuple[Chain, Page]) -> tuple[Chain, Page]:
        (state, recent), page = carry
        number = first + i
        own = key_of(key, number)
        state, info = rival.step(own, state, problem)
        page = noted(page, i, noted_as(state.theta, info))
        if rival.walks:
            recent = recent.at[number % LEARN_EVERY].set(state.theta)
            noise = noise_of(own, state.theta, problem.kernel)
            gain = jnp.where(tuning, steering(number, problem), 0.0)
            walk = adapted(state.walk, noise, info.acceptance, gain, recent, number, tuning, problem.kernel)
            state = state._replace(walk=walk)
        return Chain(state, recent), page

    return lax.fori_loop(0, steps, body, (chain, room))


def steering(number: Array, problem: Problem) -> Array:
    """How strongly scales follow the acceptance rate: where they must be found, as those of lwa do.

    Where the mode gave the shape they begin near the right scale, and settle sooner.
    """
    return steering_gain(number) if problem.gaussian is None else (number + 2.0) ** -0.6


@partial(always_compiled, static=("kernel",))
def adapted(
    walk: Any,
    noise: Any,
    acceptance: Array,
    gain: Array,
    recent: Array,
    number: Array,
    tuning: Array,
    kernel: MetropolisKernel,
) -> Any:
    """Towards the acceptance rate, and every so many steps by the covariance of the path, unless the mode gave one.

    After tune nothing changes: the gain is zero.
    """
    heard = Heard(acceptance, None, None, None, {})
    walk = kernel.steer(walk, noise, heard, gain)
    return lax.cond(
        tuning & ((number + 1) % LEARN_EVERY == 0),
        lambda walk: kernel.adapt(walk, recent, number + 1.0),
        lambda walk: walk,
        walk,
    )


@always_compiled
def key_of(key: Array, number: Array) -> Array:
    """A step's own key."""
    return jax.random.fold_in(key, number)


@always_compiled
def noted(page: Page, i: Array, made: Page) -> Page:
    """A step in its place."""
    return jax.tree.map(lambda room, leaf: room.at[i].set(leaf), page, made)


def noted_as(theta: Any, info: Info) -> Page:
    """What is kept of a step."""
    return Page(theta, info.lp, info.accepted, info.acceptance, info.rows, info.invalid, info.extra)
