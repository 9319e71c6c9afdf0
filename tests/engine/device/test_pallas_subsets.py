"""Programs for registers play what the ordinary program plays, move for move."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lwa.algorithm import Draw, State
from lwa.engine.device.pallas_subsets import count_lanes, count_warps, play_in_registers, why_not_in_registers
from lwa.engine.device.partial_eval import split_target
from lwa.engine.device.resident import (
    UPLOAD_ROWS,
    DeviceGenerator,
    draw_slots,
    draw_subset_page,
    make_chain_keys,
    upload_rows,
)
from lwa.engine.device.subsets import round_target
from lwa.engine.device.xla_loop import Place, Played, play_together
from lwa.kernels import HMC, Autoregressive, Independence, RandomWalk
from lwa.kernels.kernel import MoveInfo
from lwa.rivals.problems import simulate_logistic
from lwa.rows import as_rows
from lwa.targets.calibration import build_expansion
from lwa.targets.reference import find_reference
from lwa.targets.target import Target, Terms

N, D, CHAINS, MOVES = 300, 3, 4, 12

WALKING = Autoregressive(walk=0.4)


@cache
def setting(kernel, n, k, every, second_order=True):
    model, data, *_ = simulate_logistic(N, seed=1, parameters=D)
    rows = as_rows(data)
    reference = find_reference(model, rows, np.zeros(D), 1)
    expansion = build_expansion(reference, second_order=second_order) if second_order else None
    target = round_target(Target(model, jnp.asarray(N / n), expansion), np.float32)
    held = upload_rows(rows.blocks(UPLOAD_ROWS), np.float32)
    one_row = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:1], 0, -1), held)
    split = split_target(target, jnp.zeros(D, jnp.float32), one_row)
    prepared = split.prepare(target, held)
    page = draw_subset_page(
        *make_chain_keys(1, range(CHAINS)), 0, prepared, kernel=kernel, transitions=MOVES // every, moves=MOVES, k=k,
        n=n, d=D, dtype=np.float32,
    )  # fmt: skip
    indices = np.stack([np.random.default_rng(c).choice(N, n, replace=False) for c in range(CHAINS)]).astype(np.int32)
    theta = jnp.broadcast_to(jnp.asarray(reference.theta, jnp.float32), (CHAINS, D))
    tuning = jax.vmap(partial(kernel.init, reference=reference))(theta)

    def place():
        columns = [jnp.moveaxis(leaf[indices], 1, -1) for leaf in prepared]
        zeros = Terms(jnp.zeros(CHAINS, jnp.float32), jnp.zeros((CHAINS, 0), jnp.float32), jnp.zeros(CHAINS))
        return jax.tree.map(jnp.array, Place(State(theta, zeros, columns, tuning), jnp.asarray(indices)))

    return place, page, target, split


def room(every):
    shape = (CHAINS, MOVES)
    info = MoveInfo(jnp.zeros(shape), jnp.zeros(shape, bool), jnp.zeros(shape, bool), jnp.zeros(shape, jnp.int32), {})
    return Played(
        Draw(jnp.zeros((*shape, D), jnp.float32), jnp.zeros(shape), info), jnp.zeros((CHAINS, MOVES // every), bool)
    )


@pytest.mark.parametrize(
    ("kernel", "n", "k", "every", "second_order"),
    [
        (WALKING, 20, 1, 4, True),
        pytest.param(Autoregressive(), 33, 5, 4, True, marks=pytest.mark.slow),
        pytest.param(Independence(df=8.0), 20, 2, 2, True, marks=pytest.mark.slow),
        pytest.param(RandomWalk(), 20, 1, 1, False, marks=pytest.mark.slow),
    ],
)
def test_the_same_moves(kernel, n, k, every, second_order):
    with jax.enable_x64(True):
        place, page, target, split = setting(kernel, n, k, every, second_order)
        assert not why_not_in_registers(place(), page, target, kernel, split)
        gain = jnp.zeros(MOVES, jnp.float32)
        options = {"target": target, "kernel": kernel, "split": split, "every": every}
        at, wanted = play_together(place(), room(every), page, gain=gain, start=0, stop=MOVES, **options)
        half = MOVES // 2 + 1  # in the midst of a transition
        here = place()
        parts = []
        for start, stop in ((0, half), (half, MOVES)):
            here, found = play_in_registers(here, page, start=start, stop=stop, interpret=True, **options)
            parts.append(jax.tree.map(lambda leaf, a=start, b=stop: np.asarray(leaf)[:, a:b], found.draws))
        found = jax.tree.map(lambda *leaves: np.concatenate(leaves, 1), *parts)
        np.testing.assert_array_equal(found.info.accepted, wanted.draws.info.accepted)
        np.testing.assert_allclose(found.theta, wanted.draws.theta, atol=1e-6)
        np.testing.assert_allclose(found.log_density, wanted.draws.log_density, atol=2e-3)
        np.testing.assert_array_equal(here.indices, at.indices)
        for new, old in zip(here.state.rows, at.state.rows, strict=True):
            np.testing.assert_array_equal(new, old)
        assert 0 < float(np.mean(found.info.accepted)) < 1 or second_order


def test_what_does_not_fit_says_why():
    with jax.enable_x64(True):
        place, page, target, split = setting(WALKING, 20, 1, 4, True)
        assert "depend on where" in why_not_in_registers(place(), page, target, HMC(), split)
        assert "depend on where" in why_not_in_registers(place(), page, target, Autoregressive(rho=0.5), split)
        large = place()
        large = large._replace(indices=jnp.zeros((CHAINS, 10_000), jnp.int32))
        assert "do not fit" in why_not_in_registers(large, page, target, Autoregressive(), split)


def test_programs_have_few_warps():
    assert [count_lanes(n) for n in (1, 32, 33, 100, 1000)] == [32, 32, 64, 128, 1024]
    assert [count_warps(numbers) for numbers in (1, 4096, 4097, 16_384, 10**6)] == [1, 1, 2, 4, 16]


def test_slots_are_uniform_subsets():
    """Floyd's algorithm: every 2-subset of 4 slots as often, by a χ² of 5 degrees of freedom."""
    slots = np.sort(np.asarray(draw_slots(DeviceGenerator(jax.random.key(1)), 6000, 2, 4)), axis=1)
    assert (slots[:, 0] < slots[:, 1]).all()
    counts = np.bincount(slots[:, 0] * 4 + slots[:, 1], minlength=16)[[1, 2, 3, 6, 7, 11]]
    assert ((counts - 1000) ** 2 / 1000).sum() < 25.7  # one in ten thousand
