"""Recorder against the plainest loop over moves there is."""

from itertools import pairwise

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lwa.pipeline import Moves
from lwa.recording import Kept, Recorder, stack

CHAINS, D, ROWS = 2, 3, 20
EXTRA = {"diverging": np.bool_(False), "n_steps": np.int32(0), "energy": np.float64(0)}


def moves_of(seed, length, share_of_ends):
    rng = np.random.default_rng(seed)
    flags = (length, CHAINS)
    return Moves(
        theta=rng.normal(size=(length, CHAINS, D)).astype(np.float32),
        log_density=rng.normal(size=flags),
        acceptance=rng.random(flags),
        accepted=rng.random(flags) < 0.5,
        invalid=np.zeros(flags, bool),
        refreshed=rng.random(flags) < 0.5,
        ends=rng.random(flags) < share_of_ends,
        distance=rng.random(flags),
        evaluations=rng.integers(1, 300, flags, np.int32),
        extra={
            "diverging": rng.random(flags) < 0.1,
            "n_steps": rng.integers(1, 256, flags, np.int32),
            "energy": rng.normal(size=flags),
        },
    )


def brute(moves, chain, thinning):
    """One move after the other; a draw is kept at the end of every `thinning`-th transition."""
    draws, since, transitions = [], [], 0
    for t in range(len(moves.ends)):
        since.append(t)
        if not moves.ends[t, chain]:
            continue
        transitions += 1
        if transitions % thinning:
            continue
        draws.append(
            (
                moves.theta[t, chain],
                moves.log_density[t, chain],
                np.mean([moves.acceptance[s, chain] for s in since]),
                moves.accepted[t, chain],
                sum(bool(moves.refreshed[s, chain]) for s in since) / thinning,
                moves.distance[t, chain],
                sum(int(moves.evaluations[s, chain]) for s in since) * ROWS,
                {
                    "diverging": any(bool(moves.extra["diverging"][s, chain]) for s in since),
                    "n_steps": sum(int(moves.extra["n_steps"][s, chain]) for s in since),
                    "energy": moves.extra["energy"][t, chain],
                },
            )
        )
        since = []
    return draws, transitions


def in_chunks(moves, cuts):
    bounds = [0, *sorted(cuts), len(moves.ends)]
    for start, stop in pairwise(bounds):
        if start < stop:
            yield jax.tree.map(lambda leaf, start=start, stop=stop: leaf[start:stop], moves)


def assert_kept(kept, expected):
    for name, leaf, values in zip(Kept._fields, kept, zip(*expected, strict=True), strict=True):
        if name == "acceptance_rate":
            np.testing.assert_allclose(leaf, values, rtol=1e-15, atol=2.0**-33)  # counted in units of 2⁻³²
        elif name == "extra":
            assert leaf.keys() == EXTRA.keys()
            for told, own in leaf.items():
                np.testing.assert_array_equal(own, [value[told] for value in values])
        else:
            np.testing.assert_array_equal(leaf, values)


@st.composite
def a_run(draw):
    length = draw(st.integers(1, 60))
    share = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    moves = moves_of(draw(st.integers(0, 2**32 - 1)), length, share)
    return moves, draw(st.integers(1, 7)), draw(st.lists(st.integers(0, length), max_size=8))


def recorded(moves, thinning, cuts):
    recorders = [Recorder(thinning, ROWS, EXTRA) for _ in range(CHAINS)]
    for chunk in in_chunks(moves, cuts):
        for chain, recorder in enumerate(recorders):
            recorder.add(chunk, chain)
    return recorders


@settings(max_examples=200, deadline=None, derandomize=True)
@given(a_run())
def test_recorder_is_the_brute_force_loop(example):
    moves, thinning, cuts = example
    for chain, recorder in enumerate(recorded(moves, thinning, cuts)):
        expected, transitions = brute(moves, chain, thinning)
        assert recorder.count == len(expected)
        assert recorder.missing(100) == 100 * thinning - transitions
        if expected:
            assert_kept(recorder.all(), expected)
        assert recorder.all().theta.shape == (len(expected), D)
        assert recorder.all().n_rows_read.dtype == np.int64
        assert recorder.all().theta.dtype == np.float64


@settings(max_examples=100, deadline=None, derandomize=True)
@given(a_run())
def test_where_a_run_is_cut_into_blocks_changes_no_bit(example):
    moves, thinning, cuts = example
    for cut, whole in zip(recorded(moves, thinning, cuts), recorded(moves, thinning, []), strict=True):
        assert [a.tobytes() for a in jax.tree.leaves(cut.all())] == [b.tobytes() for b in jax.tree.leaves(whole.all())]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(a_run(), st.integers(1, 30))
def test_stack_keeps_what_every_chain_has(example, most):
    moves, thinning, cuts = example
    kept = stack(recorded(moves, thinning, cuts), D, most, EXTRA)
    expected = [brute(moves, chain, thinning)[0] for chain in range(CHAINS)]
    length = min(most, *map(len, expected))
    assert kept.theta.shape == (CHAINS, length, D)
    assert all(leaf.shape[:2] == (CHAINS, length) for leaf in jax.tree.leaves(kept))
    for chain in range(CHAINS):
        if length:
            assert_kept(jax.tree.map(lambda leaf, chain=chain: leaf[chain], kept), expected[chain][:length])


def test_stack_of_nothing():
    kept = stack([Recorder(1, ROWS, EXTRA) for _ in range(CHAINS)], D, 10, EXTRA)
    assert kept.theta.shape == (CHAINS, 0, D)
    assert kept.accepted.dtype == bool
    assert kept.n_rows_read.dtype == np.int64
    assert {name: leaf.shape for name, leaf in kept.extra.items()} == dict.fromkeys(EXTRA, (CHAINS, 0))
