"""Families: log f(y|η), which values y may have, and parameters besides the coefficients."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln, log_ndtr
from numpy.typing import NDArray

from lwa.errors import one_of

type GlmTheta = Mapping[str, Array]
type GlmRows = Mapping[str, Array]

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True, eq=False)
class Family:
    """The distribution of a response given its linear predictor η."""

    name: str
    terms: Callable[[str, Array, GlmTheta, GlmRows], Array]  # (link, η, θ, rows) -> log f of each row
    links: tuple[str, ...]  # the first is the default
    allowed: Callable[[np.ndarray, np.ndarray | None], NDArray[np.bool_]]  # (y, trials)
    words: str  # what is allowed
    auxiliary: tuple[str, ...] = ()  # positive parameters
    constant: Callable[..., NDArray[np.float64]] | None = None  # (y, trials) -> a part of log f
    levels: str | None = None  # "two" or "any" if the response may be, or is, a factor
    scaled: bool = False  # whether coefficients have the units of y


@jax.custom_jvp
def softplus(x: Array) -> Array:
    """Return log(1 + eˣ), whose derivative needs no logarithm, unlike that of `jax.nn.softplus`."""
    return jax.nn.softplus(x)


softplus.defjvps(lambda away, _, x: away * jax.nn.sigmoid(x))


def gaussian(link: str, eta: Array, theta: GlmTheta, rows: GlmRows) -> Array:
    """Return log f of N(μ, σ²)."""
    z = (rows["y"] - invert_link(link, eta)) / theta["sigma"]
    return -0.5 * z**2 - jnp.log(theta["sigma"]) - HALF_LOG_2PI


def student_t(link: str, eta: Array, theta: GlmTheta, rows: GlmRows) -> Array:
    """Return log f of Student's t with ν degrees of freedom, location η and scale σ."""
    nu, sigma = theta["nu"], theta["sigma"]
    z = (rows["y"] - invert_link(link, eta)) / sigma
    front = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(nu * math.pi) - jnp.log(sigma)
    return front - (nu + 1) / 2 * jnp.log1p(z**2 / nu)


def bernoulli(link: str, eta: Array, theta: GlmTheta, rows: GlmRows) -> Array:
    """Return log f of y = 1 with probability p, else 0."""
    y = rows["y"]
    if link == "logit":
        return -softplus((1 - 2 * y) * eta)
    if link == "probit":
        return log_ndtr((2 * y - 1) * eta)
    success, failure = log_probabilities(link, eta)
    return jnp.where(y > 0.5, success, failure)


def binomial(link: str, eta: Array, theta: GlmTheta, rows: GlmRows) -> Array:
    """Return log f of y successes in so many trials."""
    y, trials = rows["y"], rows["trials"]
    if link == "logit":
        return rows["constant"] + y * eta - trials * softplus(eta)
    success, failure = log_probabilities(link, eta)
    return rows["constant"] + y * success + (trials - y) * failure


def log_probabilities(link: str, eta: Array) -> tuple[Array, Array]:
    """Return log p and log(1 - p)."""
    if link == "probit":
        return log_ndtr(eta), log_ndtr(-eta)
    return jnp.log(-jnp.expm1(-jnp.exp(eta))), -jnp.exp(eta)  # cloglog


def poisson(link: str, eta: Array, theta: GlmTheta, rows: GlmRows) -> Array:
    """Return log f of counts with mean exp η."""
    return rows["constant"] + rows["y"] * eta - jnp.exp(eta)


def negative_binomial(link: str, eta: Array, theta: GlmTheta, rows: GlmRows) -> Array:
    """Return log f of counts with mean μ = exp η and variance μ + μ²/φ."""
    y, phi = rows["y"], theta["phi"]
    away = eta - jnp.log(phi)
    return rows["constant"] + gammaln(y + phi) - gammaln(phi) + y * away - (y + phi) * softplus(away)


def gamma(link: str, eta: Array, theta: GlmTheta, rows: GlmRows) -> Array:
    """Return log f of a gamma distribution with mean μ = exp η and variance μ²/shape."""
    y, shape = rows["y"], theta["shape"]
    ratio = jnp.log(y) - eta
    return shape * (jnp.log(shape) + ratio - jnp.exp(ratio)) - gammaln(shape) - jnp.log(y)


def categorical(link: str, eta: Array, theta: GlmTheta, rows: GlmRows) -> Array:
    """Return log f of P(y = k) ∝ exp η_k, with η = 0 for the first level; η is `(n, levels - 1)`."""
    whole = jnp.concatenate([jnp.zeros_like(eta[:, :1]), eta], axis=1)
    chosen = jnp.take_along_axis(whole, rows["y"][:, None], axis=1)[:, 0]
    return chosen - jax.nn.logsumexp(whole, axis=1)


def invert_link(link: str, eta: Array) -> Array:
    """Return the mean μ at η."""
    return jnp.exp(eta) if link == "log" else eta


def apply_link(link: str, mean: float) -> float:
    """Return the η at which the mean is `mean`, kept off the boundaries."""
    if link in ("identity", "log"):
        return mean if link == "identity" else math.log(max(mean, 1e-10))
    p = min(max(mean, 1e-10), 1 - 1e-10)
    if link != "probit":
        return math.log(p / (1 - p)) if link == "logit" else math.log(-math.log1p(-p))
    from scipy.special import ndtri

    return float(ndtri(p))


def log_factorial(y: np.ndarray) -> NDArray[np.float64]:
    """Return log y!, elementwise."""
    from scipy.special import gammaln as log_gamma

    return np.asarray(log_gamma(np.asarray(y, np.float64) + 1))


def is_count(y: np.ndarray) -> NDArray[np.bool_]:
    """Return which values are 0, 1, 2, …."""
    return (y >= 0) & (y == np.floor(y))


PROBABILITY_LINKS = ("logit", "probit", "cloglog")
FAMILIES = {
    family.name: family
    for family in (
        Family("gaussian", gaussian, links=("identity", "log"), allowed=lambda y, _: np.isfinite(y), words="numbers",
               auxiliary=("sigma",), scaled=True),
        Family("student_t", student_t, links=("identity",), allowed=lambda y, _: np.isfinite(y), words="numbers",
               auxiliary=("nu", "sigma"), scaled=True),
        Family("bernoulli", bernoulli, links=PROBABILITY_LINKS, allowed=lambda y, _: (y == 0) | (y == 1),
               words="0 or 1", levels="two"),
        Family("binomial", binomial, links=PROBABILITY_LINKS, allowed=lambda y, trials: is_count(y) & (y <= trials),
               words="whole numbers from 0 to the number of trials",
               constant=lambda y, trials: log_factorial(trials) - log_factorial(y) - log_factorial(trials - y)),
        Family("poisson", poisson, links=("log",), allowed=lambda y, _: is_count(y), words="whole numbers >= 0",
               constant=lambda y, _: -log_factorial(y)),
        Family("negative_binomial", negative_binomial, links=("log",), allowed=lambda y, _: is_count(y),
               words="whole numbers >= 0", auxiliary=("phi",), constant=lambda y, _: -log_factorial(y)),
        Family("gamma", gamma, links=("log",), allowed=lambda y, _: y > 0, words="numbers > 0", auxiliary=("shape",)),
        Family("categorical", categorical, links=("logit",), allowed=lambda y, _: y >= 0, words="levels", levels="any"),
    )
}  # fmt: skip
"""All families by name."""


def find_family(name: object) -> Family:
    """Return a family by its name."""
    if isinstance(name, str) and name in FAMILIES:
        return FAMILIES[name]
    raise one_of("family", name, list(FAMILIES))


def choose_link(family: Family, link: object) -> str:
    """Return the link that is asked for, or the family's first."""
    if link is None or (isinstance(link, str) and link in family.links):
        return link or family.links[0]
    error = one_of("link", link, list(family.links))
    raise type(error)(f"{error} These are the links of family={family.name!r}.")
