"""Digits: the shipped images, the mathematics of templates, and what the paper's figure shows, at the small scale."""

import hashlib
from itertools import combinations
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.digits.exact import (
    block_variance,
    class_means,
    distance,
    posterior_mean,
    precision,
    residual_sd,
    round_variance,
)
from experiments.digits.images import DIGITS, FILE, PER_DIGIT, SIDE, load_images
from experiments.digits.make_images import averaging, read_idx, reduced
from experiments.digits.model import PATCH, Templates
from experiments.digits.run import SHARES, SIZES, first_below, places_of, run
from experiments.exhibit import Out

SHA256 = "5aea2f679c9090d06952eb587e3f987ddd0151dae6e1610a9798f752d43c8c79"
SMALL = SIZES["small"]
N, EACH = SMALL.per_digit * len(DIGITS), SMALL.subset_size // len(DIGITS)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return Out(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def found(out):
    return run(SMALL, 1, out)


def random_theta(templates, seed=1):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(PATCH, PATCH)) for name in templates.names}


def test_the_shipped_file_is_the_one_described():
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == SHA256
    assert SHA256 in (FILE.parent / "README.md").read_text()
    images = load_images()
    assert images["image"].shape == (PER_DIGIT * len(DIGITS), SIDE**2)
    assert images["image"].dtype == images["digit"].dtype == np.uint8
    assert {digit: int((images["digit"] == digit).sum()) for digit in DIGITS} == dict.fromkeys(DIGITS, PER_DIGIT)
    few = load_images(3)
    np.testing.assert_array_equal(
        few["image"][few["digit"] == 4], images["image"][np.flatnonzero(images["digit"] == 4)[:3]]
    )


def test_pixels_are_averaged_by_area():
    shares = averaging(24, 15)
    np.testing.assert_allclose(shares.sum(1), 1.0)
    np.testing.assert_allclose(shares.sum(0), 15 / 24)  # every fine pixel counts as much
    np.testing.assert_allclose(shares[0, :3], [0.625, 0.375, 0.0])  # the first coarse pixel ends at 1.6
    image = np.zeros((1, 28, 28), np.uint8)
    image[0, 2:4, 2:4] = 200  # an ink spot in the first coarse pixel but for 0.4 of its second row and column
    assert reduced(image)[0, 0, 0] == 200
    assert reduced(image)[0, 0, 1] == np.rint(200 * 0.25)


def test_idx_files(tmp_path):
    held = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "images").write_bytes(b"\x00\x00\x08\x03" + np.array(held.shape, ">u4").tobytes() + held.tobytes())
    np.testing.assert_array_equal(read_idx(tmp_path / "images"), held)
    (tmp_path / "other").write_bytes(b"\x00\x00\x0d\x01")
    with pytest.raises(ValueError, match="no idx file"):
        read_idx(tmp_path / "other")


@pytest.mark.parametrize("grid", [8, 16])
def test_phi_is_the_kernel_written_out(grid):
    templates = Templates(grid)
    squares = templates.squares(random_theta(templates))
    assert squares.shape == (len(DIGITS), grid, grid)
    spacing = SIDE / (grid - 1)
    points = np.stack(np.meshgrid(*[np.arange(grid) * spacing] * 2, indexing="ij"), -1).reshape(-1, 2)
    pixels = np.stack(np.meshgrid(*[np.arange(SIDE) + 0.5] * 2, indexing="ij"), -1).reshape(-1, 2)
    kernel = np.exp(-((pixels[:, None] - points) ** 2).sum(-1) / (2 * (0.5 * spacing) ** 2))
    np.testing.assert_allclose(templates.matrix, kernel, atol=1e-12)
    np.testing.assert_allclose(
        templates.phi(squares).reshape(len(DIGITS), -1), squares.reshape(len(DIGITS), -1) @ kernel.T, rtol=1e-10
    )
    assert np.linalg.matrix_rank(kernel) == min(grid**2, SIDE**2)


def test_names_are_in_the_order_of_the_flat_vector():
    templates = Templates(16)
    assert list(templates.model().shapes) == templates.names
    theta = dict.fromkeys(templates.names, np.zeros((PATCH, PATCH)))
    theta["digit2_patch05"] = np.arange(PATCH**2).reshape(PATCH, PATCH)  # the second row and column of patches
    squares = templates.squares(theta)
    np.testing.assert_array_equal(squares[1, 4:8, 4:8], theta["digit2_patch05"])
    assert np.count_nonzero(squares) == PATCH**2 - 1


def test_the_model_is_the_density_written_out():
    templates, images = Templates(8, 0.3), load_images(20)
    theta = random_theta(templates)
    squares = templates.squares(theta).reshape(len(DIGITS), -1)
    expected = images["image"] / 255 - (squares @ templates.matrix.T)[images["digit"] - 1]
    model = templates.model()
    on_device = jax.tree.map(jnp.asarray, theta)
    np.testing.assert_allclose(model.log_likelihood(on_device, images), -0.5 * (expected**2).sum(1) / 0.3**2, rtol=1e-4)
    prior = -0.5 * np.einsum("ci,ij,cj->", squares, templates.prior_precision, squares)
    np.testing.assert_allclose(model.log_prior(on_device), prior, rtol=1e-4)


def test_no_gradient_at_the_map():
    images = load_images(50)
    templates = Templates(8, residual_sd(images))
    best = posterior_mean(templates, class_means(images), 50)
    patches = best.reshape(len(DIGITS), 2, PATCH, 2, PATCH).swapaxes(2, 3).reshape(-1, PATCH, PATCH)
    model = templates.model()

    def slope(theta):
        whole = jax.grad(lambda theta: model.log_prior(theta) + model.log_likelihood(theta, images).sum())(theta)
        return float(jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in whole.values())))

    there = {name: jnp.asarray(patch, jnp.float32) for name, patch in zip(templates.names, patches, strict=True)}
    np.testing.assert_allclose(templates.squares(there), best, rtol=1e-6)
    assert slope(there) < 1e-4 * slope(model.init)  # float32


def test_the_limit_of_lwa_is_the_mean_over_all_balanced_subsets():
    """Of four images a digit all choices of two, for one digit at a time: means of digits do not mix."""
    rng = np.random.default_rng(2)
    templates, images = Templates(4, 0.5), rng.random((4, len(DIGITS), SIDE**2))
    over_all = np.mean([posterior_mean(templates, images[list(U)].mean(0), 2) for U in combinations(range(4), 2)], 0)
    np.testing.assert_allclose(over_all, posterior_mean(templates, images.mean(0), 2), rtol=1e-9)
    assert distance(over_all, posterior_mean(templates, images.mean(0), 4)) > 0


def test_variance_of_a_block_given_the_others():
    templates = Templates(8, 0.2)
    covariance = np.linalg.inv(precision(templates, 10))
    entries = np.arange(64).reshape(8, 8)
    expected = []
    for i in (0, 4):
        for j in (0, 4):
            own = entries[i : i + 4, j : j + 4].ravel()
            rest = np.setdiff1d(entries, own)
            across = covariance[np.ix_(own, rest)]
            given = covariance[np.ix_(own, own)] - across @ np.linalg.solve(covariance[np.ix_(rest, rest)], across.T)
            expected += np.diag(given).tolist()
    np.testing.assert_allclose(block_variance(templates, 10), np.mean(expected), rtol=1e-6)


def test_where_a_share_of_the_budget_ends():
    spent = np.array([1.0, 5.0, 6.0, 30.0, 90.0])
    np.testing.assert_array_equal(places_of(spent, 100.0), [1, 2, 3, 4])
    assert first_below(np.array([9.0, 4.0, 5.0, 3.0, 1.0]), spent, 4.5) == 5.0
    assert np.isnan(first_below(np.array([9.0]), spent[:1], 4.5))


@pytest.mark.slow
def test_lwa_reads_n_rows_a_transition_and_metropolis_all(found):
    full, light = found.paths
    for path, rows, thinning in ((full, N, SMALL.thinning[0]), (light, SMALL.subset_size, SMALL.thinning[1])):
        assert path.fit.attributes["tune_moves"] == SMALL.budget.count // rows
        np.testing.assert_array_equal(path.rows, rows * path.moves)
        np.testing.assert_array_equal(np.diff(path.rows, prepend=0), rows * thinning)
        assert np.all(np.diff(path.seconds) >= 0)
        assert len(path.squares) == SMALL.budget.count // rows // thinning


@pytest.mark.slow
def test_subsets_are_balanced_and_change_within_digits(found):
    """Exactly balanced, but for rounding; a swap is accepted where it brings a new image of the digit that leaves."""
    light = found.paths[1]
    assert np.all(light.fit.warmup_stats["subset_distance"][0, len(light.squares) // 10 :] < 1e-9)
    expected = (SMALL.per_digit - EACH) / N
    error = np.sqrt(expected * (1 - expected) / (light.moves[-1] / 2))
    assert abs(found.swaps_accepted - expected) < 5 * error


@pytest.mark.slow
def test_lwa_is_nearer_to_the_map_at_every_share_of_the_budget(found):
    """In pixels; in control points, where the prior alone tells about what φ hides, no order is claimed."""
    d = found.at_shares["pixels"]
    assert d.shape == (2, len(SHARES))
    assert np.all(d[1] < d[0])
    assert np.all(np.diff(d) < 0)
    assert found.arrival["pixels"] < 1
    assert found.limit["pixels"] < d[1, -1]  # what its limit is off is not yet seen


@pytest.mark.slow
def test_transition_by_transition_lwa_is_not_ahead(found):
    """Its gain is that a transition is cheap: after as many of them M-H, whose posterior is narrower, is nearer."""
    assert found.same_moves[-1] > found.at_shares["pixels"][0, -1]


@pytest.mark.slow
def test_proposals_of_metropolis_are_adapted_to_be_smaller(found):
    """By N/n in closed form, whatever the walks have come to by the end of the budget."""
    light = found.paths[1]
    assert found.variance_ratio > 1
    assert abs(light.accepted - 0.25) < 0.05
    for variance in (block_variance, round_variance):  # fewer control points than pixels: images decide, not the prior
        ratio = variance(found.templates, EACH) / variance(found.templates, SMALL.per_digit)
        np.testing.assert_allclose(ratio, N / SMALL.subset_size, rtol=0.05)


@pytest.mark.slow
def test_figures_and_tables(found, out):
    for name in ("templates", "distance"):
        for ending in ("png", "svg"):
            size = Path(out.folder / f"{name}.{ending}").stat().st_size
            assert 5_000 < size < 400_000
    for name in ("distance", "arrival", "proposals"):
        lines = (out.folder / f"{name}.csv").read_text().splitlines()
        assert len((out.folder / f"{name}.md").read_text().splitlines()) == len(lines) + 1
