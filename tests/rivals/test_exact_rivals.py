"""Exact methods are exact: the law of 10⁵ steps on a conjugate model, and key for key what the algorithm says."""

import pytest

from tests.rivals import conjugate


@pytest.mark.slow
@pytest.mark.parametrize("name", ["metropolis", "delayed_acceptance"])
def test_the_law_of_the_draws(name):
    t, what = conjugate.worst_t(conjugate.fit(name))
    assert t < 5, what


@pytest.mark.slow
@pytest.mark.parametrize("name", ["metropolis", "delayed_acceptance", "pseudo_marginal"])
def test_the_law_of_the_draws_from_the_gaussian_at_the_mode(name):
    """θ′ does not depend on θ, so that Q(θ′, θ)/Q(θ, θ′) decides with the rest."""
    t, what = conjugate.worst_t(conjugate.fit(name, kernel="gaussian"))
    assert t < 5, what
