"""Functions written out number by number find what they found on arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lwa.engine.device.scalarise import NotInLanes, write_out

ROWS, D = 7, 3


def regression(theta, rows):
    return -jax.nn.softplus(-(2.0 * rows["y"] - 1.0) * (rows["x"] @ theta))


def mixture(theta, rows):
    weights = jax.nn.log_softmax(jnp.concatenate([theta[:1], -theta[:1]]))
    apart = jnp.stack([-((rows["y"] - theta[1]) ** 2), -((rows["y"] - theta[2]) ** 2) / 4.0])
    return jax.nn.logsumexp(apart + weights[:, None], axis=0)


def many_shapes(theta, rows):
    wide = jnp.cumsum(rows["x"] * theta, axis=1)[:, ::-1]
    picked = jnp.take(wide, jnp.array([2, 0]), axis=1).max(axis=1)
    return jnp.where(picked > 0, jnp.tanh(picked), jnp.abs(picked) ** 1.5) + jnp.arange(3.0)[1] / 3.0


def bits(theta, rows):
    return jnp.where((rows["y"] > 0.5) & ~jnp.isnan(theta[0]), theta[0], jnp.expm1(theta[1]))


@pytest.mark.parametrize("function", [regression, mixture, many_shapes, bits])
def test_the_same_of_all_rows(function):
    rng = np.random.default_rng(1)
    theta = jnp.asarray(rng.normal(size=D), jnp.float32)
    rows = {"x": rng.normal(size=(ROWS, D)).astype(np.float32), "y": (rng.random(ROWS) < 0.5).astype(np.float32)}
    one = jax.tree.map(lambda leaf: leaf[:1], rows)
    lanes = [[column for column in leaf.reshape(ROWS, -1).T] for leaf in jax.tree.leaves(rows)]
    (found,) = write_out(function, theta, one)(list(theta), *lanes)
    np.testing.assert_allclose(jnp.broadcast_to(found[0], (ROWS,)), function(theta, rows), rtol=2e-6, atol=1e-6)


def test_what_cannot_be_written_out_says_so():
    def sorts(theta, rows):
        return jnp.sort(rows)[:, 0] * theta[0]

    with pytest.raises(NotInLanes, match="sort"):
        write_out(sorts, jnp.zeros(1), jnp.zeros((1, 4)))

    def looks_up(theta, rows):
        return theta[rows]

    with pytest.raises(NotInLanes, match="code"):
        write_out(looks_up, jnp.zeros(3), jnp.zeros((1,), jnp.int32))
