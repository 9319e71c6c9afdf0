"""A table to convert: the files or the object that hold it, its columns, and its rows in batches."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, cast

import numpy as np

from lwa.errors import DataError
from lwa.rows.memory import is_table
from lwa.rows.store.encoding import find_storage
from lwa.rows.store.formats import (
    FORMATS,
    READ_ROWS,
    ArrowBatch,
    ArrowType,
    ArrowTypes,
    FileHeader,
    ReadBatch,
    load_arrow,
)
from lwa.rows.store.places import SourceFile, find_files, make_absolute, require_format
from lwa.rows.tables import require_unique

if TYPE_CHECKING:
    import pandas
    import pyarrow

type ArrowTable = pyarrow.Table


@dataclass(frozen=True, eq=False, kw_only=True)
class RowSource(ABC):
    """What a conversion needs of a table."""

    types: dict[str, ArrowType]  # of the columns to read
    given: str | None = None  # the path or URL; None for a table in memory
    stamps: tuple[tuple[SourceFile, int | None], ...] = ()  # its files, each with its number of rows if it says
    fingerprint: str | None = None  # a digest that no other table has; None if that cannot be known later
    rows: int | None = None  # if that is known

    @abstractmethod
    def read(self, skip: int) -> Iterator[ReadBatch]:
        """Yield all rows but the first `skip`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FilesSource(RowSource):
    """A table in files of one format."""

    format: str
    keys: dict[str, ArrowType]  # of the types, those of columns that folders are named by

    def widen(self, column: str, wider: ArrowType) -> "FilesSource":
        """Return the table with a wider type for one column."""
        return replace(self, types={**self.types, column: wider})

    def read(self, skip: int) -> Iterator[ReadBatch]:
        """Yield all rows but the first `skip`, numbered through all files, with the share of all bytes."""
        total, before, done = max(sum(file.size for file, _ in self.stamps), 1), 0, 0
        held = {name: kind for name, kind in self.types.items() if name not in self.keys}
        for file, count in self.stamps:
            if count is not None and done + count <= skip:
                rows = count
            else:
                rows = 0
                for batch, start, share in FORMATS[self.format].read(file, held, skip - done):
                    rows = start + batch.num_rows
                    kept = batch.slice(min(max(skip - done - start, 0), batch.num_rows))
                    if kept.num_rows:
                        share_of_all = (before + share * file.size) / total
                        kept = add_keys(kept, file, self.types, self.keys)
                        yield ReadBatch(kept, done + rows - kept.num_rows, share_of_all)
            done += rows
            before += file.size


@dataclass(frozen=True, eq=False, kw_only=True)
class TableSource(RowSource):
    """A table in memory."""

    table: ArrowTable

    def read(self, skip: int) -> Iterator[ReadBatch]:
        """Yield all rows but the first `skip`."""
        done = skip
        for batch in self.table.slice(skip).to_batches(max_chunksize=READ_ROWS):
            yield ReadBatch(batch, done, (done + batch.num_rows) / self.table.num_rows)
            done += batch.num_rows


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamSource(RowSource):
    """Batches that come once, such as rows that are simulated."""

    batches: Iterator[ArrowBatch]

    def read(self, skip: int) -> Iterator[ReadBatch]:
        """Yield all rows. None is ever skipped, since such a conversion is never resumed."""
        assert skip == 0
        done = 0
        for batch in self.batches:
            yield ReadBatch(batch, done, 1.0)
            done += batch.num_rows


def open_source(source: object, columns: Iterable[str] | None = None) -> RowSource:
    """Find a table, by path or URL or in memory, and its columns, all by default. No row is read yet."""
    wanted = list_once(columns)
    if isinstance(source, str | os.PathLike):
        given = make_absolute(source)
        name, files = find_table_files(given)
        return combine_files(given, name, files, [FORMATS[name].look(file) for file in files], wanted)
    if is_table(source):
        return _open_table(source, wanted)
    raise DataError(
        f"source is of type {type(source).__name__}. Pass the path of a Parquet, Arrow or CSV file, a folder, a "
        "pattern or a URL, or a pandas DataFrame, polars DataFrame or pyarrow Table."
    )


def list_once(columns: Iterable[str] | None) -> list[str] | None:
    """Return the columns to read, each once; None for all columns."""
    if isinstance(columns, str):
        raise DataError(f"columns={columns!r} is one text; a list of names is expected. Pass columns=[{columns!r}].")
    return None if columns is None else list(dict.fromkeys(columns))


def open_batches(batches: Iterable[object]) -> StreamSource:
    """Return the table that batches make up: dicts of columns, or tables. The first one decides the columns."""
    coming = (_read_batch(batch, number) for number, batch in enumerate(batches))
    first = next(coming, None)
    if first is None:
        raise DataError("batches has nothing in it. Pass at least one batch of at least one row.")
    types = dict(zip(first.schema.names, first.schema.types, strict=True))
    _require_storable(types, "the first batch")

    def all_batches() -> Iterator[ArrowBatch]:
        for number, batch in enumerate(chain([first], coming)):
            came = dict(zip(batch.schema.names, batch.schema.types, strict=True))
            if came != types:
                expected = _list_types(types)
                raise DataError(f"batch {number} has columns {_list_types(came)}; the first one has {expected}.")
            yield batch

    return StreamSource(types=types, batches=all_batches())


def _list_types(types: Mapping[str, ArrowType]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in types.items())


def _read_batch(batch: object, number: int) -> ArrowBatch:
    """Return one batch as Arrow has it."""
    pyarrow = load_arrow()
    if is_table(batch):
        table = _open_table(batch, None).table
        return (table.combine_chunks() if table.num_rows else table.schema.empty_table()).to_batches()[0]
    if not isinstance(batch, Mapping):
        raise DataError(
            f"batch {number} is of type {type(batch).__name__}; a dict of columns or a table is expected. Pass "
            "{'x': x, 'y': y}, for example."
        )
    columns = {str(name): np.asarray(values) for name, values in batch.items()}
    deep = [f"{name!r} {values.shape}" for name, values in columns.items() if values.ndim != 1]
    if deep:
        raise DataError(
            f"columns of batch {number} are not of one number per row: {', '.join(deep)}. Pass each column of a matrix "
            "under its own name: {'x0': x[:, 0], 'x1': x[:, 1], ...}."
        )
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise DataError(f"columns of batch {number} have different lengths: {sorted(lengths)}. Pass one value per row.")
    return pyarrow.RecordBatch.from_pydict({name: np.ascontiguousarray(values) for name, values in columns.items()})


def find_table_files(given: str) -> tuple[str, list[SourceFile]]:
    """Return the format of a table and its files, which must all have it. `given` is absolute."""
    files = find_files(given)
    formats = {require_format(file.path): file.path for file in reversed(files)}
    if len(formats) > 1:
        listed = ", ".join(f"'{path}' ({name})" for name, path in formats.items())
        came = f"'{given}' holds files of several formats: {listed}"
        raise DataError(f"{came}. Pass a pattern, e.g. '{given}/*.parquet'.")
    return next(iter(formats)), files


def combine_files(
    given: str, format: str, files: Sequence[SourceFile], headers: Sequence[FileHeader], wanted: list[str] | None
) -> FilesSource:
    """Return the table that files make up, by the header of each."""
    keys = _find_key_types(files)
    types, counts = _find_common_types(files, headers, keys, wanted), [header.rows for header in headers]
    facts = [(file.path, file.size, file.modified, count) for file, count in zip(files, counts, strict=True)]
    return FilesSource(
        given=given, format=format, types=types, stamps=tuple(zip(files, counts, strict=True)),
        keys={key: kind for key, kind in keys.items() if key in types and key not in headers[0].types},
        rows=None if None in counts else sum(count or 0 for count in counts),
        fingerprint=blake2b(repr(facts).encode(), digest_size=16).hexdigest(),
    )  # fmt: skip


def add_keys(batch: ArrowBatch, file: SourceFile, types: ArrowTypes, keys: ArrowTypes) -> ArrowBatch:
    """Return a batch of a file with the columns that its folders are named by."""
    if not keys:
        return batch
    pyarrow, columns = load_arrow(), {name: batch.column(name) for name in types if name not in keys}
    for name, kind in keys.items():
        value = dict(file.keys)[name]
        scalar = pyarrow.scalar(None, kind) if value is None else pyarrow.scalar(value).cast(kind)
        columns[name] = pyarrow.repeat(scalar, batch.num_rows)
    return pyarrow.RecordBatch.from_pydict({name: columns[name] for name in types})


def _open_table(given: object, wanted: list[str] | None) -> TableSource:
    pyarrow, table = load_arrow(), cast("pandas.DataFrame | pyarrow.Table", given)
    kind = type(table).__module__.partition(".")[0]
    if kind == "polars" and type(table).__name__ == "LazyFrame":
        raise DataError("source is a polars LazyFrame, which holds no rows yet. Pass source.collect().")
    names = list(table.schema.names) if kind == "pyarrow" else [str(name) for name in table.columns]
    require_unique(names)
    if kind == "pandas":
        table = table.set_axis(names, axis=1)
    if wanted is not None:
        _require_columns(wanted, names, "the table")
        table = table.select(wanted) if kind != "pandas" else table[wanted]
    held = table
    try:
        if kind != "pyarrow":
            held = table.to_arrow() if kind == "polars" else pyarrow.Table.from_pandas(table, preserve_index=False)
    except (pyarrow.ArrowException, OverflowError) as error:
        raise DataError(
            f"a column of the table has mixed types: {' '.join(map(str, error.args))}. One type per column is "
            "expected. Convert it, e.g. df['x'] = pd.to_numeric(df['x']) or df['x'].astype(str), or leave it out with "
            "columns=[...]."
        ) from error
    if isinstance(held, pyarrow.RecordBatch):
        held = pyarrow.Table.from_batches([held])
    types = dict(zip(held.schema.names, held.schema.types, strict=True))
    _require_storable(types, "the table")
    return TableSource(types=types, rows=held.num_rows, table=held)


def _find_key_types(files: Sequence[SourceFile]) -> dict[str, ArrowType]:
    """Return the types of the keys that folders are named by: integers if all values are, else text."""
    pyarrow = load_arrow()
    names = [key for key, _ in files[0].keys]
    for file in files:
        if (came := [key for key, _ in file.keys]) != names:
            raise DataError(
                f"folders are named by {names} for '{files[0].path}' and by {came} for "
                f"'{file.path}'. The same keys are expected for every file. Pass a folder or a pattern whose files "
                "have them."
            )
    texts = {
        name for file in files for name, value in file.keys
        if value is not None and not re.fullmatch(r"-?(0|[1-9]\d{0,17})", value)
    }  # fmt: skip
    return {name: pyarrow.string() if name in texts else pyarrow.int64() for name in names}


def _find_common_types(
    files: Sequence[SourceFile], headers: Sequence[FileHeader], keys: ArrowTypes, wanted: list[str] | None
) -> dict[str, ArrowType]:
    """Return the type of each column over all files that have rows; raise if files do not agree."""
    pairs = list(zip(files, headers, strict=True))
    filled = [(file, header) for file, header in pairs if header.rows != 0] or pairs[:1]
    first, opening = filled[0]
    names = wanted if wanted is not None else [*opening.types, *(key for key in keys if key not in opening.types)]
    _require_columns(names, [*opening.types, *keys], f"'{first.path}'")
    types, owner = {name: opening.types.get(name, keys.get(name)) for name in names}, dict.fromkeys(names, first)
    for file, header in filled[1:]:
        absent = [name for name in names if name not in header.types and name not in keys]
        if absent or (wanted is None and set(header.types) != set(opening.types)):
            added = [name for name in header.types if name not in opening.types]
            change = f"lacks {absent}" if absent else f"has {added} besides"
            raise DataError(
                f"the columns differ between files: '{file.path}' {change}, compared with '{first.path}'. Pass "
                "columns=[...] that all files have, or write the files again with the same columns."
            )
        for name in names:
            if name in header.types:
                types[name], owner[name] = _agree_on_type(name, types[name], owner[name], header.types[name], file)
    _require_storable(types, f"'{first.path}'")
    return types


def _agree_on_type(
    name: str, held: ArrowType, where: SourceFile, came: ArrowType, file: SourceFile
) -> tuple[ArrowType, SourceFile]:
    """Return the type that fits the values of both files, and the file that has it."""
    pyarrow = load_arrow()
    if pyarrow.types.is_null(came) or held == came:
        return held, where
    if pyarrow.types.is_null(held):
        return came, file
    if require_format(file.path) == "csv" and {str(held), str(came)} == {"int64", "double"}:
        return pyarrow.float64(), where
    if find_storage(held) != find_storage(came):
        raise DataError(
            f"column {name!r} is {held} in '{where.path}' and {came} in '{file.path}'. One type is expected. Write the "
            "files again with one type, or leave the column out with columns=[...]."
        )
    return held, where


def _require_columns(wanted: Sequence[str], names: Sequence[str], where: str) -> None:
    if not wanted:
        raise DataError(f"{where} has no columns to read. Name at least one column.")
    absent = [name for name in wanted if name not in names]
    if absent:
        close = [repr(guess) for name in absent for guess in get_close_matches(name, names, n=1)]
        meant = f" Did you mean {' and '.join(close)}?" if close else ""
        raise DataError(
            f"no column {', '.join(map(repr, absent))} in {where}.{meant} It has {', '.join(map(repr, names))}. Name "
            "columns of these."
        )


def _require_storable(types: ArrowTypes, where: str) -> None:
    foreign = [f"{name!r} ({kind})" for name, kind in types.items() if find_storage(kind) is None]
    if foreign:
        fit = [name for name, kind in types.items() if find_storage(kind) is not None]
        raise DataError(
            f"columns of {where} hold neither numbers nor text, flags, categories or times: {', '.join(foreign)}. "
            f"Leave them out: columns={fit[:8]!r}{' and so on' if len(fit) > 8 else ''}."
        )
