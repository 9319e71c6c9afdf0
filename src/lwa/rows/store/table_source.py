"""A table to convert: the files or the object that hold it, its columns, and its rows in batches."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import blake2b
from itertools import chain
from typing import Any, Protocol

import numpy as np

from lwa.errors import DataError
from lwa.rows.memory import is_table
from lwa.rows.store.encoding import stored_as
from lwa.rows.store.formats import BATCH, FORMATS, Look, Read, TooNarrow, arrow
from lwa.rows.store.places import SourceFile, absolute, find_files, require_format
from lwa.rows.tables import require_unique

__all__ = [
    "FilesSource",
    "Source",
    "StreamSource",
    "TableSource",
    "TooNarrow",
    "files_of",
    "named_once",
    "open_source",
    "open_stream",
    "source_of",
    "with_keys",
]


@dataclass(frozen=True, eq=False)
class FilesSource:
    """A table in files of one format."""

    given: str
    format: str
    files: tuple[SourceFile, ...]
    counts: tuple[int | None, ...]  # rows of each file, where it says
    types: dict[str, Any]  # Arrow types of the columns asked for
    keys: dict[str, Any]  # of these, the ones that folders are named by

    @property
    def rows(self) -> int | None:
        """How many rows there are, where the files say."""
        return None if None in self.counts else sum(count or 0 for count in self.counts)

    @property
    def fingerprint(self) -> str | None:
        """Other files, sizes, times of writing or row counts make another one."""
        parts = [(file.path, file.size, file.modified, count) for file, count in self.stamps]
        return blake2b(repr(parts).encode(), digest_size=16).hexdigest()

    @property
    def stamps(self) -> list[tuple[SourceFile, int | None]]:
        """The files with their rows."""
        return list(zip(self.files, self.counts, strict=True))

    def widened(self, column: str, wider: Any) -> "FilesSource":
        """The same with a wider type for one column."""
        return replace(self, types={**self.types, column: wider})

    def read(self, skip: int) -> Iterator[Read]:
        """All rows but the first `skip`, numbered through all files, with the share of all bytes."""
        total, before, done = max(sum(file.size for file in self.files), 1), 0, 0
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
                        kept = with_keys(kept, file, self.types, self.keys)
                        yield Read(kept, done + rows - kept.num_rows, share_of_all)
            done += rows
            before += file.size


@dataclass(frozen=True, eq=False)
class TableSource:
    """A table in memory."""

    given: None
    table: Any  # of Arrow
    types: dict[str, Any]
    stamps: tuple[tuple[SourceFile, int | None], ...] = ()
    fingerprint: None = None  # whether it is still the same table cannot be known later

    @property
    def rows(self) -> int | None:
        """How many there are."""
        return int(self.table.num_rows)

    def read(self, skip: int) -> Iterator[Read]:
        """All rows but the first `skip`."""
        done = skip
        for batch in self.table.slice(skip).to_batches(max_chunksize=BATCH):
            yield Read(batch, done, (done + batch.num_rows) / self.table.num_rows)
            done += batch.num_rows


@dataclass(frozen=True, eq=False)
class StreamSource:
    """Batches that come once, such as rows that are simulated."""

    given: None
    batches: Iterator[Any]  # of Arrow
    types: dict[str, Any]
    stamps: tuple[tuple[SourceFile, int | None], ...] = ()
    fingerprint: None = None  # the same batches never come again
    rows: None = None

    def read(self, skip: int) -> Iterator[Read]:
        """All rows. None is ever skipped: what is not known to be the same is not gone on with."""
        assert skip == 0
        done = 0
        for batch in self.batches:
            yield Read(batch, done, 1.0)
            done += batch.num_rows


class Source(Protocol):
    """What a conversion needs of a table."""

    @property
    def given(self) -> str | None:
        """Where it is, unless that is in memory."""

    @property
    def types(self) -> dict[str, Any]:
        """Arrow types of the columns asked for."""

    @property
    def stamps(self) -> Sequence[tuple[SourceFile, int | None]]:
        """Its files with their rows."""

    @property
    def fingerprint(self) -> str | None:
        """What another table does not have; None where that cannot be told."""

    @property
    def rows(self) -> int | None:
        """How many rows there are, where that is known."""

    def read(self, skip: int) -> Iterator[Read]:
        """All rows but the first `skip`."""


def open_source(source: object, columns: Iterable[str] | None = None) -> Source:
    """Find a table and settle its columns; no row is read yet.

    Parameters
    ----------
    source
        The path of a file, a folder, a pattern (``"part-*.parquet"``) or a URL, or a pandas, polars or Arrow table.
    columns
        The columns to read, all of them by default.
    """
    wanted = named_once(columns)
    if isinstance(source, str | os.PathLike):
        return _of_files(absolute(source), wanted)
    if is_table(source):
        return _of_table(source, wanted)
    raise DataError(
        f"source is of type {type(source).__name__}. Pass the path of a Parquet, Arrow or CSV file, a folder, a "
        "pattern or a URL, or a pandas DataFrame, polars DataFrame or pyarrow Table."
    )


def named_once(columns: Iterable[str] | None) -> list[str] | None:
    """The columns to read, each once; None where all are."""
    if isinstance(columns, str):
        raise DataError(f"columns={columns!r} is one text; a list of names is expected. Pass columns=[{columns!r}].")
    return None if columns is None else list(dict.fromkeys(columns))


def open_stream(batches: Iterable[Any]) -> StreamSource:
    """Dicts of columns, or tables, one after the other; the first one says which columns there are."""
    coming = (_batch(batch, number) for number, batch in enumerate(batches))
    first = next(coming, None)
    if first is None:
        raise DataError("batches has nothing in it. Pass at least one batch of at least one row.")
    types = dict(zip(first.schema.names, first.schema.types, strict=True))
    _require_numbers(types, "the first batch")

    def all_batches() -> Iterator[Any]:
        for number, batch in enumerate(chain([first], coming)):
            came = dict(zip(batch.schema.names, batch.schema.types, strict=True))
            if came != types:
                raise DataError(f"batch {number} has columns {_words(came)}; the first one had {_words(types)}.")
            yield batch

    return StreamSource(None, all_batches(), types)


def _words(types: dict[str, Any]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in types.items())


def _batch(batch: Any, number: int) -> Any:
    """One batch as Arrow has it."""
    pyarrow = arrow()
    if is_table(batch):
        batch = _of_table(batch, None).table
        return batch.combine_chunks().to_batches()[0] if batch.num_rows else batch.schema.empty_table().to_batches()[0]
    if not isinstance(batch, Mapping):
        raise DataError(
            f"batch {number} is of type {type(batch).__name__}; a dict of columns or a table is expected. Pass "
            "{'x': x, 'y': y}, for example."
        )
    columns = {str(name): np.asarray(values) for name, values in batch.items()}
    deep = [f"{name!r} {values.shape}" for name, values in columns.items() if values.ndim != 1]
    if deep:
        raise DataError(
            f"columns of batch {number} are not of one number a row: {', '.join(deep)}. Pass each column of a matrix "
            "by a name of its own: {'x0': x[:, 0], 'x1': x[:, 1], ...}."
        )
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise DataError(f"columns of batch {number} have different lengths: {sorted(lengths)}. Pass one value a row.")
    return pyarrow.RecordBatch.from_pydict({name: np.ascontiguousarray(values) for name, values in columns.items()})


def _of_files(given: str, wanted: list[str] | None) -> FilesSource:
    arrow()
    name, files = files_of(given)
    return source_of(given, name, files, [FORMATS[name].look(file) for file in files], wanted)


def files_of(given: str) -> tuple[str, list[SourceFile]]:
    """The files of a table and their format, which is one. `given` is absolute."""
    files = find_files(given)
    formats = {require_format(file.path): file.path for file in reversed(files)}
    if len(formats) > 1:
        listed = ", ".join(f"'{path}' ({name})" for name, path in formats.items())
        raise DataError(
            f"'{given}' holds files of several formats: {listed}. Pass a pattern, e.g. '{given}/*.parquet'."
        )
    (name,) = formats
    return name, files


def source_of(
    given: str, format: str, files: Sequence[SourceFile], looks: Sequence[Look], wanted: list[str] | None
) -> FilesSource:
    """The table that files hold together, by what can be known of each."""
    keys = _key_types(files)
    types = _common_types(files, looks, keys, wanted)
    in_files = set(looks[0].types)
    return FilesSource(
        given,
        format,
        tuple(files),
        tuple(look.rows for look in looks),
        types,
        {key: kind for key, kind in keys.items() if key in types and key not in in_files},
    )


def with_keys(batch: Any, file: SourceFile, types: Mapping[str, Any], keys: Mapping[str, Any]) -> Any:
    """A batch of a file with the columns that its folders are named by."""
    if not keys:
        return batch
    pyarrow = arrow()
    values = dict(file.keys)
    columns = {name: batch.column(name) for name in types if name not in keys}
    for name, kind in keys.items():
        value = pyarrow.scalar(values[name]).cast(kind) if values[name] is not None else pyarrow.scalar(None, kind)
        columns[name] = pyarrow.repeat(value, batch.num_rows)
    return pyarrow.RecordBatch.from_pydict({name: columns[name] for name in types})


def _of_table(table: Any, wanted: list[str] | None) -> TableSource:
    pyarrow = arrow()
    kind = type(table).__module__.partition(".")[0]
    if kind == "polars" and type(table).__name__ == "LazyFrame":
        raise DataError("source is a polars LazyFrame, which holds no rows yet. Pass source.collect().")
    names = list(table.schema.names) if kind == "pyarrow" else [str(name) for name in table.columns]
    require_unique(names)
    if kind == "pandas":
        table = table.set_axis(names, axis=1)
    if wanted is not None:
        _require(wanted, names, "the table")
        table = table.select(wanted) if kind != "pandas" else table[wanted]
    try:
        if kind == "pandas":
            held = pyarrow.Table.from_pandas(table, preserve_index=False)
        else:
            held = table.to_arrow() if kind == "polars" else table
    except (pyarrow.ArrowException, OverflowError) as error:
        raise DataError(
            f"a column of the table has mixed types: {' '.join(map(str, error.args))}. One type a column is expected. "
            "Convert it, e.g. df['x'] = pd.to_numeric(df['x']) or df['x'].astype(str), or leave it out with "
            "columns=[...]."
        ) from error
    if isinstance(held, pyarrow.RecordBatch):
        held = pyarrow.Table.from_batches([held])
    types = dict(zip(held.schema.names, held.schema.types, strict=True))
    _require_numbers(types, "the table")
    return TableSource(None, held, types)


def _key_types(files: Sequence[SourceFile]) -> dict[str, Any]:
    """The types of the keys that folders are named by: whole numbers where all values are, else text."""
    pyarrow = arrow()
    names = [key for key, _ in files[0].keys]
    for file in files:
        if [key for key, _ in file.keys] != names:
            raise DataError(
                f"folders are named by {names} for '{files[0].path}' and by {[key for key, _ in file.keys]} for "
                f"'{file.path}'. The same keys are expected for every file. Pass a folder or a pattern whose files "
                "have them."
            )
    values = {key: [value for file in files for name, value in file.keys if name == key] for key in names}
    return {
        key: pyarrow.int64()
        if all(value is None or re.fullmatch(r"-?(0|[1-9]\d{0,17})", value) for value in held)
        else pyarrow.string()
        for key, held in values.items()
    }


def _common_types(
    files: Sequence[SourceFile], looks: Sequence[Look], keys: dict[str, Any], wanted: list[str] | None
) -> dict[str, Any]:
    """The type of each column over all files that have rows; refuses files that do not agree."""
    filled = [(file, look) for file, look in zip(files, looks, strict=True) if look.rows != 0] or [(files[0], looks[0])]
    first, opening = filled[0]
    names = wanted if wanted is not None else [*opening.types, *(key for key in keys if key not in opening.types)]
    _require(names, [*opening.types, *keys], f"'{first.path}'")
    types, owner = {name: opening.types.get(name, keys.get(name)) for name in names}, dict.fromkeys(names, first)
    for file, look in filled[1:]:
        absent = [name for name in names if name not in look.types and name not in keys]
        if absent or (wanted is None and set(look.types) != set(opening.types)):
            added = [name for name in look.types if name not in opening.types]
            change = f"lacks {absent}" if absent else f"has {added} besides"
            raise DataError(
                f"the columns differ between files: '{file.path}' {change}, compared with '{first.path}'. Pass "
                "columns=[...] that all files have, or write the files again with the same columns."
            )
        for name in names:
            if name in look.types:
                types[name], owner[name] = _agreed(name, types[name], owner[name], look.types[name], file)
    _require_numbers(types, f"'{first.path}'")
    return types


def _agreed(name: str, held: Any, where: SourceFile, came: Any, file: SourceFile) -> tuple[Any, SourceFile]:
    """The type that serves both, and the file it is from."""
    pyarrow = arrow()
    if pyarrow.types.is_null(came) or held == came:
        return held, where
    if pyarrow.types.is_null(held):
        return came, file
    if require_format(file.path) == "csv" and {str(held), str(came)} == {"int64", "double"}:
        return pyarrow.float64(), where
    if stored_as(held) != stored_as(came):
        raise DataError(
            f"column {name!r} is {held} in '{where.path}' and {came} in '{file.path}'. One type is expected. Write the "
            "files again with one type, or leave the column out with columns=[...]."
        )
    return held, where


def _require(wanted: Sequence[str], names: Sequence[str], where: str) -> None:
    if not wanted:
        raise DataError(f"{where} has no columns to read. Name at least one column.")
    absent = [name for name in wanted if name not in names]
    if absent:
        guesses = [get_close_matches(name, names, n=1) for name in absent]
        close = [repr(guess[0]) for guess in guesses if guess]
        meant = f" Did you mean {' and '.join(close)}?" if close else ""
        raise DataError(
            f"no column {', '.join(map(repr, absent))} in {where}.{meant} It has {', '.join(map(repr, names))}. Name "
            "columns of these."
        )


def _require_numbers(types: dict[str, Any], where: str) -> None:
    foreign = [f"{name!r} ({kind})" for name, kind in types.items() if stored_as(kind) is None]
    if foreign:
        fit = [name for name, kind in types.items() if stored_as(kind) is not None]
        raise DataError(
            f"columns of {where} hold neither numbers nor text, flags, categories or times: {', '.join(foreign)}. "
            f"Leave them out: columns={fit[:8]!r}{' and so on' if len(fit) > 8 else ''}."
        )
