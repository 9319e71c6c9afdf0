"""How rows of the user's columns become the rows that the model reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError, InputError
from lwa.executors import Executor
from lwa.models.glm.design import Design, Part
from lwa.models.glm.families import Family
from lwa.models.glm.formula import Expression, Formula
from lwa.rows import Batch, Rows
from lwa.rows.passes import read_blocks
from lwa.rows.store.cache import open_path
from lwa.rows.store.encoding import Level
from lwa.rows.store.levels import encode_rows, list_columns
from lwa.user.progress import Display

type UserColumns = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Learned:
    """Levels and moments of expressions over all rows, by their texts."""

    levels: Mapping[str, tuple[Level, ...]]  # of factors, and of the response if it is one
    moments: Mapping[str, tuple[float, float]]  # mean and sd, of what is centred or scaled


@dataclass(frozen=True, eq=False)
class Recipe:
    """How a batch of the user's columns becomes a batch of the model's: y, x, code, times, offset, weights, trials."""

    formula: Formula
    family: Family
    design: Design
    learned: Learned
    offsets: tuple[Expression, ...]
    weights: Expression | None
    trials: Expression | int | None

    def parts(self, columns: UserColumns, held: "ColumnLevels") -> list[Part]:
        """Return what rows hold for each block of the design."""
        numbers: dict[str, NDArray[np.float64]] = {}
        codes: dict[str, NDArray[np.int32]] = {}
        for name, factor in self.formula.factors.items():
            if name in self.learned.levels:
                codes[name] = held.codes(factor, columns, self.learned.levels[name])
            else:
                numbers[name] = self.number(factor, columns, held)
        return [block.build_part(numbers, codes) for block in self.design.blocks]

    def number(self, expression: Expression, columns: UserColumns, held: "ColumnLevels") -> NDArray[np.float64]:
        """Return one number per row, centred or scaled if asked for."""
        values = expression.compute(columns, held.levels)
        if expression.learned is None:
            return values
        mean, sd = self.learned.moments[expression.text]
        return (values - mean) / (sd if expression.learned == "scale" else 1.0)

    def rows(self, columns: UserColumns, held: "ColumnLevels") -> dict[str, np.ndarray]:
        """Return the rows that the model reads."""
        y = self.response(columns, held)
        found = {"y": y} | self.design.build_rows(self.parts(columns, held), len(y))
        if self.offsets:
            found["offset"] = np.sum([self.number(offset, columns, held) for offset in self.offsets], axis=0)
        if self.weights is not None:
            found["weights"] = self.number(self.weights, columns, held)
        if isinstance(self.trials, int):
            found["trials"] = np.full(len(y), float(self.trials))
        elif self.trials is not None:
            found["trials"] = self.number(self.trials, columns, held)
        if self.family.constant is not None:
            found["constant"] = self.family.constant(y, found.get("trials"))
        return found

    def response(self, columns: UserColumns, held: "ColumnLevels") -> np.ndarray:
        """Return y; if it is a factor, the code of its level, as a float if there are two."""
        expression = self.formula.response
        levels = self.learned.levels.get(expression.text)
        if levels is None:
            return self.number(expression, columns, held)
        codes = held.codes(expression, columns, levels)
        return codes if self.family.levels == "any" else codes.astype(np.float64)


@dataclass(frozen=True, eq=False)
class ColumnLevels:
    """What codes stand for in these data, by column: other data may have other levels in another order."""

    levels: Mapping[str, tuple[Level, ...]]

    def codes(self, factor: Expression, columns: UserColumns, known: tuple[Level, ...]) -> NDArray[np.int32]:
        """Return the position of each row's level among those that are known; refuse an unknown one."""
        column = factor.column
        if column is not None and column in self.levels:
            own = self.levels[column]
            if own == known:
                return columns[column].astype(np.int32, copy=False)
            place = {level: i for i, level in enumerate(known)}
            codes = np.array([place.get(level, -1) for level in own], np.int32)[columns[column]]
            if (codes < 0).any():
                raise unseen_error(factor.text, own[int(columns[column][int((codes < 0).argmax())])], known)
            return codes
        values = factor.compute(columns, self.levels)
        if isinstance(known[0], str):
            raise unseen_error(factor.text, values[0].item(), known)
        levels = np.array(known, np.float64)
        order = np.argsort(levels).astype(np.int32)  # a reference level stands before those below it
        codes = order[np.minimum(np.searchsorted(levels, values, sorter=order), len(known) - 1)]
        strange = levels[codes] != values
        if strange.any():
            raise unseen_error(factor.text, values[int(strange.argmax())].item(), known)
        return codes


def unseen_error(name: str, level: Level, known: tuple[Level, ...]) -> DataError:
    """Return the error for a level that the model has no coefficient for."""
    some = ", ".join(map(repr, known[:10])) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
    return DataError(
        f"{name!r} has the level {level!r}, which the rows that the model was bound to do not have. Known: {some}. "
        "Bind it to data with all levels, or drop those rows."
    )


@dataclass(frozen=True, eq=False)
class RecipeRows:
    """The user's rows, read by a recipe on demand."""

    source: Rows
    names: tuple[str, ...]  # the columns that are needed
    recipe: Recipe
    held: ColumnLevels

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.source)

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return rows at these positions, in this order."""
        return self._read(self.source.take(indices))

    def blocks(self, size: int) -> Iterator[Batch]:
        """Yield all rows in order, `size` at a time."""
        return map(self._read, self.source.blocks(size))

    def between(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """Yield rows `start` to `stop` - 1 in order, `size` at a time."""
        return map(self._read, read_blocks(self.source, start, stop, size))

    def _read(self, batch: Batch) -> Batch:
        return self.recipe.rows(select_columns(batch, self.names), self.held)


def select_columns(batch: Batch, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return some columns, each of one number per row."""
    assert isinstance(batch, dict)
    for name in names:
        if batch[name].ndim != 1:
            hint = "one value per row is expected. Pass each of its columns under a name of its own."
            raise InputError(f"Column {name!r} has rows of shape {batch[name].shape[1:]}; {hint}")
    return {name: batch[name] for name in names}


def open_columns(
    data: object, names: tuple[str, ...], progress: bool | Display = False, executor: Executor | None = None
) -> tuple[Rows, ColumnLevels]:
    """Return the rows of data with these columns, and what codes of text stand for."""
    if isinstance(data, str | PathLike):
        data = open_path(data, progress, columns=names, executor=executor)
    there = list_columns(data)
    if not there:
        raise DataError(
            f"A formula needs columns with names, and data of type {type(data).__name__} have none. Pass a table, or a "
            "dict of arrays, {'x': x, 'y': y}."
        )
    for name in names:
        if name not in there:
            close = get_close_matches(name, there, n=1)
            guess = f" Did you mean {close[0]!r}?" if close else ""
            came = f"The formula names the column {name!r}, which the data do not have"
            raise DataError(f"{came}.{guess} They have {', '.join(map(repr, there))}.")
    rows, levels = encode_rows(data, names)
    return rows, ColumnLevels(levels)
