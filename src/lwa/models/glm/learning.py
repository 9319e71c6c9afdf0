"""What a regression needs from all rows before it is a model: levels, means, and whether columns are independent."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError, InputError
from lwa.executors import Executor
from lwa.models.glm.design import Design, Part
from lwa.models.glm.formula import Expression, Levels
from lwa.models.glm.recipe import ColumnLevels, Learned, Recipe, RecipeRows, UserColumns, select_columns
from lwa.rows import Batch, Rows
from lwa.rows.passes import map_pieces, spread_passes
from lwa.rows.store.encoding import Level
from lwa.rows.store.levels import require_one_kind

SCAN_ROWS = 2**16
"""Rows that are read together."""
MOST_LEVELS = 2**16
"""Most levels of a factor: a column with more different numbers is not one."""
MANY_COLUMNS = 1_000
"""Columns beyond which one process computes pieces one after another: each piece holds their number squared."""
LEAST_UNEXPLAINED = 1e-10
"""Share of a column's variance below which others explain all of it. Sums in float64 leave some 1e-14."""


@dataclass
class RunningMoments:
    """Mean and variance of numbers that come in blocks (Chan, Golub and LeVeque, 1979)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0  # Σ (x - mean)²

    def add(self, values: NDArray[np.float64]) -> None:
        """Add a block of numbers."""
        mean = float(values.mean())
        self.join(RunningMoments(len(values), mean, float(((values - mean) ** 2).sum())))

    def join(self, later: "RunningMoments") -> None:
        """Add all numbers of another."""
        if later.count:
            away, total = later.mean - self.mean, self.count + later.count
            self.squares += later.squares + away**2 * self.count * later.count / total
            self.mean += away * later.count / total
            self.count = total

    @property
    def sd(self) -> float:
        """The standard deviation of all numbers."""
        return float(np.sqrt(self.squares / self.count))


def learn(rows: Rows, names: tuple[str, ...], expressions: Mapping[str, Expression], text_levels: Levels) -> Learned:
    """Return levels and moments of factors and of C(response); make one pass over the rows if these are unknown."""
    first = select_columns(rows.take(np.zeros(1, np.int64)), names)
    levels: dict[str, tuple[Level, ...]] = {}
    seen = SeenLevels({}, {})
    for text, expression in expressions.items():
        texts = [column for column in expression.computed if column in text_levels]
        if texts and (expression.column is None or expression.learned in ("center", "scale")):
            raise InputError(
                f"{text!r} computes with the column {texts[0]!r}, which holds text. Write {texts[0]!r} by itself: it "
                f"is a factor. Or compare it with one of its levels, ({texts[0]} == {text_levels[texts[0]][0]!r})."
            )
        if texts:
            if expression.learned is None:
                require_one_kind(texts[0], text_levels[texts[0]])
            levels[text] = text_levels[texts[0]]
        elif expression.learned == "C" or (expression.column and first[expression.column].dtype == bool):
            seen.values[text] = set()
        elif expression.learned is not None:
            seen.running[text] = RunningMoments()
    if seen.values or seen.running:
        for one in map_pieces(rows, collect_levels, SCAN_ROWS, own=(seen, names, expressions, text_levels)):
            seen.join(one)
    for text, values in seen.values.items():
        column = expressions[text].column
        kind = first[column].dtype.kind if column else "f"
        as_level = bool if kind == "b" else int if kind in "iu" else float
        levels[text] = tuple(as_level(level) for level in sorted(values))
    for text, found in levels.items():
        if len(found) < 2:
            same = f"The factor {text!r} has one level in all rows, {found[0]!r}"
            raise DataError(f"{same}, so its effect cannot be estimated. Leave it out of the formula.")
    levels = {text: put_reference_first(expressions[text], found) for text, found in levels.items()}
    for text, moments in seen.running.items():
        if expressions[text].learned == "scale" and not moments.sd > 0:
            raise DataError(f"{text!r}: the column is the same in all rows, so it has no scale. Leave it out.")
    return Learned(levels, {text: (moments.mean, moments.sd) for text, moments in seen.running.items()})


@dataclass
class SeenLevels:
    """What was seen of expressions so far: numbers that are levels, and moments of others."""

    values: dict[str, set[float]]
    running: dict[str, RunningMoments]

    def join(self, later: "SeenLevels") -> None:
        """Add what was seen in the rows that come next."""
        for text, values in later.values.items():
            self.values[text] |= values
            require_few_numbers(text, self.values[text])
        for text, moments in later.running.items():
            self.running[text].join(moments)


def collect_levels(
    blank: SeenLevels,
    names: tuple[str, ...],
    expressions: Mapping[str, Expression],
    text_levels: Levels,
    start: int,
    blocks: Iterator[Batch],
) -> SeenLevels:
    """Return the levels and moments of one piece of all rows."""
    seen = SeenLevels({text: set() for text in blank.values}, {text: RunningMoments() for text in blank.running})
    for batch in blocks:
        columns = select_columns(batch, names)
        for text, values in seen.values.items():
            values.update(np.unique(compute_finite(expressions[text], columns, text_levels)).tolist())
            require_few_numbers(text, values)
        for text, moments in seen.running.items():
            moments.add(compute_finite(expressions[text], columns, text_levels))
    return seen


def require_few_numbers(text: str, values: set[float]) -> None:
    """Refuse more levels than `MOST_LEVELS`."""
    if len(values) > MOST_LEVELS:
        raise DataError(f"{text!r} has more than {MOST_LEVELS} levels: it is a number. Write it without C.")


def put_reference_first(factor: Expression, levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """Return the levels with the one that `C(x, ref=...)` names in front."""
    if factor.reference is None:
        return levels
    if factor.reference not in levels:
        raise DataError(f"{factor.text!r}: there is no such level. {suggest_level(factor.reference, levels)}")
    at = levels.index(factor.reference)
    return (levels[at], *levels[:at], *levels[at + 1 :])


def require_texts(expression: Expression, text_levels: Levels) -> None:
    """Refuse a comparison with a text that the column never holds: it would be 0 in all rows."""
    for column, text in expression.texts:
        if column in text_levels and text not in text_levels[column]:
            hint = suggest_level(text, text_levels[column])
            raise DataError(f"{expression.text!r}: no row of {column!r} is {text!r}. {hint}")


def suggest_level(level: Level, levels: tuple[Level, ...]) -> str:
    """Return which level may have been meant, and which there are."""
    close = get_close_matches(str(level), list(map(str, levels)), n=1)
    guess = f"Did you mean {close[0]!r}? " if close else ""
    return f"{guess}There are {', '.join(map(repr, levels[:10]))}{' and others' if len(levels) > 10 else ''}."


def compute_finite(expression: Expression, columns: UserColumns, text_levels: Levels) -> NDArray[np.float64]:
    """Return the numbers of an expression; refuse NaN and infinity."""
    numbers = expression.compute(columns, text_levels)
    if not np.isfinite(numbers).all():
        raise DataError(
            f"{expression.text!r} is NaN or infinite in {np.count_nonzero(~np.isfinite(numbers))} rows of one block of "
            f"{len(numbers)}. Finite numbers are expected. Drop those rows, or fill the values."
        )
    return numbers


@dataclass
class BadValues:
    """Counts of invalid values, by the column or expression that holds them."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, tuple[int, float]] = field(default_factory=dict)  # row and value

    def check(self, name: str, values: np.ndarray, good: NDArray[np.bool_], start: int) -> None:
        """Count the values that are not good."""
        if good.all():
            return
        at = int((~good).argmax())
        self.join(BadValues({name: int(good.size - good.sum())}, {name: (start + at, float(values[at]))}))

    def join(self, later: "BadValues") -> None:
        """Add the counts of the rows that come next."""
        for name, count in later.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
            self.first.setdefault(name, later.first[name])

    def describe(self, name: str) -> str:
        """Return how many there are, and the first."""
        row, value = self.first[name]
        return f"{name!r} has {self.counts[name]}, the first in row {row} ({value:g})"


@dataclass(frozen=True, eq=False)
class Facts:
    """What one pass over all rows found."""

    rows: int
    mean: NDArray[np.float64]  # of each column
    block_sd: tuple[float | None, ...]  # of the numbers in each block; None if it has only levels
    y: RunningMoments
    trials: RunningMoments
    offset: RunningMoments


@dataclass
class RowScan:
    """What was found in the rows so far."""

    sums: "ColumnSums"
    blocks: list[RunningMoments]  # of the numbers in each block of the design
    moments: dict[str, RunningMoments]
    missing: BadValues = field(default_factory=BadValues)
    outside: BadValues = field(default_factory=BadValues)
    negative: BadValues = field(default_factory=BadValues)
    rows: int = 0

    @classmethod
    def begin(cls, design: Design) -> "RowScan":
        """Return sums of no rows."""
        blocks, moments = ([RunningMoments() for _ in each] for each in (design.blocks, range(3)))
        return cls(ColumnSums(design), blocks, dict(zip(("y", "trials", "offset"), moments, strict=True)))

    def add(self, recipe: Recipe, rows: UserColumns, parts: list[Part], start: int) -> None:
        """Add a block, the rows from `start` on."""
        response, y = recipe.formula.response.text, rows["y"]
        names = [":".join(block.numbers) for block in recipe.design.blocks]
        numbers = [(response, y), *zip(names, (part.times for part in parts), strict=True)]
        for name, values in [*numbers, *((name, rows.get(name)) for name in ("offset", "weights", "trials"))]:
            if values is not None:
                self.missing.check(name, values, np.isfinite(values), start)
        good = recipe.family.allowed(y, rows.get("trials")) | ~np.isfinite(y)
        self.outside.check(response, y, good, start)
        if recipe.weights is not None:
            self.negative.check(recipe.weights.text, rows["weights"], ~(rows["weights"] < 0), start)
        if not self.missing.counts:
            self.sums.add(rows, parts)
            for one, part in zip(self.blocks, parts, strict=True):
                if part.times is not None:
                    one.add(part.times)
            for name in self.moments.keys() & rows.keys():
                self.moments[name].add(np.asarray(rows[name], np.float64))
        self.rows += len(y)

    def join(self, later: "RowScan") -> None:
        """Add what was seen in the rows that come next."""
        self.sums.join(later.sums)
        mine, theirs = ([*one.blocks, *one.moments.values()] for one in (self, later))
        for one, other in zip(mine, theirs, strict=True):
            one.join(other)
        self.missing.join(later.missing)
        self.outside.join(later.outside)
        self.negative.join(later.negative)
        self.rows += later.rows


def scan_rows(read: RecipeRows, executor: Executor | None = None) -> Facts:
    """Read all rows once; refuse invalid values, and columns that others span."""
    recipe = read.recipe
    seen = RowScan.begin(recipe.design)
    own, alone = (read.names, recipe, read.held), recipe.design.size > MANY_COLUMNS
    for one in map_pieces(spread_passes(read.source, executor), scan_piece, SCAN_ROWS, own=own, here=alone):
        seen.join(one)
    missing, outside, negative, y = seen.missing, seen.outside, seen.negative, seen.moments["y"]
    if missing.counts:
        raise DataError(
            f"NaN or infinite values: {'; '.join(map(missing.describe, missing.counts))}. Finite numbers are expected. "
            "Drop those rows, or fill the values."
        )
    for name in outside.counts:
        hint = " Pass family='gaussian' for any numbers." if recipe.family.name != "binomial" else " Check trials."
        raise DataError(
            f"family={recipe.family.name!r} expects {recipe.family.words}. Outside of that: {outside.describe(name)}."
            f" Drop or correct those rows.{hint}"
        )
    for name in negative.counts:
        raise DataError(f"Weights must be >= 0. Negative ones: {negative.describe(name)}. Drop or correct those rows.")
    if recipe.family.scaled and not y.sd > 0:
        same = f"The response {recipe.formula.response.text!r} is {y.mean:g} in all rows"
        raise DataError(f"{same}, so there is nothing to explain. Pass another response.")
    seen.sums.require_full_rank()
    sd = tuple(one.sd if one.count else None for one in seen.blocks)
    return Facts(seen.rows, mean=seen.sums.mean, block_sd=sd, **seen.moments)


def scan_piece(
    names: tuple[str, ...], recipe: Recipe, held: ColumnLevels, start: int, blocks: Iterator[Batch]
) -> RowScan:
    """Return what was found in one piece of all rows."""
    seen = RowScan.begin(recipe.design)
    for batch in blocks:
        columns = select_columns(batch, names)
        with np.errstate(all="ignore"):
            rows, parts = recipe.rows(columns, held), recipe.parts(columns, held)
        seen.add(recipe, rows, parts, start + seen.rows)
    return seen


class ColumnSums:
    """Σ x and Σ x xᵀ of a design's columns, less a shift so that the variance is not lost to rounding."""

    def __init__(self, design: Design) -> None:
        self.design, self.count = design, 0
        self.shift: NDArray[np.float64] | None = None
        self.total, self.products = np.zeros(design.size), np.zeros((design.size, design.size))

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of each column."""
        return self.total / self.count + (0.0 if self.shift is None else self.shift)

    def add(self, rows: UserColumns, parts: list[Part]) -> None:
        """Add a block: columns that are written out as they are, those looked up as a sparse matrix."""
        n, at = len(rows["y"]), self.design.positions
        x = rows.get("x", np.zeros((n, 0)))
        if self.shift is None:
            self.shift = np.zeros(len(self.total))
            if self.design.intercept:  # else a shift would change what columns span
                self.shift[at] = x.mean(0)
        x = x - self.shift[at]
        self.count += n
        self.total[at] += x.sum(0)
        self.products[np.ix_(at, at)] += x.T @ x
        if not self.design.looked_up:
            return
        from scipy.sparse import csr_array

        entries = []
        for block, part in zip(self.design.blocks, parts, strict=True):
            if not block.written_out and part.code is not None:
                met = np.flatnonzero(part.code < block.size)
                times = np.ones(len(met)) if part.times is None else part.times[met]
                entries.append((times, met, block.start + part.code[met]))
        values, row, column = (np.concatenate(list(pieces)) for pieces in zip(*entries, strict=True))
        sparse = csr_array((values, (row, column)), shape=(n, len(self.total)))
        self.total += sparse.sum(axis=0)
        self.products += (sparse.T @ sparse).toarray()
        across = sparse.T @ x
        self.products[:, at] += across
        self.products[at, :] += across.T

    def join(self, later: "ColumnSums") -> None:
        """Add the sums of the rows that come next, less this shift in place of theirs."""
        if later.shift is None:
            return
        if self.shift is None:
            self.count, self.shift, self.total, self.products = later.count, later.shift, later.total, later.products
            return
        by = later.shift - self.shift
        moved = np.flatnonzero(by)  # a few of what may be thousands of columns
        across = np.outer(by[moved], later.total)
        self.count += later.count
        self.total += later.total + later.count * by
        self.products += later.products
        self.products[moved] += across
        self.products[:, moved] += across.T
        self.products[np.ix_(moved, moved)] += later.count * np.outer(by[moved], by[moved])

    def require_full_rank(self) -> None:
        """Refuse a column that is a combination of those before it, and name them."""
        intercept = self.design.intercept
        names = self.design.names[intercept:]
        if not names:
            return
        square, mean = self.products / self.count, self.total / self.count
        spread = square - np.outer(mean, mean) if intercept else square
        size = np.diag(square) + self.mean**2
        for name, variance, whole in zip(names, np.diag(spread), size, strict=True):
            if variance <= 1e-15 * whole:
                raise DataError(
                    f"The column {name!r} is {'the same' if whole else '0'} in all rows"
                    f"{', as the intercept is' if intercept and whole else ''}, so its coefficient cannot be "
                    "learned. Leave it out of the formula, or merge levels."
                )
        scale = np.sqrt(np.diag(spread))
        correlation = spread / np.outer(scale, scale)
        try:
            left = np.diag(np.linalg.cholesky(correlation)) ** 2
        except np.linalg.LinAlgError:
            left = np.zeros(1)
        if left.min() < LEAST_UNEXPLAINED:
            raise spanned_error(correlation, names, intercept)


def spanned_error(correlation: NDArray[np.float64], names: list[str], intercept: bool) -> DataError:
    """Return the error for the first column that those before it span."""
    at, weights = 1, np.ones(1)
    for at in range(1, len(names)):
        own = correlation[:at, at]
        weights = np.linalg.lstsq(correlation[:at, :at], own)[0]
        if 1 - own @ weights < 10 * LEAST_UNEXPLAINED:
            break
    others = [names[i] for i in np.argsort(-np.abs(weights)) if abs(weights[i]) > 1e-4]
    listed = ", ".join(map(repr, sorted(others, key=names.index)[:6])) + (" and others" if len(others) > 6 else "")
    same = "is a multiple of" if len(others) == 1 else "is a linear combination of"
    return DataError(
        f"The column {names[at]!r} {same} {listed}{', up to a constant,' if intercept else ''} in all rows: their "
        "coefficients cannot be told apart. Leave one of these columns out of the formula."
    )
