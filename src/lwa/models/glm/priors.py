"""Priors of a regression: weak ones scaled to the data, or those that a user asks for."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln
from jax.typing import ArrayLike

from lwa.errors import InputError
from lwa.models.glm.design import Design
from lwa.models.glm.families import HALF_LOG_2PI, Family, apply_link
from lwa.models.glm.learning import Facts
from lwa.user.validate import is_real

WEAK_SDS = 2.5
"""Prior sds of a coefficient, in units of the data, as in rstanarm: for log odds, 2.5 is a factor of 12."""
PRIORS_EXAMPLE = "Pass priors={'x': ('normal', 0, 1), 'sigma': ('exponential', 0.5)}, for example."


class PriorKind(NamedTuple):
    """A distribution: the names of its numbers, which of them must be positive, and its log density."""

    numbers: tuple[str, ...]
    positive: tuple[str, ...]
    log_density: Callable[..., Array]


def normal_density(value: Array, location: ArrayLike, scale: ArrayLike) -> Array:
    """Return the log density of N(location, scale²)."""
    return -0.5 * ((value - location) / scale) ** 2 - jnp.log(scale) - HALF_LOG_2PI


def student_t_density(value: Array, df: ArrayLike, location: ArrayLike, scale: ArrayLike) -> Array:
    """Return the log density of Student's t."""
    front = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * jnp.log(df * math.pi) - jnp.log(scale)
    return front - (df + 1) / 2 * jnp.log1p(((value - location) / scale) ** 2 / df)


FLAT = PriorKind((), (), jnp.zeros_like)
REAL_PRIORS = {
    "normal": PriorKind(("location", "scale"), ("scale",), normal_density),
    "student_t": PriorKind(("df", "location", "scale"), ("df", "scale"), student_t_density),
    "cauchy": PriorKind(("location", "scale"), ("scale",), lambda value, *two: student_t_density(value, 1.0, *two)),
    "flat": FLAT,
}
"""Priors of coefficients."""
POSITIVE_PRIORS = {
    "exponential": PriorKind(("rate",), ("rate",), lambda value, rate: jnp.log(rate) - rate * value),
    "half_normal": PriorKind(("scale",), ("scale",), lambda value, s: math.log(2) + normal_density(value, 0.0, s)),
    "half_cauchy": PriorKind(("scale",), ("scale",),
                             lambda value, s: math.log(2) + student_t_density(value, 1.0, 0.0, s)),
    "gamma": PriorKind(("shape", "rate"), ("shape", "rate"),
                       lambda value, a, b: a * jnp.log(b) - gammaln(a) + (a - 1) * jnp.log(value) - b * value),
    "lognormal": PriorKind(("mu", "sigma"), ("sigma",),
                           lambda value, *ms: normal_density(jnp.log(value), *ms) - jnp.log(value)),
    "flat": FLAT,
}  # fmt: skip
"""Priors of scales and shapes."""


class Prior(NamedTuple):
    """A distribution and its numbers."""

    kind: str
    numbers: tuple[float, ...] = ()

    def __str__(self) -> str:
        """Return text such as `normal(0, 2.5)`."""
        return f"{self.kind}({', '.join(f'{number:.3g}' for number in self.numbers)})" if self.numbers else self.kind


@dataclass(frozen=True, eq=False)
class Priors:
    """A prior for each coefficient, in their order, and for each auxiliary parameter."""

    coefficients: tuple[Prior, ...]
    auxiliary: Mapping[str, Prior]
    centre: np.ndarray | None  # the columns' means, at which the intercept has its prior; None without intercept

    def log_density(self, theta: Mapping[str, Array]) -> Array:
        """Return log p(θ), summed over all parameters."""
        beta = theta["beta"]
        if self.centre is not None:
            beta = beta.at[..., 0].add(beta[..., 1:] @ self.centre.astype(beta.dtype))
        total = jnp.zeros((), beta.dtype)
        for kind in dict.fromkeys(prior.kind for prior in self.coefficients):
            where = [i for i, prior in enumerate(self.coefficients) if prior.kind == kind]
            numbers = np.array([self.coefficients[i].numbers for i in where], beta.dtype).T
            total = total + REAL_PRIORS[kind].log_density(beta[..., np.array(where)], *numbers).sum()
        for name, prior in self.auxiliary.items():
            numbers = np.array(prior.numbers, beta.dtype)
            total = total + POSITIVE_PRIORS[prior.kind].log_density(theta[name], *numbers)
        return total


def choose_priors(asked: object, family: Family, link: str, design: Design, facts: Facts) -> Priors:
    """Return the priors that are asked for, and weak ones of all else."""
    names = design.names
    flat = isinstance(asked, str) and asked == "flat"
    coefficients = [Prior("flat")] * len(names) if flat else build_weak_priors(family, link, design, facts)
    auxiliary = {name: Prior("flat") if flat else build_auxiliary_prior(name, facts) for name in family.auxiliary}
    groups = {name: [i] for i, name in enumerate(names)}
    for block in design.blocks:
        places = range(design.intercept + block.start, design.intercept + block.start + block.size)
        groups.setdefault(block.term, []).extend(i for i in places if i not in groups.get(block.term, []))
    for name, spec in asked.items() if isinstance(asked, Mapping) else ():
        if name in auxiliary:
            auxiliary[name] = read_prior(name, spec, POSITIVE_PRIORS)
        elif name in groups:
            for i in groups[name]:
                coefficients[i] = read_prior(name, spec, REAL_PRIORS)
        else:
            valid = ", ".join(map(repr, [*groups, *auxiliary][:20]))
            raise InputError(f"priors names {name!r}, which is not a coefficient. Valid: {valid}. {PRIORS_EXAMPLE}")
    return Priors(tuple(coefficients), auxiliary, facts.mean if design.intercept else None)


def check_priors(asked: object) -> None:
    """Refuse priors that are invalid whatever the data."""
    if isinstance(asked, Mapping):
        for name, spec in asked.items():
            read_prior(name, spec, REAL_PRIORS | POSITIVE_PRIORS)
    elif not isinstance(asked, str) or asked not in ("auto", "flat"):
        raise InputError(f"priors={asked!r} is not known. Valid: 'auto', 'flat' or a dict. {PRIORS_EXAMPLE}")


def read_prior(name: object, spec: object, kinds: Mapping[str, PriorKind]) -> Prior:
    """Return a prior as users write it: ("normal", 0, 1), or "flat"."""
    pieces = (spec,) if isinstance(spec, str) else tuple(spec) if isinstance(spec, list | tuple) else ()
    kind = kinds.get(pieces[0]) if pieces and isinstance(pieces[0], str) else None
    if kind is None:
        valid = ", ".join(repr((key, *of.numbers)) if of.numbers else repr(key) for key, of in kinds.items())
        raise InputError(f"priors[{name!r}]={spec!r} is not known. Valid: {valid}. {PRIORS_EXAMPLE}")
    numbers = pieces[1:]
    good = len(numbers) == len(kind.numbers) and all(is_real(number) and math.isfinite(number) for number in numbers)
    if not good or any(numbers[kind.numbers.index(which)] <= 0 for which in kind.positive):
        wanted = ", ".join(f"{which} > 0" if which in kind.positive else which for which in kind.numbers)
        came = f"priors[{name!r}]={spec!r}: {pieces[0]!r} takes the numbers {wanted or 'none'}"
        raise InputError(f"{came}. {PRIORS_EXAMPLE}")
    return Prior(pieces[0], tuple(float(number) for number in numbers))


def build_weak_priors(family: Family, link: str, design: Design, facts: Facts) -> list[Prior]:
    """Return N(0, 2.5 s/sd(x)), with s = sd(y) if coefficients have its units, else 1; a dummy's unit is its step of 1.

    The prior of the intercept is centred at what the mean of y maps to, with all columns at their means.
    """
    unit = as_divisor(facts.y.sd) if family.scaled and link == "identity" else 1.0
    found = [Prior("normal", (find_start(family, link, facts), WEAK_SDS * unit))] if design.intercept else []
    for block, sd in zip(design.blocks, facts.block_sd, strict=True):
        scale = WEAK_SDS * unit / (1.0 if sd is None else as_divisor(sd))
        found += [Prior("normal", (0.0, scale))] * block.size
    return found


def find_start(family: Family, link: str, facts: Facts) -> float:
    """Return the intercept that matches the mean of y."""
    if family.levels == "any":
        return 0.0
    mean = facts.y.mean / facts.trials.mean if facts.trials.count else facts.y.mean
    return apply_link(link, mean) - facts.offset.mean


def build_auxiliary_prior(name: str, facts: Facts) -> Prior:
    """Return the prior of σ, with mean sd(y); of ν, Gamma(2, 0.1) (Juárez and Steel, 2010); or a shape, as rstanarm."""
    if name == "sigma":
        return Prior("exponential", (1 / as_divisor(facts.y.sd),))
    return Prior("gamma", (2.0, 0.1)) if name == "nu" else Prior("exponential", (1.0,))


def as_divisor(sd: float) -> float:
    """Return an sd to divide by: 1 if it is 0."""
    return sd if sd > 0 else 1.0


def describe_priors(priors: Priors, design: Design) -> Iterator[str]:
    """Yield a line for each prior; terms whose columns share one have one line."""
    if design.intercept:
        where = " (with all columns at their means)" if design.size else ""
        yield f"Intercept{where} ~ {priors.coefficients[0]}"
    for block in design.blocks:
        own = priors.coefficients[design.intercept + block.start :][: block.size]
        if len(set(own)) == 1:
            yield f"{block.term}{f' ({block.size} columns)' if block.size > 1 else ''} ~ {own[0]}"
        else:
            yield from (f"{name} ~ {prior}" for name, prior in zip(block.names, own, strict=True))
    yield from (f"{name} ~ {prior}" for name, prior in priors.auxiliary.items())
