"""Law of U: on tiny data the code's own transition matrix is reversible for ν, and simulation follows it."""

from itertools import combinations, product
from math import comb, factorial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from lwa import algorithm
from lwa.algorithm import Candidate
from lwa.backend.random import Purpose, generator
from lwa.subsets import Epanechnikov, Fixed, Free, Gaussian, Laplace, Swap
from tests.tiny import N, Y, every_subset, n, number_of, subset_chain

MOVES = [Swap(1), Swap(2), Swap(3), Free(), Fixed()]
WEIGHTS = [Gaussian(), Laplace(), Epanechnikov()]
EPSILON = 0.8
"""Some of the 56 subsets lie outside the support of the Epanechnikov weight, most inside."""
BY_HAND = {
    Gaussian(): lambda x: np.exp(-0.5 * x**2),
    Laplace(): lambda x: np.exp(-x),
    Epanechnikov(): lambda x: np.maximum(0.0, 1.0 - x**2),
}


def enumerated_nu(move, weight):
    """ν over the 56 subsets, from the definition; uniform where Φ plays no part."""
    if not move.weighted:
        return np.full(56, 1 / 56)
    distance = np.abs(Y[every_subset()].mean(1) - Y.mean())
    nu = BY_HAND[weight](distance / EPSILON)
    return nu / nu.sum()


def every_candidate(move):
    """All proposals of a move, each equally likely: (slots, incoming)."""
    k = move.replaced(n)
    if isinstance(move, Free):
        return [((0, 1, 2), incoming) for incoming in combinations(range(N), n)]
    return list(product(combinations(range(n), k), product(range(N), repeat=k)))


def transition_matrix(move, weight):
    """P(U, U') from the code's own proposals, statistics and acceptance, and the refresh that follows them."""
    chain = subset_chain(move, weight, EPSILON)
    epsilon = jnp.asarray(EPSILON if move.weighted else np.inf)
    candidates = every_candidate(move)
    slots = jnp.asarray(np.array([slots for slots, _ in candidates], np.int32).reshape(len(candidates), -1))
    incoming = jnp.asarray(np.array([rows for _, rows in candidates], np.int64).reshape(len(candidates), -1))
    statistics = jnp.asarray((Y - Y.mean())[np.asarray(incoming)][:, None, :])

    def outcome(U, slots, incoming, statistics):
        """Where a proposal leads when it is accepted, and how likely that is."""
        candidate = Candidate(slots, incoming, statistics, jnp.asarray(-jnp.inf))
        after, changed = algorithm.refresh(U, candidate, weight, epsilon, exchange=move.exchange)
        _, away = algorithm.propose(U, candidate)
        ratio = algorithm.log_acceptance(U.distance, away, weight, epsilon)
        return after.indices, jnp.where(changed, jnp.exp(jnp.minimum(0.0, ratio)), 0.0)

    U = chain.assess(every_subset())
    over_candidates = jax.vmap(outcome, (None, 0, 0, 0))
    indices, accept = jax.vmap(over_candidates, (0, None, None, None))(U, slots, incoming, statistics)
    matrix = np.zeros((56, 56))
    for u in range(56):
        np.add.at(matrix[u], number_of(indices[u]), np.asarray(accept[u]) / len(candidates))
    return matrix + np.diag(1.0 - matrix.sum(1))


def check_reversible(move, weight):
    matrix, nu = transition_matrix(move, weight), enumerated_nu(move, weight)
    flow = nu[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-10, rtol=0)
    np.testing.assert_allclose(nu @ matrix, nu, atol=1e-10, rtol=0)


def check_proposals(k):
    """R(U, U') = k! / (C(n, k) N^k) for each exchange of k rows: what the docstring of `Swap` says."""
    matrix, nu = transition_matrix(Swap(k), Gaussian()), enumerated_nu(Swap(k), Gaussian())
    subsets = [set(subset) for subset in every_subset().tolist()]
    for i, j in product(range(56), repeat=2):
        if i != j:
            exchanged = len(subsets[i] - subsets[j])
            expected = factorial(k) / (comb(n, k) * N**k) * min(1.0, nu[j] / nu[i]) if exchanged == k else 0.0
            assert abs(matrix[i, j] - expected) < 1e-12


def check_simulation(move, weight, chains=4000, transitions=64):
    """Each chain's last state is one independent draw of uniform · P^transitions."""
    chain = subset_chain(move, weight, EPSILON, page=transitions)
    start = chain.start(range(chains))
    first = number_of(start.indices)
    end, page = chain.advance(start, range(chains), 0)
    last = number_of(end.indices)
    expected = np.full(56, 1 / 56) @ np.linalg.matrix_power(transition_matrix(move, weight), transitions)
    seen = np.bincount(last, minlength=56)
    possible = expected > 1e-12
    assert seen[~possible].sum() == 0
    assert stats.chisquare(seen[possible], chains * expected[possible] / expected[possible].sum()).pvalue > 1e-4
    if isinstance(move, Fixed):
        assert np.array_equal(first, last)
        assert not page.accepted.any()


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
@pytest.mark.parametrize("move", MOVES, ids=str)
def test_detailed_balance(move, weight):
    with jax.enable_x64(True):
        check_reversible(move, weight)


@pytest.mark.parametrize("k", [1, 2])
def test_proposal_probabilities(k):
    with jax.enable_x64(True):
        check_proposals(k)


@pytest.mark.parametrize(
    "weight", [Gaussian(), *(pytest.param(weight, marks=pytest.mark.slow) for weight in WEIGHTS[1:])], ids=str
)
@pytest.mark.parametrize("move", MOVES, ids=str)
def test_simulated_frequencies(move, weight):
    with jax.enable_x64(True):
        check_simulation(move, weight)


def test_acceptance_turns_at_the_ratio():
    """`refresh` accepts a uniform just below the ratio and refuses one just above."""
    with jax.enable_x64(True):
        chain = subset_chain(Swap(1), Gaussian(), EPSILON)
        one = jax.tree.map(lambda leaf: leaf[0], chain.assess(every_subset()[:1]))
        statistics = jnp.asarray([[Y[7] - Y.mean()]])
        candidate = Candidate(jnp.asarray([0]), jnp.asarray([7]), statistics, jnp.asarray(0.0))
        _, away = algorithm.propose(one, candidate)
        ratio = algorithm.log_acceptance(one.distance, away, Gaussian(), EPSILON)
        for shift, expected in ((-1e-9, True), (1e-9, False)):
            _, accepted = algorithm.refresh(one, candidate._replace(log_u=ratio + shift), Gaussian(), EPSILON)
            assert bool(accepted) == expected


@pytest.mark.parametrize("move", [Swap(1), Swap(2), Swap(3), Free()], ids=str)
def test_the_code_proposes_what_was_enumerated(move):
    """`move.propose` draws every candidate of the enumeration equally often, and no other."""
    slots, incoming = move.propose(generator(3, Purpose.SUBSET, 0), 60_000, n, N)
    if isinstance(move, Free):
        seen = number_of(incoming)
        assert (np.diff(slots, axis=1) == 1).all()
        cells = 56
    else:
        k = move.k
        sets = {subset: i for i, subset in enumerate(combinations(range(n), k))}
        which = np.array([sets[tuple(row)] for row in slots.tolist()])
        seen = which * N**k + (incoming * N ** np.arange(k)).sum(1)
        cells = len(sets) * N**k
    counts = np.bincount(seen, minlength=cells)
    assert len(counts) == cells
    assert stats.chisquare(counts).pvalue > 1e-4
