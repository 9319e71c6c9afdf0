"""The formats that tables come in, each read by pyarrow in batches."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from lwa.errors import DataError, LwaError
from lwa.rows.store.places import SourceFile, compression, open_bytes, reachable

BATCH = 2**17
"""Rows that are read together: large enough that Python's share vanishes, a few MiB in memory."""
PARQUET_BUFFER = 2**20
"""Bytes of a column of a Parquet file that are read together."""
CSV_BLOCK = 4 * 2**20
"""Bytes of a CSV file that are parsed together. The first block decides the types of its columns."""


class Look(NamedTuple):
    """What can be known of a file before its rows are read."""

    types: dict[str, Any]  # Arrow types by name
    rows: int | None  # where the file itself says
    groups: tuple[int, ...] = ()  # rows of each row group, of Parquet


class Read(NamedTuple):
    """Some rows, the number of the first of them, and the share of the file that has been read."""

    batch: Any
    start: int
    share: float


class TooNarrow(LwaError):
    """A CSV column began with values of a narrower type than it goes on with."""

    def __init__(self, column: str, wider: Any) -> None:
        super().__init__(column)
        self.column, self.wider = column, wider


class Format(Protocol):
    """One way to write tables."""

    def look(self, file: SourceFile) -> Look:
        """Names, types and where possible the number of rows."""

    def read(self, file: SourceFile, types: Mapping[str, Any], skip: int) -> Iterator[Read]:
        """The columns named in `types`; of the first `skip` rows as few as can be."""


def arrow() -> Any:
    """The library pyarrow, or an error that says how to get it."""
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(
            "pyarrow, which reads Parquet, Arrow and CSV files, is not installed. Type pip install pyarrow."
        ) from error
    return pyarrow


@contextmanager
def readable(file: SourceFile, what: str) -> Iterator[None]:
    """Say in a sentence what is wrong with a file."""
    with reachable(file.path):
        try:
            yield
        except OSError as error:
            # What pyarrow cannot make sense of is a plain OSError without a number.
            if error.errno is not None or type(error) is not OSError:
                raise
            raise _damaged(file, what, error) from error
        except (arrow().ArrowException, UnicodeDecodeError, EOFError) as error:
            raise _damaged(file, what, error) from error


def _damaged(file: SourceFile, what: str, error: Exception) -> DataError:
    reason = " ".join(str(error).split())[:300].rstrip(".")
    return DataError(
        f"'{file.path}' is no {what} file, or it is damaged or cut short: {reason}. Write or copy it again."
    )


def _unique(file: SourceFile, names: Sequence[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"'{file.path}' has columns {repeated} more than once. Rename them so that each is unique.")


class Parquet:
    """Apache Parquet; whole row groups are skipped without being read."""

    def look(self, file: SourceFile) -> Look:
        """From the footer."""
        with readable(file, "Parquet"), open_bytes(file.path) as raw, self._reader(raw) as opened:
            schema = opened.schema_arrow
            _unique(file, schema.names)
            types = dict(zip(schema.names, schema.types, strict=True))
            return Look(types, opened.metadata.num_rows, _group_rows(opened))

    def read(self, file: SourceFile, types: Mapping[str, Any], skip: int, stop: int | None = None) -> Iterator[Read]:
        """Batches of the row groups that are left, those from row `stop` on apart."""
        texts = [name for name, kind in types.items() if is_text(kind)]
        with readable(file, "Parquet"), open_bytes(file.path) as raw, self._reader(raw, texts) as opened:
            held = _group_rows(opened)
            ends = list(accumulate(held))
            total = max(sum(held), 1) if stop is None else stop
            groups = [i for i, end in enumerate(ends) if end > skip and end - held[i] < total]
            done = ends[groups[0]] - held[groups[0]] if groups else 0
            for batch in opened.iter_batches(BATCH, row_groups=groups, columns=list(types)) if groups else ():
                start, done = done, done + batch.num_rows
                yield Read(batch, start, done / total)

    def _reader(self, raw: Any, texts: Sequence[str] = ()) -> Any:
        arrow()
        from pyarrow.parquet import ParquetFile

        # Text comes as codes and their dictionary, which is how Parquet keeps it, so that no string is made twice.
        # Buffered ahead, the bytes of all row groups would stay in memory until the last is read; without a buffer,
        # those of a whole row group, and there are files with only one.
        return ParquetFile(raw, read_dictionary=list(texts), pre_buffer=False, buffer_size=PARQUET_BUFFER)


class Arrow:
    """Arrow IPC, files (Feather) and streams."""

    def look(self, file: SourceFile) -> Look:
        """From the schema at the head of the file."""
        with readable(file, "Arrow"), open_bytes(file.path) as opened, self._reader(opened) as reader:
            _unique(file, reader.schema.names)
            return Look(dict(zip(reader.schema.names, reader.schema.types, strict=True)), None)

    def read(self, file: SourceFile, types: Mapping[str, Any], skip: int) -> Iterator[Read]:
        """Its record batches."""
        with readable(file, "Arrow"), open_bytes(file.path) as opened, self._reader(opened) as reader:
            count = getattr(reader, "num_record_batches", None)
            batches = reader if count is None else map(reader.get_batch, range(count))
            done = 0
            for i, batch in enumerate(batches):
                share = opened.tell() / max(file.size, 1) if count is None else (i + 1) / count
                for start in range(0, batch.num_rows, BATCH):
                    yield Read(batch.select(list(types)).slice(start, BATCH), done + start, share)
                done += batch.num_rows

    def _reader(self, opened: Any) -> Any:
        arrow()
        from pyarrow import ipc

        magic = opened.read(6)
        opened.seek(0)
        return ipc.open_file(opened) if magic == b"ARROW1" else ipc.open_stream(opened)


class Csv:
    """Comma- or tab-separated text with a line of names; types are those of the first block, or wider."""

    def look(self, file: SourceFile) -> Look:
        """From the first block."""
        with readable(file, "CSV"), open_bytes(file.path) as opened, self._reader(file, opened) as reader:
            _unique(file, reader.schema.names)
            return Look(dict(zip(reader.schema.names, reader.schema.types, strict=True)), None)

    def read(self, file: SourceFile, types: Mapping[str, Any], skip: int) -> Iterator[Read]:
        """Blocks of lines; raises TooNarrow where a value does not fit the type of its column, but a wider one."""
        with readable(file, "CSV"), open_bytes(file.path) as opened:
            try:
                with self._reader(file, opened, types) as reader:
                    done = 0
                    for batch in reader:
                        yield Read(batch, done, min(opened.tell() / max(file.size, 1), 1.0))
                        done += batch.num_rows
            except arrow().ArrowInvalid as error:
                self._explain(file, types, error)
                raise

    def _reader(self, file: SourceFile, opened: Any, types: Mapping[str, Any] | None = None) -> Any:
        pyarrow = arrow()
        from pyarrow import csv

        packed = compression(file.path)
        stream = pyarrow.CompressedInputStream(opened, packed) if packed else opened
        return csv.open_csv(
            stream,
            read_options=csv.ReadOptions(block_size=CSV_BLOCK),
            parse_options=csv.ParseOptions(delimiter="\t" if ".tsv" in file.path.lower() else ","),
            convert_options=csv.ConvertOptions(
                # A missing text is no level of its own; who means the letters NA writes "NA", in quotes.
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                column_types=dict(types or {}),
                include_columns=list(types or []),
            ),
        )

    def _explain(self, file: SourceFile, types: Mapping[str, Any], error: Exception) -> None:
        found = re.search(r"In CSV column #(\d+): .*?conversion error to (\S+): invalid value '(.*)'", str(error), re.S)
        if found is None:
            return
        column = list(self.look(file).types)[int(found[1])]
        wider = _wider(types[column], found[3])
        if wider is not None:
            raise TooNarrow(column, wider) from error
        raise DataError(
            f"column {column!r} of '{file.path}' has mixed types: its first values are {found[2]}, a later one is "
            f"{found[3][:60]!r}. Correct that value or leave it empty (missing), or leave the column out with "
            "columns=[...]."
        ) from error


def _wider(held: Any, value: str) -> Any:
    """The type for values of the type `held` and this text: a wider number, or any where there was no value yet."""
    pyarrow = arrow()
    empty = pyarrow.types.is_null(held)
    if not (empty or pyarrow.types.is_integer(held)):
        return None
    if empty and re.fullmatch(r"[+-]?\d{1,18}", value):
        return pyarrow.int64()
    try:
        float(value)
    except ValueError:
        return pyarrow.string() if empty else None
    return pyarrow.float64()


def _group_rows(opened: Any) -> tuple[int, ...]:
    return tuple(opened.metadata.row_group(i).num_rows for i in range(opened.num_row_groups))


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    types = arrow().types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


FORMATS: dict[str, Format] = {"parquet": Parquet(), "arrow": Arrow(), "csv": Csv()}
