"""The full posteriors of `adversary.py`'s cases, to a known error: exact draws, importance sampling, or NUTS.

All of it is in float64 on all rows, and uses neither lwa's subsets nor its chains: of lwa only the model's
log-likelihood, its constraints and its log prior. A reference is a mean, an sd and two quantiles per parameter, in the
model's unconstrained space, each with its standard error, and is kept in `.cache/adversary`.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats
from scipy.optimize import minimize
from scipy.special import gammaln

import lwa
from lwa.diagnostics.autocorrelation import effective_draws

TAILS = (0.025, 0.975)
BLOCK = 4096  # rows that are scored together, for TOGETHER values of θ: 2 MiB per temporary array
TOGETHER = 64
ENOUGH = {"mean": 0.007, "sd": 0.007, "quantiles": 0.02}  # errors, in sds, at which a reference draws no more
KEEPS = {"mean": 0.02, "sd": 0.03, "quantiles": 0.04}  # errors above which importance sampling gives way to NUTS
HIGHEST_K = 0.7  # of the Pareto shape of importance weights: above, their mean has no reliable error,
LARGEST_WEIGHT = 10.0  # unless no weight is larger than this many times the mean


@dataclass(frozen=True)
class Problem:
    """A model and its data, with what is known about the posterior beside them.

    `total(theta, rows)` is the log posterior of a flat θ, if the sum of the model's terms over rows is not (groups,
    several series), or has to be confined to one mode. `exact(rng, count)` returns independent draws of the posterior.
    """

    model: lwa.Model
    data: Any
    total: Callable[[jax.Array, Any], jax.Array] | None = None
    exact: Callable[[np.random.Generator, int], np.ndarray] | None = None
    nuts: "Nuts | None" = None
    call: tuple[Any, Any] | None = None  # what `lwa.sample` is called with, if not with model and data
    points: int = 400_000  # of importance sampling, at most


@dataclass(frozen=True)
class Nuts:
    """The log density of other coordinates, `density(z, rows)`, in which NUTS moves well, and the way back to θ."""

    density: Callable[[jax.Array, Any], jax.Array]
    start: np.ndarray
    to_theta: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Summary:
    """Mean, sd and quantiles of each parameter, and their standard errors in sds."""

    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray  # (2, d)
    errors: dict[str, np.ndarray]  # of mean, sd and quantiles, in sds
    slopes: np.ndarray  # dQ/dp at the quantiles, in sds, over 1 % to either side (5 % too steep if Gaussian): (2, d)
    spread: np.ndarray  # sd of ((x - mean)² - sd²) / (2 sd²): 0.707 for a Gaussian
    how: dict[str, Any] = field(default_factory=dict)

    def worst_error(self):
        return {name: float(np.max(error)) for name, error in self.errors.items()}

    def to_json(self):
        return json.dumps(asdict(self), default=np.ndarray.tolist)

    @classmethod
    def from_json(cls, text):
        kept = json.loads(text)
        arrays = {key: np.asarray(kept[key]) for key in ("mean", "sd", "quantiles", "slopes", "spread")}
        errors = {key: np.asarray(value) for key, value in kept["errors"].items()}
        return cls(**arrays, errors=errors, how=kept["how"])


def weighted_quantiles(points, weight, p):
    """Return the p-quantile of each column."""
    order = np.argsort(points, axis=0)
    columns = []
    for j, rank in enumerate(order.T):
        level = np.cumsum(weight[rank]) - 0.5 * weight[rank]
        columns.append(np.interp(p, level, points[rank, j]))
    return np.array(columns).T


def influence(points, mean, sd, quantiles, slopes):
    """Return what each point adds to the error of mean, sd and quantiles, all in sds: their averages have their errors.

    A quantile's is (p - 1{x < Q}) dQ/dp.
    """
    away = (points - mean) / sd
    below = [(p - (points < q)) * slope for p, q, slope in zip(TAILS, quantiles, slopes, strict=True)]
    return {"mean": away, "sd": (away**2 - 1) / 2, "quantiles": np.stack(below)}


def summarise(points, weight, how, error_of=None):
    """Summarise weighted points `(M, d)`; `error_of(values)` replaces the standard error of independent ones."""
    mean = weight @ points
    sd = np.sqrt(weight @ (points - mean) ** 2)
    quantiles = weighted_quantiles(points, weight, TAILS)
    near = weighted_quantiles(points, weight, [p + side for p in TAILS for side in (-0.01, 0.01)])
    slopes = (near[1::2] - near[::2]) / 0.02 / sd
    parts = influence(points, mean, sd, quantiles, slopes)
    error_of = error_of or (lambda values: np.sqrt(np.einsum("m,...md->...d", weight**2, values**2)))
    errors = {name: error_of(values) for name, values in parts.items()}
    spread = np.sqrt(weight @ parts["sd"] ** 2)
    return Summary(mean, sd, quantiles, errors, slopes, spread, how)


def is_enough(summary, limits):
    return all(summary.worst_error()[name] <= limit for name, limit in limits.items())


class Posterior:
    """The log posterior of all rows in float64, many θ at a time. To be used under `jax.enable_x64(True)`."""

    def __init__(self, problem):
        model, data = problem.model, jax.tree.map(as_float64, problem.data)
        if problem.total is not None:
            self.rows, self.log_density = data, problem.total
            return
        count = len(jax.tree.leaves(data)[0])
        blocks = -(-count // BLOCK)
        if count < BLOCK:
            self.rows, self.log_density = data, partial(sum_rows, model)
            return

        def cut(column):
            padded = np.concatenate([column, np.repeat(column[:1], blocks * BLOCK - count, axis=0)])
            return padded.reshape(blocks, BLOCK, *column.shape[1:])

        scored = np.arange(blocks * BLOCK).reshape(blocks, BLOCK) < count
        self.rows, self.log_density = (jax.tree.map(cut, data), scored), partial(sum_blocks, model)

    @cached_property
    def on_device(self):
        return jax.tree.map(jnp.asarray, self.rows)

    @cached_property
    def _many(self):
        return jax.jit(jax.vmap(self.log_density, in_axes=(0, None)))

    @cached_property
    def _slope(self):
        return jax.jit(jax.value_and_grad(self.log_density))

    @cached_property
    def _bend(self):
        return jax.jit(jax.jacfwd(jax.grad(self.log_density)))

    def values(self, thetas):
        """Return log π at each row of `thetas`; -inf for NaN."""
        found = []
        for start in range(0, len(thetas), TOGETHER):
            some = thetas[start : start + TOGETHER]
            padded = np.concatenate([some, np.repeat(some[:1], TOGETHER - len(some), axis=0)])
            found.append(np.asarray(self._many(padded, self.on_device))[: len(some)])
        together = np.concatenate(found)
        return np.where(np.isfinite(together), together, -np.inf)

    def find_mode(self, start):
        """Return the mode near a start and the curvature there, by BFGS and Newton's steps."""

        unit = self._find_units(start)

        def down(at):
            value, slope = self._slope(at * unit, self.on_device)
            bad = not np.isfinite(value)
            return (1e300, np.zeros(len(at))) if bad else (-float(value), -np.asarray(slope) * unit)

        at = minimize(down, start / unit, jac=True, method="BFGS", options={"maxiter": 500}).x
        for _ in range(20):
            bend = -np.asarray(self._bend(at * unit, self.on_device)) * np.outer(unit, unit)
            values, axes = np.linalg.eigh(bend)
            values = np.maximum(np.abs(values), 1e-10 * np.abs(values).max())
            step = axes @ ((axes.T @ -down(at)[1]) / values)
            if not np.isfinite(step).all() or step @ bend @ step < 1e-8 or down(at + step)[0] > down(at)[0]:
                break
            at = at + step
        return at * unit, (axes * values) @ axes.T / np.outer(unit, unit)

    def _find_units(self, start):
        """Return units in which parameters are alike, from the curvature at the start if that spans eight decades."""
        bend = -np.diag(np.asarray(self._bend(start, self.on_device)))
        apart = np.isfinite(bend).all() and bend.min() > 0 and bend.max() > 1e8 * bend.min()
        return bend**-0.5 if apart else np.ones(len(start))


def as_float64(column):
    column = np.asarray(column)
    return column.astype(np.float64) if np.issubdtype(column.dtype, np.floating) else column


def sum_rows(model, theta, rows):
    return model.log_prior_at(theta) + model.log_likelihood(model.unravel(theta), rows).sum()


def sum_blocks(model, theta, rows):
    @jax.checkpoint
    def add(total, block):
        some, scored = block
        return total + jnp.where(scored, model.log_likelihood(model.unravel(theta), some), 0.0).sum(), None

    return jax.lax.scan(add, model.log_prior_at(theta), rows)[0]


@dataclass(frozen=True)
class StudentT:
    """A multivariate t: centre + factor · z / √g."""

    centre: np.ndarray
    factor: np.ndarray
    df: float

    def draw(self, rng, count):
        z = rng.standard_normal((count, len(self.centre)))
        return self.centre + (z / np.sqrt(rng.chisquare(self.df, count) / self.df)[:, None]) @ self.factor.T

    def log_density(self, points):
        d, df = len(self.centre), self.df
        away = np.linalg.solve(self.factor, (points - self.centre).T)
        constant = gammaln((df + d) / 2) - gammaln(df / 2) - 0.5 * d * np.log(df * np.pi)
        return constant - 0.5 * (df + d) * np.log1p((away**2).sum(0) / df) - np.linalg.slogdet(self.factor)[1]


@dataclass(frozen=True)
class Mixture:
    """Most points from the second component, some from the first, so that no weight is large."""

    components: tuple[StudentT, ...]
    shares: tuple[float, ...]

    def draw(self, rng, count):
        sizes = [round(share * count) for share in self.shares[:-1]]
        sizes.append(count - sum(sizes))
        return np.concatenate([one.draw(rng, size) for one, size in zip(self.components, sizes, strict=True)])

    def log_density(self, points):
        both = zip(self.shares, self.components, strict=True)
        return np.logaddexp.reduce([np.log(share) + one.log_density(points) for share, one in both], axis=0)


def smooth_weights(log_weight):
    """Return Pareto-smoothed weights that add up to one, and k."""
    if np.isneginf(log_weight).any():
        log_weight = np.where(np.isneginf(log_weight), log_weight[np.isfinite(log_weight)].min() - 50, log_weight)
    smoothed, k = array_stats.psislw(-log_weight)  # written for leave-one-out: weights are those of exp(-its argument)
    weight = np.exp(smoothed - smoothed.max())
    return weight / weight.sum(), float(k)


def fit_proposal(wide, points, values, weight):
    """Return a mixture of `wide` and the t with the points' mean and covariance whose weights will vary least."""
    centre = weight @ points
    factor = np.linalg.cholesky((points - centre).T * weight @ (points - centre))
    fitted = [
        Mixture((wide, StudentT(centre, factor * np.sqrt((df - 2) / df) * more, df)), (0.15, 0.85))
        for df in (5, 15, 60)
        for more in (1.0, 1.15)
    ]
    some = weight > 0
    log_weight, points, values = np.log(weight[some]), points[some], values[some]
    # E_π[π/q], from the points at hand: the smaller, the more effective points.
    return min(fitted, key=lambda one: np.logaddexp.reduce(log_weight + values - one.log_density(points)))


def sample_by_importance(posterior, mode, bend, most_points, seed=0):
    """Importance sampling from a wide t at the mode and a t fitted in three pilots, by Pareto-smoothed weights."""
    rng, d = np.random.default_rng(seed), len(mode)
    wide = StudentT(mode, np.linalg.inv(np.linalg.cholesky(bend)).T * (1.2 if d <= 30 else 1.02), 5 if d <= 10 else 15)
    proposal = wide
    for _ in range(3):
        points = proposal.draw(rng, max(60 * d, min(4000, most_points // 6)))
        values = posterior.values(points)
        weight, _ = smooth_weights(values - proposal.log_density(points))
        while 1 / (weight**2).sum() < 4 * d:  # too few to fit a covariance: flatten the weights
            weight = np.sqrt(weight) / np.sqrt(weight).sum()
        proposal = fit_proposal(wide, points, values, weight)
    points, values, count = np.empty((0, d)), np.empty(0), min(12_000, most_points)
    while True:
        new = proposal.draw(rng, count)
        points, values = np.concatenate([points, new]), np.concatenate([values, posterior.values(new)])
        weight, k = smooth_weights(values - proposal.log_density(points))
        how = {"kind": "importance", "points": len(points), "k": k, "largest_weight": float(weight.max() * len(points))}
        how["effective"] = float(1 / (weight**2).sum())
        found = summarise(points, weight, how)
        hopeless = how["effective"] < 0.002 * len(points)
        if is_enough(found, ENOUGH) or len(points) >= most_points or hopeless:
            return found
        count = min(len(points), most_points - len(points))


def sample_by_nuts(problem, posterior, mode, bend, chains=8, tune=500, draws=2500, seed=0):
    """NUTS in the coordinates in which the posterior's curvature at the mode is 1, or in those that the problem has."""
    around = 0.5 if problem.nuts is None else 0.1
    if problem.nuts is None:
        factor = np.linalg.inv(np.linalg.cholesky(bend)).T
        density, start = (lambda z, rows: posterior.log_density(mode + factor @ z, rows)), np.zeros(len(mode))
        to_theta = lambda z: mode + z @ factor.T  # noqa: E731
    else:
        density, start, to_theta = problem.nuts.density, problem.nuts.start, problem.nuts.to_theta

    @jax.jit
    def run(key, at, rows):
        of_rows = partial(density, rows=rows)
        first, second = jax.random.split(key)
        warmup = blackjax.window_adaptation(blackjax.nuts, of_rows, target_acceptance_rate=0.9)
        (state, tuned), _ = warmup.run(first, at, num_steps=tune)
        step = blackjax.nuts(of_rows, **tuned).step

        def move(state, key):
            state, info = step(key, state)
            return state, (state.position, info.is_divergent)

        return jax.lax.scan(move, state, jax.random.split(second, draws))[1]

    keys = jax.random.split(jax.random.key(seed), chains)
    begin = start + around * jax.random.normal(jax.random.key(seed + 1), (chains, len(start)))
    path, divergent = jax.vmap(run, in_axes=(0, 0, None))(keys, begin, posterior.on_device)
    theta = to_theta(np.asarray(path).reshape(chains * draws, -1))

    def error_of(values):
        if values.ndim == 3:
            return np.stack([error_of(part) for part in values])
        chained = values.reshape(chains, draws, -1)
        return values.std(0) / np.sqrt(effective_draws(chained))

    effective = effective_draws(theta.reshape(chains, draws, -1))
    how = {"kind": "NUTS", "points": len(theta), "divergent": int(np.sum(divergent)), "effective": effective.min()}
    return summarise(theta, np.full(len(theta), 1 / len(theta)), how, error_of)


def compute(problem, kind=None):
    """Return the summary of a problem's posterior: exact draws, else importance sampling, else NUTS."""
    with jax.enable_x64(True):
        if problem.exact is not None and kind in (None, "exact"):
            points = problem.exact(np.random.default_rng(0), 200_000)
            return summarise(points, np.full(len(points), 1 / len(points)), {"kind": "exact", "points": len(points)})
        posterior = Posterior(problem)
        if problem.nuts is not None and kind != "importance":
            return sample_by_nuts(problem, posterior, None, None)
        mode, bend = posterior.find_mode(problem.model.ravel(problem.model.init))
        found = None
        if kind == "importance" or (kind is None and problem.points):
            found = sample_by_importance(posterior, mode, bend, problem.points)
            reliable = found.how["k"] <= HIGHEST_K or found.how["largest_weight"] <= LARGEST_WEIGHT
            if kind or (reliable and is_enough(found, KEEPS)):
                return found
        nuts = sample_by_nuts(problem, posterior, mode, bend)
        return replace_how(nuts, instead_of=None if found is None else found.how | found.worst_error())


def replace_how(summary, **more):
    return Summary(**{**summary.__dict__, "how": summary.how | more})


def fingerprint(problem):
    """Return a short hash of the data and of the log posterior at three points near the start."""
    known = hashlib.sha256()
    for column in jax.tree.leaves(problem.data):
        known.update(np.ascontiguousarray(column).tobytes())
    with jax.enable_x64(True):
        posterior, start = Posterior(problem), problem.model.ravel(problem.model.init)
        away = np.random.default_rng(0).standard_normal((3, len(start)))
        values = posterior.values(start + 0.01 * away)
    known.update(" ".join(f"{value:.6g}" for value in values).encode())
    return known.hexdigest()[:12]


def reference(name, problem, folder: Path):
    """Return the reference of a case, from the cache if it is there."""
    path = folder / f"{name}-{fingerprint(problem)}.json"
    if path.exists():
        return Summary.from_json(path.read_text())
    began = time.monotonic()
    found = compute(problem)
    found = replace_how(found, seconds=round(time.monotonic() - began, 1))
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(found.to_json())
    return found


def draw_from_grid(rng, count, log_density, boxes, cells=400):
    """Draw from a density of one or two numbers: cells of a grid by their mass, then uniformly within.

    `log_density` takes `(M, k)` points. The grid is laid over `boxes`, then once more over what has mass there.
    """
    for _ in range(3):
        middles = [np.linspace(low, high, cells, endpoint=False) + (high - low) / cells / 2 for low, high in boxes]
        mesh = np.stack(np.meshgrid(*middles, indexing="ij"), -1).reshape(-1, len(boxes))
        value = np.concatenate([log_density(part) for part in np.array_split(mesh, max(1, len(mesh) // 2000))])
        mass = np.exp(value - value.max())
        held = mesh[mass > 1e-13]
        widths = [(high - low) / cells for low, high in boxes]
        boxes = [(part.min() - 2 * w, part.max() + 2 * w) for part, w in zip(held.T, widths, strict=True)]
    level = np.cumsum(mass) / mass.sum()
    chosen = np.searchsorted(level, (np.arange(count) + rng.random(count)) / count).clip(max=len(mesh) - 1)
    return rng.permutation(mesh[chosen] + (rng.random((count, len(boxes))) - 0.5) * widths)
