"""Does the suite notice? Each classic mistake is planted, and a check that passes without it must fail."""

from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lwa import algorithm
from lwa.engine import cohort
from lwa.kernels.kernel import accepts
from lwa.subsets import Gaussian, Swap, tape
from lwa.targets import Powered
from lwa.targets.target import Target
from tests.engine.test_cohort import check_fresh_terms, check_frozen, check_powered_spread
from tests.support import SHORT_RUN
from tests.test_law_of_subsets import check_proposals, check_reversible, check_simulation
from tests.test_law_of_theta import check_theta_law
from tests.tiny import Y

pytestmark = pytest.mark.slow


@contextmanager
def planted(owner, name, bug):
    """Put a bug in place of a function. Programs compiled before or meanwhile are forgotten on both sides."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, bug)
        jax.clear_caches()
        try:
            yield
        finally:
            jax.clear_caches()


def next_row_instead(U, candidate, weight, epsilon, *, right=algorithm.refresh, N=8, **options):
    """A swapped-in duplicate is drawn again: the next row that is not in U."""
    incoming = jax.lax.while_loop(
        lambda row: jnp.any(U.indices == row), lambda row: (row + 1) % N, candidate.incoming[0]
    )
    rows = jnp.asarray(Y)
    statistics = (rows - rows.mean())[incoming][None, None]
    return right(U, candidate._replace(incoming=incoming[None], statistics=statistics), weight, epsilon, **options)


def uniform_instead(U, candidate, weight, epsilon, *, right=algorithm.refresh, N=8, **options):
    """A swapped-in duplicate is drawn again uniformly from the rows outside U, by way of its uniform."""
    outside = jnp.sort(jnp.where(jnp.isin(jnp.arange(N), U.indices), N, jnp.arange(N)))[: N - U.indices.shape[-1]]
    spare = outside[jnp.minimum((jnp.exp(candidate.log_u) * len(outside)).astype(int), len(outside) - 1)]
    incoming = jnp.where(algorithm.repeats(candidate, U), spare, candidate.incoming[0])
    rows = jnp.asarray(Y)
    statistics = (rows - rows.mean())[incoming][None, None]
    return right(U, candidate._replace(incoming=incoming[None], statistics=statistics), weight, epsilon, **options)


@pytest.mark.parametrize("bug", [pytest.param(next_row_instead, marks=pytest.mark.slow), uniform_instead])
def test_a_duplicate_redrawn_instead_of_a_self_loop(bug):
    with jax.enable_x64(True):
        check_proposals(1)
        with planted(algorithm, "refresh", bug), pytest.raises(AssertionError):
            check_proposals(1)


def test_a_duplicate_let_in():
    with jax.enable_x64(True):
        never = lambda candidate, U: jnp.zeros((), bool)  # noqa: E731
        with planted(algorithm, "repeats", never), pytest.raises((AssertionError, KeyError)):
            check_reversible(Swap(1), Gaussian())


def test_a_stale_log_density_after_a_refresh():
    check_fresh_terms(Swap(2))
    with planted(Target, "refresh", lambda self, terms, *_, **__: terms):
        with pytest.raises(AssertionError):
            check_fresh_terms(Swap(2))
        with pytest.raises(AssertionError):
            check_theta_law(1)


@SHORT_RUN
def test_a_dropped_power():
    check_powered_spread()
    with planted(Powered, "power", lambda self, n, N: 1.0):
        with pytest.raises(AssertionError):
            check_powered_spread()
        with pytest.raises(AssertionError):
            check_theta_law(1)


def test_adaptation_that_never_freezes():
    check_frozen()
    with planted(cohort.LocalCohort, "freeze", lambda self: None), pytest.raises(AssertionError):
        check_frozen()


def test_L_moves_also_after_a_refusal():
    """Lines 6-10: only a refresh is followed by L moves."""

    def wrong(accepted, L, every):
        source, _, ends = algorithm.spread(np.ones_like(accepted), L, every)
        first = np.zeros(len(source), bool)
        first[::L] = accepted
        return source, first, ends

    with planted(tape, "spread", wrong), pytest.raises(AssertionError):
        check_theta_law(2)


def test_an_acceptance_without_its_weight():
    with jax.enable_x64(True):
        flat = lambda old, new, weight, epsilon: jnp.zeros(())  # noqa: E731
        with planted(algorithm, "log_acceptance", flat), pytest.raises(AssertionError):
            check_reversible(Swap(1), Gaussian())


def test_a_reversed_decision_on_U():
    """Accepting what should be refused is seen by simulation, which the matrix alone would not show."""
    wrong = planted(algorithm, "accepts", lambda log_u, ratio: accepts(log_u, -ratio))
    with jax.enable_x64(True), wrong, pytest.raises(AssertionError):
        check_simulation(Swap(1), Gaussian())
