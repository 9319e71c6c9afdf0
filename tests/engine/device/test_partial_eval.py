"""A row's term in parts is the row's term, and nothing that θ does not change is computed for every θ."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lwa.engine.device.partial_eval import split_by_theta, split_target
from lwa.rivals.problems import simulate_logistic
from lwa.targets.calibration import build_expansion
from lwa.targets.reference import Reference
from lwa.targets.target import Target

N, D = 50, 3


def problem(second_order):
    model, data, *_ = simulate_logistic(N, seed=1, parameters=D)
    reference = Reference(np.array([0.2, -0.1, 0.3]), np.zeros(D), np.eye(D), np.eye(D) / 4, 0)
    expansion = build_expansion(reference, second_order=second_order)
    return Target(model, jnp.asarray(3.0), expansion), {name: jnp.asarray(values) for name, values in data.items()}


@pytest.mark.parametrize("second_order", [True, False])
def test_parts_make_the_term(second_order):
    with jax.enable_x64(True):
        target, rows = problem(second_order)
        columns = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), rows)
        theta = jnp.asarray([0.25, -0.2, 0.31], jnp.float32)
        split = split_target(target, theta, jax.tree.map(lambda leaf: leaf[..., :1], columns))
        prepared = [jnp.moveaxis(leaf, 0, -1) for leaf in split.prepare(target, rows)]
        found = split.terms(split.numbers(theta, target), prepared)
        np.testing.assert_allclose(found, target.row_terms(theta, columns, None), atol=1e-6)
        assert split_target(target, theta, jax.tree.map(lambda leaf: leaf[..., :1], columns)) is split  # traced once


def test_what_rows_know_at_the_reference_is_found_once():
    with jax.enable_x64(True):
        target, rows = problem(second_order=True)
        theta = jnp.zeros(D, jnp.float32)
        one = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:1], 0, -1), rows)
        split = split_target(target, theta, one)
        prepared = [jnp.moveaxis(leaf, 0, -1) for leaf in split.prepare(target, rows)]
        program = str(jax.make_jaxpr(split.terms)(split.numbers(theta, target), prepared))
        assert program.count(" exp ") == 1
        assert program.count("log1p") == 1
        numbers = sum(int(np.prod(leaf.shape[:-1])) for leaf in prepared)
        assert numbers <= 4 + D + 2  # x, the sign, value, slope and bend


def test_equal_numbers_are_kept_once():
    def term(theta, target, row):
        return (jnp.exp(row) * theta[0] + jnp.exp(row) * theta[1]) / target

    split = split_by_theta(term, jnp.zeros(2), jnp.ones(()), jnp.zeros((1,)))
    assert len(split.prepare(jnp.ones(()), jnp.zeros(4))) == 1
