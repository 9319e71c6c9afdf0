"""One block at a time: which entries move, what each block learns, and blocks that are none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.engine.cohort import LocalCohort
from lwa.kernels import Blockwise, RandomWalk
from lwa.kernels.blockwise import block_gain
from lwa.kernels.kernel import steering_gain
from lwa.targets.reference import Reference

INIT = {"a": 0.0, "b": jnp.zeros(3), "c": jnp.zeros((2, 2)), "d": jnp.zeros(5)}
BLOCKS = [["d"], ["a", "c"], ["b"]]
ENTRIES = {"a": [0], "b": [1, 2, 3], "c": [4, 5, 6, 7], "d": [8, 9, 10, 11, 12]}
DEEP = np.linalg.cholesky(np.array([[4.0, 1.8], [1.8, 1.0]]))


def model(init):
    return lwa.Model(lambda theta, rows: 0.0 * rows, lambda theta: 0.0, init)


def propose_many(kernel):
    """One program for many proposals from one place."""
    return jax.jit(jax.vmap(kernel.propose, (0, None, None)))


def moved_by(kernel, moves=200):
    """Which entries each of many moves from zero changes, `(moves, d)`, and the block it says it moves."""
    with jax.enable_x64(True):
        d = sum(len(block) for group in kernel.layout for block in group)
        theta = jnp.zeros(d)
        noise = kernel.noise(np.random.default_rng(1), moves, d, np.float64)
        proposed, log_hastings = propose_many(kernel)(noise, kernel.init(theta, None), theta)
    assert not np.any(np.asarray(log_hastings))
    return np.asarray(proposed) != 0, noise.block


def test_a_move_changes_its_block_and_nothing_else():
    kernel = Blockwise(BLOCKS).bind(model(INIT))
    moved, block = moved_by(kernel)
    expected = [set(ENTRIES["d"]), {*ENTRIES["a"], *ENTRIES["c"]}, set(ENTRIES["b"])]
    for number in range(3):
        (changed,) = {tuple(np.flatnonzero(row)) for row in moved[block == number]}
        expected.remove(set(changed))
        assert 30 < np.sum(block == number) < 110  # Binomial(200, 1/3): four sds
    assert not expected


def test_each_parameter_is_a_block_of_its_own_by_default():
    kernel = Blockwise().bind(model(INIT))
    moved, _ = moved_by(kernel)
    assert {tuple(np.flatnonzero(row)) for row in moved} == {tuple(entries) for entries in ENTRIES.values()}


def test_small_blocks_cost_little_beside_a_large_one():
    """300 scalars and a block of 300: blocks are kept by size, so memory is about the sum of their squares."""
    init = {f"x{i}": 0.0 for i in range(300)} | {"large": jnp.zeros(300)}
    kernel = Blockwise().bind(model(init))
    tuning = kernel.init(jnp.zeros(600), None)
    assert sum(group.factor.size for group in tuning.groups) == 300 + 300**2


@pytest.mark.slow
def test_a_reference_gives_each_block_its_shape_given_the_others():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(13, 13))
    precision = root @ root.T + np.eye(13)
    reference = Reference(np.zeros(13), np.zeros(13), precision, np.zeros((13, 13)), 1)
    with jax.enable_x64(True):
        kernel = Blockwise(BLOCKS).bind(model(INIT))
        tuning = kernel.init(jnp.zeros(13), reference)
        adapted = kernel.adapt(tuning, jnp.asarray(rng.normal(size=(32, 13))), 1e4)
    covariance = np.linalg.inv(precision)
    for group, blocks in zip(adapted.groups, kernel.layout, strict=True):
        for factor, block in zip(np.asarray(group.factor), blocks, strict=True):
            rest = [i for i in range(13) if i not in block]
            own, across = covariance[np.ix_(block, block)], covariance[np.ix_(block, rest)]
            given = own - across @ np.linalg.solve(covariance[np.ix_(rest, rest)], across.T)
            size = len(block)
            np.testing.assert_allclose((factor @ factor.T)[:size, :size], given, rtol=1e-6)
    np.testing.assert_array_equal(adapted.log_scale, tuning.log_scale)


def test_each_block_learns_its_own_scale_and_covariance():
    """Three blocks with sds from 0.01 to 2, one of them correlated; a fourth of one entry fills none of them up."""
    scales = {"narrow": 0.01, "wide": 2.0}

    def log_likelihood(theta, rows):
        deep = jnp.linalg.solve(jnp.asarray(DEEP, rows.dtype), theta["deep"])
        squares = sum((theta[name] / sd) ** 2 for name, sd in scales.items())
        return jnp.broadcast_to(-0.5 * (jnp.sum(deep**2) + squares + jnp.sum(theta["rest"] ** 2)), rows.shape)

    init = {"deep": jnp.zeros(2), "narrow": 0.0, "rest": jnp.zeros(3), "wide": 0.0}
    target = lwa.Model(log_likelihood, lambda theta: 0.0, init)
    with pytest.MonkeyPatch.context() as patch:
        states = []
        close = LocalCohort.close
        patch.setattr(LocalCohort, "close", lambda cohort: (states.append(cohort.state), close(cohort)))
        run = lwa.sample(
            target, np.zeros(1), target="powered", subset_size=1, draws=300, tune=6000, chains=16, thinning=5, seed=2,
            kernel=Blockwise(), precision="float64", progress=False,
        )  # fmt: skip
    kernel = Blockwise().bind(target)
    order = [block for group in kernel.layout for block in group]
    assert order == [(2,), (6,), (0, 1), (3, 4, 5)]
    # 1,500 moves a block: its last gain is 0.05 and leaves log scale an sd of about 0.1; acceptance 0.03 a chain.
    assert abs(run.sample_stats["acceptance_rate"].mean() - 0.35) < 0.05
    states = states[:2]
    pairs = np.concatenate([state.tuning.groups[1].factor[:, 0] for state in states])
    learnt = (pairs @ pairs.swapaxes(1, 2)).mean(0)
    # About 1,500/6 draws of θ a chain: entries have an sd of √(2/250) = 0.09 of themselves, and 0.02 over 16 chains.
    np.testing.assert_allclose(learnt, DEEP @ DEEP.T, rtol=0.12)
    singles = np.concatenate([state.tuning.groups[0].factor[..., 0, 0] for state in states])
    np.testing.assert_allclose(singles.mean(0), [0.01, 2.0], rtol=0.12)
    assert run.attributes["kernel"].startswith("adaptive random walk over 4 blocks, step size ")
    assert len(run.attributes["proposal_variances"]) == 4
    assert run.attributes["settings"]["kernel"] == "Blockwise(blocks=None, target_accept=0.35, scale=0.1)"


@pytest.mark.parametrize("kernel", [Blockwise(BLOCKS), RandomWalk()])
def test_proposal_variances_are_those_of_proposals(kernel):
    rng = np.random.default_rng(3)
    root = rng.normal(size=(13, 13))
    reference = Reference(np.zeros(13), np.zeros(13), root @ root.T + np.eye(13), np.zeros((13, 13)), 1)
    kernel, moves = kernel.bind(model(INIT)), 60_000
    with jax.enable_x64(True):
        theta = jnp.zeros(13)
        tuning = kernel.init(theta, reference)
        told = kernel.proposal_variances(jax.tree.map(lambda leaf: np.stack([leaf, leaf]), tuning))
        noise = kernel.noise(rng, moves, 13, np.float64)
        jumps = np.asarray(propose_many(kernel)(noise, tuning, theta)[0])
    blocks = [block for group in getattr(kernel, "layout", ((range(13),),)) for block in group]
    assert len(told) == len(blocks)
    for number, (variance, entries) in enumerate(zip(told, blocks, strict=True)):
        own = jumps[noise.block == number] if len(blocks) > 1 else jumps
        # Means of at least 19,000 squares, whose relative sd is √2 at the most: 1 % each.
        np.testing.assert_allclose((own[:, list(entries)] ** 2).mean(), variance, rtol=0.05)


def test_the_gain_is_that_of_a_blocks_own_moves():
    with jax.enable_x64(True):
        moves = np.array([0.0, 40.0, 4000.0])
        np.testing.assert_allclose(block_gain(jnp.asarray(steering_gain(moves)), 4), steering_gain(moves / 4))
        assert block_gain(jnp.zeros(()), 4) == 0


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (
            [["a"], ["b", "c", "d", "e"]],
            r"names 'e', which the model does not have. Pass each of 'a', 'b', 'c', 'd' in",
        ),
        ([["a", "b"], ["b", "c", "d"]], "names 'b' more than once"),
        ([["a"], ["d"]], "leaves out 'b', 'c'"),
        (["a", "b"], r"blocks=\['a', 'b'\] must be lists of parameter names. Pass blocks=\[\['mu'\]"),
        ([], "must be lists of parameter names"),
        ([["a"], []], "must be lists of parameter names"),
        ([["a", 1]], "must be lists of parameter names"),
        ("a", "must be lists of parameter names"),
    ],
)
def test_blocks_that_are_none(blocks, message):
    with pytest.raises(lwa.InputError, match=message):
        Blockwise(blocks).bind(model(INIT))


def test_lists_and_tuples_are_the_same_blocks():
    assert Blockwise([["a"], ["b"]]) == Blockwise((("a",), ("b",)))
    assert hash(Blockwise([["a"], ["b"]])) == hash(Blockwise((("a",), ("b",))))
