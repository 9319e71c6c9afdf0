"""Recorder against the plainest loop over moves there is."""

from itertools import pairwise

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lwa.engine.cohort import Moves
from lwa.engine.recorder import Kept, Recorder, select_kept
from lwa.run.budget import NO_LIMIT

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


def recorded(moves, thinning, cuts, chains=CHAINS, room=0):
    recorder = Recorder(chains, thinning, ROWS, EXTRA, room)
    for chunk in in_chunks(moves, cuts):
        for cohort in range(-(-chains // CHAINS)):
            recorder.add(chunk, cohort * CHAINS)
    return recorder


def of_chain(recorder, chain):
    """What is here of one chain."""
    length = int(recorder.counts[chain]) - recorder.taken
    return jax.tree.map(lambda leaf: leaf[chain, :length], recorder.get_all()) if length else None


@settings(max_examples=200, deadline=None, derandomize=True)
@given(a_run(), st.integers(0, 20))
def test_recorder_is_the_brute_force_loop(example, room):
    moves, thinning, cuts = example
    recorder = recorded(moves, thinning, cuts, room=room)
    counts, missing = [], []
    for chain in range(CHAINS):
        expected, transitions = brute(moves, chain, thinning)
        counts.append(len(expected))
        missing.append(100 * thinning - transitions)
        if expected:
            kept = of_chain(recorder, chain)
            assert_kept(kept, expected)
            assert kept.n_rows_read.dtype == np.int64
            assert kept.theta.dtype == np.float64
    assert recorder.counts.tolist() == counts
    assert recorder.count_missing(100) == max(missing)
    assert recorder.count_missing(NO_LIMIT) == (NO_LIMIT - 100) * thinning + max(missing)  # no overflow


@settings(max_examples=100, deadline=None, derandomize=True)
@given(a_run())
def test_where_a_run_is_cut_into_blocks_changes_no_bit(example):
    moves, thinning, cuts = example
    cut, whole = recorded(moves, thinning, cuts), recorded(moves, thinning, [])
    for chain in range(CHAINS):
        ours, theirs = (jax.tree.leaves(of_chain(one, chain)) for one in (cut, whole))
        assert [a.tobytes() for a in ours] == [b.tobytes() for b in theirs]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(a_run())
def test_chains_of_several_cohorts_the_last_filled_up(example):
    """Five chains in cohorts of two: the sixth is nobody's."""
    moves, thinning, cuts = example
    recorder = recorded(moves, thinning, cuts, chains=5)
    assert len(recorder.counts) == 5
    for chain in range(5):
        expected, _ = brute(moves, chain % CHAINS, thinning)
        if expected:
            assert_kept(of_chain(recorder, chain), expected)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(a_run(), st.integers(1, 30))
def test_kept_is_what_every_chain_has(example, most):
    moves, thinning, cuts = example
    kept = select_kept(recorded(moves, thinning, cuts), D, most, EXTRA)
    expected = [brute(moves, chain, thinning)[0] for chain in range(CHAINS)]
    length = min(most, *map(len, expected))
    assert kept.theta.shape == (CHAINS, length, D)
    assert all(leaf.shape[:2] == (CHAINS, length) for leaf in jax.tree.leaves(kept))
    for chain in range(CHAINS):
        if length:
            assert_kept(jax.tree.map(lambda leaf, chain=chain: leaf[chain], kept), expected[chain][:length])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(a_run())
def test_draws_that_are_dropped_on_the_way(example):
    """Whoever takes draws when there are some, and lets the recorder drop them, has them all in the end."""
    moves, thinning, cuts = example
    recorder, taken = Recorder(CHAINS, thinning, ROWS, EXTRA), []
    for chunk in in_chunks(moves, cuts):
        recorder.add(chunk)
        if ready := recorder.held:
            taken.append(jax.tree.map(np.array, recorder.slice_draws(0, ready)))
            recorder.drop(ready)
    whole = recorded(moves, thinning, [])
    assert (recorder.counts == whole.counts).all()
    if taken:
        together = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *taken)
        jax.tree.map(np.testing.assert_array_equal, together, select_kept(whole, D, 100, EXTRA))


def test_draws_as_they_are():
    recorder, rng = Recorder(CHAINS, 1, ROWS, {}), np.random.default_rng(1)
    made = [rng.normal(size=(CHAINS, 2, D)) for _ in range(3)]
    for theta in made:
        rest = theta[..., 0]
        recorder.put(Kept(theta, rest, rest, rest > 0, rest, rest, np.ones_like(rest, int), {}))
    assert recorder.count == 6
    np.testing.assert_array_equal(select_kept(recorder, D, 10, {}).theta, np.concatenate(made, axis=1))


def test_nothing_is_kept_of_nothing():
    kept = select_kept(Recorder(CHAINS, 1, ROWS, EXTRA), D, 10, EXTRA)
    assert kept.theta.shape == (CHAINS, 0, D)
    assert kept.accepted.dtype == bool
    assert kept.n_rows_read.dtype == np.int64
    assert {name: leaf.shape for name, leaf in kept.extra.items()} == dict.fromkeys(EXTRA, (CHAINS, 0))
