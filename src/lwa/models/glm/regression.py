"""Generalised linear models by formula: g(E[y]) = Xβ + offset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lwa.errors import DataError, InputError
from lwa.executors import Executor
from lwa.models.glm.design import LinearPredictors, build_design
from lwa.models.glm.families import Family, choose_link, find_family
from lwa.models.glm.formula import Expression, Formula, Levels, read_expression, read_formula
from lwa.models.glm.learning import SCAN_ROWS, Facts, learn, require_texts, scan_rows
from lwa.models.glm.priors import Priors, check_priors, choose_priors, describe_priors, find_start
from lwa.models.glm.recipe import Recipe, RecipeRows, open_columns, select_columns
from lwa.models.model import Model, Unbound
from lwa.rows.passes import spread_passes
from lwa.user.progress import Display


def glm(
    formula: str,
    family: str = "gaussian",
    *,
    priors: object = "auto",
    link: str | None = None,
    offset: str | None = None,
    weights: str | None = None,
    trials: str | int | None = None,
) -> "Glm":
    """Return a generalised linear model, g(E[y_k]) = x_kᵀβ + offset_k, from a formula.

    `lwa.sample(lwa.glm("y ~ x"), data)` binds it to the data: a pass over all rows (two if the formula has `center`,
    `scale` or `C` of numbers) finds levels of factors, checks values, and scales the priors. θ has `beta`, in the
    data's own units and labelled by the columns' names, and the other parameters of the family.

    Parameters
    ----------
    formula
        `y ~ a + b`: `a:b` is an interaction, `a*b` is `a + b + a:b`, `a/b` is `a + a:b`, `- 1` or `0 +` leaves the
        intercept out. Text, categories and booleans are factors, whose first level is the reference; `C(x)` makes one
        of numbers, and `C(x, ref='b')` takes another reference. `(x > 15)` and `(color == 'red')` are 1 if they hold
        and 0 otherwise, also as a response: `(delay > 15) ~ distance`. `log`, `log2`, `log10`, `log1p`, `exp`, `expm1`,
        `sqrt`, `abs`, `I(x**2)`, `center`, `scale` and `offset(x)` may be used, and arithmetic inside of them. Names
        such as `` `my column` `` stand between backticks. Nothing else is evaluated.
    family
        `"gaussian"` (σ), `"student_t"` (ν, σ), `"bernoulli"`, `"binomial"` (with `trials`), `"poisson"`,
        `"negative_binomial"` (variance μ + μ²/`phi`), `"gamma"` (variance μ²/`shape`), or `"categorical"` (η_k of each
        level but the first).
    priors
        `"auto"`: coefficients are normal around 0 with sds of 2.5 sd(y)/sd(x) (gaussian, student_t) or 2.5/sd(x), with
        sd(x) = 1 for dummies; the intercept is normal around what the mean of y maps to, with sd 2.5 sd(y) or 2.5; σ is
        exponential with mean sd(y), ν Gamma(2, 0.1), `phi` and `shape` exponential(1). `"flat"`: none. Or a dict by
        coefficient, term or parameter, `{"x": ("normal", 0, 1), "sigma": ("half_normal", 2)}`; the rest is automatic.
        The prior of the intercept is that of the linear predictor with all columns at their means.
    link
        `"identity"` or `"log"` (gaussian), `"logit"`, `"probit"` or `"cloglog"` (bernoulli, binomial); other families
        have one link.
    offset, weights
        Columns or expressions: `offset` is added to the linear predictor, as `"log(exposure)"`; `weights` multiply the
        rows' log-likelihoods.
    trials
        For binomial: a column, or one number for all rows.

    Returns
    -------
    Glm
        For `lwa.sample` and other functions. `.bind(data)` shows what they use: `.model`, `.rows`, `.priors`.

    Examples
    --------
    >>> import numpy as np, lwa
    >>> rng = np.random.default_rng(0)
    >>> x, color = rng.normal(size=10_000), rng.choice(["blue", "red"], 10_000)
    >>> y = rng.poisson(np.exp(0.5 * x + (color == "red")))
    >>> bound = lwa.glm("y ~ x + color", family="poisson").bind({"x": x, "color": color, "y": y})
    >>> print(bound.described)
    y ~ x + color, family poisson (link log), 10,000 rows. Priors:
      Intercept (with all columns at their means) ~ normal(0.746, 2.5)
      x ~ normal(0, 2.5)
      color ~ normal(0, 2.5)
    >>> fit = lwa.sample(bound.model, bound.rows, subset_size=100, draws=100, tune=100, seed=1, progress=False)
    >>> fit.coords["coefficient"]
    ['Intercept', 'x', 'color[T.red]']
    """
    chosen = find_family(family)
    read = read_formula(formula)
    if (trials is None) == (chosen.name == "binomial"):
        raise InputError(
            f"family={family!r} with trials={trials!r}: binomial counts successes in trials, other families have none. "
            "Pass family='binomial', trials='n' (a column) or trials=10, or family='bernoulli' for single trials."
        )
    if isinstance(trials, bool) or not isinstance(trials, str | int | None) or (isinstance(trials, int) and trials < 1):
        raise InputError(f"trials={trials!r} is not a column, nor a whole number >= 1. Pass trials='n', or trials=10.")
    check_priors(priors)
    counted = trials if trials is None or isinstance(trials, int) else read_number("trials", trials)
    offsets = (*read.offsets, *([] if offset is None else [read_number("offset", offset)]))
    weighted = None if weights is None else read_number("weights", weights)
    return Glm(
        formula=as_levels(read, chosen), family=chosen, link=choose_link(chosen, link), priors=priors, offsets=offsets,
        weights=weighted, trials=counted,
    )  # fmt: skip


def read_number(option: str, text: object) -> Expression:
    """Return a column or an expression that is a number."""
    if not isinstance(text, str):
        raise InputError(f"{option}={text!r} is not a column. Pass its name, {option}='n', or an expression.")
    expression = read_expression(text)
    if expression.learned is not None:
        raise InputError(f"{option}={text!r} cannot use {expression.learned}. Pass a column, or log(x), for example.")
    return expression


def as_levels(formula: Formula, family: Family) -> Formula:
    """Return the formula with C(...) around the response, if the family is one of levels."""
    if formula.response.learned is not None and family.levels is None:
        came = f"The response {formula.response.text!r} cannot use {formula.response.learned}"
        raise InputError(f"{came}. Pass the column itself, or log(y), for example.")
    if family.levels != "any" or formula.response.learned == "C":
        return formula
    return replace(formula, response=replace(formula.response, learned="C"))


@dataclass(frozen=True, eq=False)
class Glm(Unbound):
    """A regression before it has seen data; made by `lwa.glm`."""

    formula: Formula
    family: Family
    link: str
    priors: object
    offsets: tuple[Expression, ...]
    weights: Expression | None
    trials: Expression | int | None

    @cached_property
    def expressions(self) -> list[Expression]:
        """All expressions that it computes of rows."""
        others = [one for one in (self.weights, self.trials) if isinstance(one, Expression)]
        return [self.formula.response, *self.formula.factors.values(), *self.offsets, *others]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(dict.fromkeys(column for one in self.expressions for column in one.columns))

    def bind(self, data: object, progress: bool | Display = False, executor: Executor | None = None) -> "BoundGlm":
        """Return the model of these data; convert the columns that it reads of a table on disk."""
        source, held = open_columns(data, self.names, progress, executor)
        learnable = dict(self.formula.factors)
        response = self.formula.response
        if self.family.levels == "any" or (self.family.levels == "two" and response.column in held.levels):
            learnable[response.text] = response
        for one in self.expressions:
            require_texts(one, held.levels)
            texts = [column for column in one.computed if column in held.levels]
            if texts and one not in learnable.values():
                raise text_error(one, texts[0], held.levels[texts[0]], is_response=one is response)
        learned = learn(spread_passes(source, executor), self.names, learnable, held.levels)
        if self.family.levels == "two" and len(learned.levels.get(response.text, "no")) != 2:
            raise DataError(
                f"family={self.family.name!r} expects two levels, but {response.text!r} has "
                f"{len(learned.levels[response.text])}. Pass family='categorical'."
            )
        factors = {name: levels for name, levels in learned.levels.items() if name in self.formula.factors}
        design = build_design(self.formula, factors)
        recipe = Recipe(
            formula=self.formula, family=self.family, design=design, learned=learned, offsets=self.offsets,
            weights=self.weights, trials=self.trials,
        )  # fmt: skip
        rows = RecipeRows(source, self.names, recipe, held)
        facts = scan_rows(rows, executor)
        return BoundGlm(self, rows, facts, choose_priors(self.priors, self.family, self.link, design, facts))


def text_error(expression: Expression, column: str, levels: Sequence[object], *, is_response: bool) -> DataError:
    """Return the error for a text in place of a number."""
    some = ", ".join(map(repr, levels[:3])) + (", …" if len(levels) > 3 else "")
    came = f"{expression.text!r} must be a number, but the column {column!r} holds text: {some}."
    if not is_response:
        return DataError(f"{came} Encode it first.")
    family = "bernoulli" if len(levels) == 2 else "categorical"
    return DataError(
        f"{came} Pass family={family!r} to explain these levels, or compare with one of them: "
        f"({column} == {levels[-1]!r}) ~ ..., family='bernoulli'."
    )


@dataclass(frozen=True, eq=False)
class BoundGlm:
    """A regression of certain data; made by `glm.bind(data)`.

    Attributes
    ----------
    model, rows
        A `lwa.Model` and the rows that it reads: y, the columns of few levels written out, codes of the others.
    priors
        The priors of all parameters.
    facts
        What the pass over all rows found: means and sds.
    """

    glm: Glm
    rows: RecipeRows
    facts: Facts
    priors: Priors

    @property
    def names(self) -> list[str]:
        """The names of the coefficients."""
        return self.rows.recipe.design.names

    @property
    def passes(self) -> int:
        """Passes over all rows to bind it: one, and one more if levels or scales of numbers had to be learned first."""
        learned, held = self.rows.recipe.learned, self.rows.held
        expressions = self.glm.formula.factors | {self.glm.formula.response.text: self.glm.formula.response}
        numbers = any(expressions[text].column not in held.levels for text in learned.levels)
        return 2 if learned.moments or numbers else 1

    @property
    def levels(self) -> Levels:
        """Levels of the factors, the reference level first."""
        return self.rows.recipe.learned.levels

    @property
    def described(self) -> str:
        """The formula, family, number of rows and priors, in words."""
        glm, text = self.glm, self.glm.formula.text.strip()
        head = f"{text}, family {glm.family.name} (link {glm.link}), {self.facts.rows:,} rows. Priors:"
        return "\n  ".join([head, *describe_priors(self.priors, self.rows.recipe.design)])

    @cached_property
    def model(self) -> Model:
        """The model of `rows`."""
        design, family = self.rows.recipe.design, self.glm.family
        start = np.zeros(len(design.names))
        if design.intercept:
            start[0] = find_start(family, self.glm.link, self.facts)
        dims, coords = ["coefficient"], {"coefficient": design.names}
        if family.levels == "any":
            levels = self.levels[self.glm.formula.response.text]
            start = np.zeros((len(levels) - 1, len(start)))
            dims, coords = ["level", "coefficient"], coords | {"level": [str(level) for level in levels[1:]]}
        return Model(
            self.log_likelihood, self.priors.log_density,
            {"beta": start} | {name: self.start(name) for name in family.auxiliary},
            constraints=dict.fromkeys(family.auxiliary, "positive"), dims={"beta": dims}, coords=coords,
            predictors=self.predictors,
        )  # fmt: skip

    @property
    def predictors(self) -> LinearPredictors:
        """The linear predictors, which make derivatives in many coefficients cheap."""
        equations = len(self.levels[self.glm.formula.response.text]) - 1 if self.glm.family.levels == "any" else 1
        auxiliary = tuple(sorted(self.glm.family.auxiliary))
        return LinearPredictors(self.rows.recipe.design, equations, auxiliary, self.log_density)

    def start(self, name: str) -> float:
        """Return the start of an auxiliary parameter, from the moments of y."""
        mean, variance = self.facts.y.mean, max(self.facts.y.sd**2, 1e-12)
        if name == "sigma":
            return float(np.sqrt(variance))
        if name == "nu":
            return 10.0
        extra = variance if name == "shape" else max(variance - mean, 0.01 * mean)
        return float(np.clip(mean**2 / extra, 0.1, 100.0))

    def log_likelihood(self, theta: Mapping[str, Array], rows: Mapping[str, Array]) -> Array:
        """Return log f(y_k|θ) of each row."""
        design, beta = self.rows.recipe.design, jnp.atleast_2d(theta["beta"])
        eta = jax.vmap(design.predictor, in_axes=(0, None), out_axes=1)(beta, rows)
        if "offset" in rows:
            eta = eta + rows["offset"][:, None]
        return self.log_density(eta, theta, rows)

    def log_density(self, eta: Array, theta: Mapping[str, Array], rows: Mapping[str, Array]) -> Array:
        """Return log f(y_k|η_k) for η of shape `(n, equations)`."""
        glm = self.glm
        terms = glm.family.terms(glm.link, eta if glm.family.levels == "any" else eta[:, 0], theta, rows)
        return terms * rows["weights"] if "weights" in rows else terms

    def read(self, data: object) -> RecipeRows:
        """Return other data as the model reads them; refuse levels that it has no coefficient for."""
        source, held = open_columns(data, self.glm.names)
        return replace(self.rows, source=source, held=held)

    def design_matrix(self, data: object) -> NDArray[np.float64]:
        """Return X of some data, written out in full: one column for each of `names`."""
        read, design, found = self.read(data), self.rows.recipe.design, []
        for batch in read.source.blocks(SCAN_ROWS):
            columns = select_columns(batch, read.names)
            parts = zip(design.blocks, read.recipe.parts(columns, read.held), strict=True)
            ones = np.ones((len(next(iter(columns.values()))), int(design.intercept)))
            found.append(np.concatenate([ones, *(block.write_out(part) for block, part in parts)], axis=1))
        return np.concatenate(found)
