"""The design: which coefficients there are, and which of them apply to each row.

A term with factors has a column for each level, or pair of levels, at most one of which is not zero in a row. So a row
holds one code per term, and its share of Xβ is one coefficient looked up: 300 airports cost what one number does. Terms
of few columns are written out instead, as a matrix product is faster.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float64
from numpy.typing import NDArray

from lwa.errors import InputError
from lwa.models.glm.formula import Formula
from lwa.models.predictors import Predictors
from lwa.rows.store.encoding import Level

WRITTEN_OUT_COLUMNS = 8
"""Most columns of a term that a row holds as numbers."""
MOST_COEFFICIENTS = 5_000
"""Most coefficients of a model: their curvature takes 200 MB."""


class Part(NamedTuple):
    """What rows hold for one block of columns."""

    code: NDArray[np.int32] | None  # which of its columns; their number if none
    times: NDArray[np.float64] | None  # the numbers in that column; None for ones


@dataclass(frozen=True)
class Coding:
    """A factor in a term: one column for each level, or for each but the first."""

    factor: str
    levels: tuple[Level, ...]
    reduced: bool

    @property
    def size(self) -> int:
        """The number of columns."""
        return len(self.levels) - self.reduced

    @property
    def names(self) -> list[str]:
        """`origin[T.ATL]`, or `origin[ATL]` if no level is left out."""
        return [f"{self.factor}[{'T.' if self.reduced else ''}{level}]" for level in self.levels[self.reduced :]]


@dataclass(frozen=True)
class Block:
    """The columns of one term, or of a part of it."""

    term: str
    numbers: tuple[str, ...]  # factors that are numbers
    codings: tuple[Coding, ...]
    start: int  # the first of its coefficients, the intercept not counted
    order: tuple[str, ...]  # of the factors, as they are written

    @property
    def size(self) -> int:
        """The number of columns."""
        return prod(coding.size for coding in self.codings)

    @property
    def written_out(self) -> bool:
        """Whether a row holds its columns as numbers."""
        return not self.codings or self.size <= WRITTEN_OUT_COLUMNS

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        labels = {coding.factor: coding.names for coding in self.codings} | {name: [name] for name in self.numbers}
        used = [name for name in self.order if name in labels]
        return [":".join(pieces) for pieces in product(*(labels[name] for name in used))]

    def build_part(self, numbers: Mapping[str, NDArray[np.float64]], codes: Mapping[str, NDArray[np.int32]]) -> Part:
        """Return what rows hold for this block."""
        times = None
        for name in self.numbers:
            times = numbers[name] if times is None else times * numbers[name]
        if not self.codings:
            return Part(None, times)
        code, met = np.zeros((), np.int32), np.ones((), bool)
        # In the order of the names: the last factor written changes fastest.
        for coding in sorted(self.codings, key=lambda coding: self.order.index(coding.factor)):
            own = codes[coding.factor] - coding.reduced
            met = met & (own >= 0)
            code = code * coding.size + own
        return Part(np.where(met, code, self.size).astype(np.int32), times)

    def write_out(self, part: Part) -> Float64[np.ndarray, "n size"]:
        """Return a part with all its columns."""
        if part.code is None:
            assert part.times is not None
            return part.times[:, None]
        met = (part.code[:, None] == np.arange(self.size)).astype(np.float64)
        return met if part.times is None else met * part.times[:, None]


@dataclass(frozen=True, eq=False)
class Design:
    """All columns of a model; the intercept, if there is one, is the first coefficient and not a column."""

    intercept: bool
    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        """The number of coefficients without the intercept."""
        return sum(block.size for block in self.blocks)

    @property
    def names(self) -> list[str]:
        """The names of all coefficients."""
        return ["Intercept"] * self.intercept + [name for block in self.blocks for name in block.names]

    @property
    def looked_up(self) -> list[Block]:
        """Blocks of which rows hold a code."""
        return [block for block in self.blocks if not block.written_out]

    @property
    def positions(self) -> NDArray[np.int64]:
        """The positions of the columns of `x` among all."""
        blocks = (range(block.start, block.start + block.size) for block in self.blocks if block.written_out)
        return np.array([*chain(*blocks)], int)

    def build_rows(self, parts: Sequence[Part], size: int) -> dict[str, np.ndarray]:
        """Return what rows hold for all blocks: `x`, `code` and `times`, as far as there are any."""
        held: dict[str, np.ndarray] = {}
        pairs = list(zip(self.blocks, parts, strict=True))
        if written := [block.write_out(part) for block, part in pairs if block.written_out]:
            held["x"] = np.concatenate(written, axis=1)
        if codes := [part.code for block, part in pairs if part.code is not None and not block.written_out]:
            held["code"] = np.stack(codes, axis=1)
            times = [part.times for block, part in pairs if not block.written_out]
            if any(one is not None for one in times):
                held["times"] = np.stack([np.ones(size) if one is None else one for one in times], axis=1)
        return held

    def predictor(self, beta: Array, rows: Mapping[str, Array]) -> Array:
        """Return Xβ of each row, without the offset; for many β, `(coefficients, M)`, side by side."""
        many, at = beta.ndim > 1, self.positions
        eta = beta[0] if self.intercept else jnp.zeros((), beta.dtype)
        slopes = beta[1:] if self.intercept else beta
        if "x" in rows:
            eta = eta + rows["x"] @ (slopes if len(at) == len(slopes) else slopes[at])
        for i, block in enumerate(self.looked_up):
            # One more than there are: that of the reference level, which is 0.
            own = slopes[block.start : block.start + block.size]
            looked_up = jnp.concatenate([own, jnp.zeros_like(own[:1])])[rows["code"][:, i]]
            times = rows["times"][:, i] if "times" in rows else None
            eta = eta + (looked_up if times is None else looked_up * (times[:, None] if many else times))
        return jnp.broadcast_to(eta, (len(rows["y"]), *beta.shape[1:]))

    def dense(self, rows: Mapping[str, Array]) -> Array:
        """Return the columns that rows hold as numbers, the intercept's first, `(n, q)`."""
        ones = [jnp.ones((len(rows["y"]), 1), rows["x"].dtype if "x" in rows else jnp.float64)] * self.intercept
        written = [rows["x"]] if "x" in rows else []
        return jnp.concatenate([*ones, *written], axis=1) if ones or written else jnp.zeros((len(rows["y"]), 0))

    @property
    def dense_positions(self) -> NDArray[np.int64]:
        """The positions of these columns among all coefficients."""
        return np.concatenate([np.arange(int(self.intercept)), self.intercept + self.positions])

    def find_met(self, rows: Mapping[str, Array]) -> list[tuple[Block, Array, Array]]:
        """Return the blocks that are looked up, which of their columns each row uses, and its number there."""
        ones = jnp.ones(len(rows["y"]))
        return [
            (block, rows["code"][:, i], rows["times"][:, i] if "times" in rows else ones)
            for i, block in enumerate(self.looked_up)
        ]

    def pull(self, g: Array, rows: Mapping[str, Array]) -> Array:
        """Return Xᵀ g, one number per coefficient."""
        found = jnp.zeros(len(self.names)).at[self.dense_positions].set(self.dense(rows).T @ g)
        for block, code, times in self.find_met(rows):
            own = jax.ops.segment_sum(g * times, code, block.size + 1)[:-1]
            found = found.at[self.locate(block)].set(own)
        return found

    def gram(self, h: Array, rows: Mapping[str, Array]) -> Array:
        """Return Xᵀ diag(h) X. Only products of columns that a row uses are computed and added: all others are 0."""
        x, at, looked_up = self.dense(rows), self.dense_positions, self.find_met(rows)
        found = jnp.zeros((len(self.names), len(self.names))).at[np.ix_(at, at)].set(x.T @ (h[:, None] * x))
        for i, (block, code, times) in enumerate(looked_up):
            place, size = self.locate(block), block.size
            cross = jax.ops.segment_sum((h * times)[:, None] * x, code, size + 1)[:-1]
            found = found.at[np.ix_(place, at)].set(cross).at[np.ix_(at, place)].set(cross.T)
            found = found.at[place, place].set(jax.ops.segment_sum(h * times**2, code, size + 1)[:-1])
            for other, other_code, other_times in looked_up[:i]:
                both = (size + 1) * (other.size + 1)
                pair = jax.ops.segment_sum(h * times * other_times, code * (other.size + 1) + other_code, both)
                pair, there = pair.reshape(size + 1, -1)[:-1, :-1], self.locate(other)
                found = found.at[np.ix_(place, there)].set(pair).at[np.ix_(there, place)].set(pair.T)
        return found

    def locate(self, block: Block) -> NDArray[np.int64]:
        """Return the positions of a block's coefficients among all."""
        return self.intercept + np.arange(block.start, block.start + block.size)


@dataclass(frozen=True, eq=False)
class LinearPredictors(Predictors):
    """Linear predictors of each level of y, then the family's parameters.

    θ holds β, of `equations` × coefficients, then the logarithms of `auxiliary`, in the order of their names.
    """

    design: Design
    equations: int
    auxiliary: tuple[str, ...]
    log_density: Callable[[Array, Mapping[str, Array], Mapping[str, Array]], Array]  # (η, auxiliary, rows)

    def at(self, theta: Array, rows: Mapping[str, Array]) -> Array:
        """Return η of each equation, and the auxiliary parameters, which are the same in all rows."""
        p, more = len(self.design.names), theta.shape[1:]
        betas = theta[: self.equations * p].reshape(self.equations, p, *more)
        eta = jnp.stack([self.design.predictor(beta, rows) for beta in betas], axis=1)
        if "offset" in rows:
            eta = eta + rows["offset"].reshape(-1, *(1 for _ in eta.shape[1:]))
        own = theta[self.equations * p :]
        return jnp.concatenate([eta, jnp.broadcast_to(own, (len(eta), *own.shape))], axis=1)

    def terms(self, z: Array, rows: Mapping[str, Array]) -> Array:
        """Return log f(y_k|z_k) of each row."""
        auxiliary = {name: jnp.exp(z[:, self.equations + i]) for i, name in enumerate(self.auxiliary)}
        return self.log_density(z[:, : self.equations], auxiliary, rows)

    def gram(self, h: Array, rows: Mapping[str, Array]) -> Array:
        """Return Σ Z_kᵀ h_k Z_k, equation by equation and parameter by parameter."""
        several, m = self.equations, h.shape[1]
        found: list[list[Array]] = [[h] * m for _ in range(m)]
        for i in range(m):
            for j in range(i + 1):
                if i < several:
                    own = self.design.gram(h[:, i, j], rows)
                elif j < several:
                    own = self.design.pull(h[:, i, j], rows)[None, :]
                else:
                    own = h[:, i, j].sum()[None, None]
                found[i][j], found[j][i] = own, own.T
        return jnp.block(found)


def build_design(formula: Formula, levels: Mapping[str, tuple[Level, ...]]) -> Design:
    """Return the columns of a formula, given the levels of its factors.

    A factor loses its first level in a term if it would repeat what terms before it span, and only then (as in R, patsy
    and formulaic): `0 + a` has all levels of a, `1 + a` all but the first.
    """
    blocks: list[Block] = []
    spanned: dict[frozenset[str], set[frozenset[str]]] = {}
    for term in formula.terms:
        factors = tuple(name for name in term if name in levels)
        numbers = tuple(name for name in term if name not in levels)
        seen = spanned.setdefault(frozenset(numbers), set())
        for coding in find_codings(factors, seen):
            if not (coding or numbers):
                continue  # the intercept
            coded = tuple(Coding(name, levels[name], reduced) for name, reduced in coding.items())
            start = blocks[-1].start + blocks[-1].size if blocks else 0
            blocks.append(Block(":".join(term), numbers, coded, start, term))
            if start + blocks[-1].size > MOST_COEFFICIENTS:
                raise InputError(
                    f"The formula has more than {MOST_COEFFICIENTS} coefficients once {':'.join(term)!r} is written "
                    "out. Merge rare levels, or leave the term out."
                )
    return Design(formula.intercept, tuple(blocks))


def find_codings(factors: tuple[str, ...], seen: set[frozenset[str]]) -> list[dict[str, bool]]:
    """Return how to code the factors of a term so that it adds what is not spanned yet, as {factor: reduced}.

    A term of factors a, b with all their levels spans 1, a⁻, b⁻ and a⁻:b⁻, where ⁻ leaves the first level out. What is
    new of this is put together again: a⁻ and 1 are all levels of a.
    """
    subsets = [frozenset(some) for some in chain(*(combinations(factors, k) for k in range(len(factors) + 1)))]
    new = [subset for subset in subsets if subset not in seen]
    seen.update(new)
    found = [{name: True for name in factors if name in subset} for subset in new]
    while pair := find_mergeable(found):
        small, large, name = pair
        merged = {one: found[large][one] and one != name for one in factors if one in found[large]}
        found = [merged if i == large else coding for i, coding in enumerate(found) if i != small]
    return found


def find_mergeable(found: list[dict[str, bool]]) -> tuple[int, int, str] | None:
    """Return two codings that are one: the same but for a factor that one lacks and the other has reduced."""
    for large, coding in enumerate(found):
        for name, reduced in reversed(coding.items()):
            without = {one: how for one, how in coding.items() if one != name}
            if reduced and without in found:
                return found.index(without), large, name
    return None
