"""The formats that tables come in, each read by pyarrow in batches."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import accumulate
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

from lwa.errors import DataError, LwaError
from lwa.rows.store.places import SourceFile, explain_unreachable, find_compression, open_bytes

if TYPE_CHECKING:
    import pyarrow
    from pyarrow import csv, ipc, parquet

type ArrowType = pyarrow.DataType
type ArrowTypes = Mapping[str, ArrowType]
"""Types of columns by name."""
type ArrowBatch = pyarrow.RecordBatch
type IpcReader = ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader

READ_ROWS = 2**17
"""Rows per batch: large enough that Python's share vanishes, a few MiB in memory."""
PARQUET_BUFFER_BYTES = 2**20
"""Bytes of one column of a Parquet file per read."""
CSV_BLOCK_BYTES = 4 * 2**20
"""Bytes of a CSV file per block. The first block decides the types of its columns."""


class FileHeader(NamedTuple):
    """What a file says before its rows are read."""

    types: dict[str, ArrowType]
    rows: int | None  # if the file itself says
    groups: tuple[int, ...] = ()  # rows of each row group, of Parquet


class ReadBatch(NamedTuple):
    """Some rows, the number of the first of them, and the share of the file that has been read."""

    batch: ArrowBatch
    start: int
    share: float


class TooNarrow(LwaError):
    """A CSV column began with values of a narrower type than it goes on with."""

    def __init__(self, column: str, wider: ArrowType) -> None:
        super().__init__(column)
        self.column, self.wider = column, wider


class Format(Protocol):
    """A file format of tables."""

    def look(self, file: SourceFile) -> FileHeader:
        """Return names, types and, if the file says, the number of rows."""

    def read(self, file: SourceFile, types: ArrowTypes, skip: int) -> Iterator[ReadBatch]:
        """Yield the columns named in `types`, with as few of the first `skip` rows as the format allows."""


def load_arrow() -> ModuleType:
    """Import pyarrow, which takes a tenth of a second, only once a table is read."""
    import pyarrow

    return pyarrow


@contextmanager
def explain_unreadable(file: SourceFile, what: str) -> Iterator[None]:
    """Turn the errors of pyarrow into one that says what is wrong with a file."""
    with explain_unreachable(file.path):
        try:
            yield
        except OSError as error:
            # If pyarrow cannot read a file, it raises a plain OSError without a number.
            if error.errno is not None or type(error) is not OSError:
                raise
            raise _build_damage_error(file, what, error) from error
        except (load_arrow().ArrowException, UnicodeDecodeError, EOFError) as error:
            raise _build_damage_error(file, what, error) from error


def _build_damage_error(file: SourceFile, what: str, error: Exception) -> DataError:
    reason = " ".join(str(error).split())[:300].rstrip(".")
    what = f"'{file.path}' is no {what} file, or it is damaged or cut short"
    return DataError(f"{what}: {reason}. Write or copy it again.")


def _require_unique_in(file: SourceFile, names: Sequence[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"'{file.path}' has columns {repeated} more than once. Rename them so that each is unique.")


class Parquet:
    """Apache Parquet. Row groups that are skipped are not read."""

    def look(self, file: SourceFile) -> FileHeader:
        """Read the footer of the file."""
        with explain_unreadable(file, "Parquet"), open_bytes(file.path) as raw, self._reader(raw) as opened:
            schema = opened.schema_arrow
            _require_unique_in(file, schema.names)
            types = dict(zip(schema.names, schema.types, strict=True))
            return FileHeader(types, opened.metadata.num_rows, _count_group_rows(opened))

    def read(self, file: SourceFile, types: ArrowTypes, skip: int, stop: int | None = None) -> Iterator[ReadBatch]:
        """Yield batches of the row groups that have rows from `skip` to `stop` - 1."""
        texts = [name for name, kind in types.items() if is_text(kind)]
        with explain_unreadable(file, "Parquet"), open_bytes(file.path) as raw, self._reader(raw, texts) as opened:
            held = _count_group_rows(opened)
            ends = list(accumulate(held))
            total = max(sum(held), 1) if stop is None else stop
            groups = [i for i, end in enumerate(ends) if end > skip and end - held[i] < total]
            done = ends[groups[0]] - held[groups[0]] if groups else 0
            for batch in opened.iter_batches(READ_ROWS, row_groups=groups, columns=list(types)) if groups else ():
                start, done = done, done + batch.num_rows
                yield ReadBatch(batch, start, done / total)

    def _reader(self, raw: BinaryIO, texts: Sequence[str] = ()) -> "parquet.ParquetFile":
        from pyarrow.parquet import ParquetFile

        # Text is read as codes and their dictionary, which is how Parquet stores it, so that no string is made twice.
        # If buffered ahead, the bytes of all row groups stay in memory until the last is read; without a buffer,
        # those of a whole row group do, and some files have only one.
        return ParquetFile(raw, read_dictionary=list(texts), pre_buffer=False, buffer_size=PARQUET_BUFFER_BYTES)


class Arrow:
    """Arrow IPC: files (Feather) and streams."""

    def look(self, file: SourceFile) -> FileHeader:
        """Read the schema at the head of the file."""
        with explain_unreadable(file, "Arrow"), open_bytes(file.path) as opened, self._reader(opened) as reader:
            _require_unique_in(file, reader.schema.names)
            return FileHeader(dict(zip(reader.schema.names, reader.schema.types, strict=True)), None)

    def read(self, file: SourceFile, types: ArrowTypes, skip: int) -> Iterator[ReadBatch]:
        """Yield its record batches, cut to `READ_ROWS` rows."""
        with explain_unreadable(file, "Arrow"), open_bytes(file.path) as opened, self._reader(opened) as reader:
            count = getattr(reader, "num_record_batches", None)
            batches = reader if count is None else map(reader.get_batch, range(count))
            done = 0
            for i, batch in enumerate(batches):
                share = opened.tell() / max(file.size, 1) if count is None else (i + 1) / count
                for start in range(0, batch.num_rows, READ_ROWS):
                    yield ReadBatch(batch.select(list(types)).slice(start, READ_ROWS), done + start, share)
                done += batch.num_rows

    def _reader(self, opened: BinaryIO) -> AbstractContextManager[IpcReader]:
        from pyarrow import ipc

        magic = opened.read(6)
        opened.seek(0)
        return ipc.open_file(opened) if magic == b"ARROW1" else ipc.open_stream(opened)


class Csv:
    """Comma- or tab-separated text with a line of names. Types are those of the first block, or wider."""

    def look(self, file: SourceFile) -> FileHeader:
        """Read the first block of lines."""
        with explain_unreadable(file, "CSV"), open_bytes(file.path) as opened, self._reader(file, opened) as reader:
            _require_unique_in(file, reader.schema.names)
            return FileHeader(dict(zip(reader.schema.names, reader.schema.types, strict=True)), None)

    def read(self, file: SourceFile, types: ArrowTypes, skip: int) -> Iterator[ReadBatch]:
        """Yield blocks of lines; raise TooNarrow if a value does not fit the type of its column, but a wider one."""
        with explain_unreadable(file, "CSV"), open_bytes(file.path) as opened:
            try:
                with self._reader(file, opened, types) as reader:
                    done = 0
                    for batch in reader:
                        yield ReadBatch(batch, done, min(opened.tell() / max(file.size, 1), 1.0))
                        done += batch.num_rows
            except load_arrow().ArrowInvalid as error:
                self._explain(file, types, error)
                raise

    def _reader(self, file: SourceFile, opened: BinaryIO, types: ArrowTypes | None = None) -> "csv.CSVStreamingReader":
        pyarrow = load_arrow()
        from pyarrow import csv

        packed = find_compression(file.path)
        stream = pyarrow.CompressedInputStream(opened, packed) if packed else opened
        reading = csv.ReadOptions(block_size=CSV_BLOCK_BYTES)
        parsing = csv.ParseOptions(delimiter="\t" if ".tsv" in file.path.lower() else ",")
        # A missing text is no level of its own. The letters NA are text if they are in quotes, "NA".
        converting = csv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False,
            column_types=dict(types or {}), include_columns=list(types or []),
        )  # fmt: skip
        return csv.open_csv(stream, read_options=reading, parse_options=parsing, convert_options=converting)

    def _explain(self, file: SourceFile, types: ArrowTypes, error: Exception) -> None:
        found = re.search(r"In CSV column #(\d+): .*?conversion error to (\S+): invalid value '(.*)'", str(error), re.S)
        if found is None:
            return
        column = list(self.look(file).types)[int(found[1])]
        wider = _find_wider(types[column], found[3])
        if wider is not None:
            raise TooNarrow(column, wider) from error
        raise DataError(
            f"column {column!r} of '{file.path}' has mixed types: its first values are {found[2]}, a later one is "
            f"{found[3][:60]!r}. Correct that value or leave it empty (missing), or leave the column out with "
            "columns=[...]."
        ) from error


def _find_wider(held: ArrowType, value: str) -> ArrowType | None:
    """Return the type for values of the type `held` and this text: a wider number, or any if there was no value yet."""
    pyarrow = load_arrow()
    empty = pyarrow.types.is_null(held)
    if not (empty or pyarrow.types.is_integer(held)):
        return None
    if empty and re.fullmatch(r"[+-]?\d{1,18}", value):
        return pyarrow.int64()
    if is_numeral(value):
        return pyarrow.float64()
    return pyarrow.string() if empty else None


def is_numeral(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _count_group_rows(opened: "parquet.ParquetFile") -> tuple[int, ...]:
    return tuple(opened.metadata.row_group(i).num_rows for i in range(opened.num_row_groups))


def is_text(kind: ArrowType) -> bool:
    """Return whether an Arrow type is text."""
    types = load_arrow().types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


FORMATS: dict[str, Format] = {"parquet": Parquet(), "arrow": Arrow(), "csv": Csv()}
