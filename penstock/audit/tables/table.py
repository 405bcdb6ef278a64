"""The methods that an audit needs of a table, and the choice of their implementation by a table's address."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.audit.columns import OffsetColumns, is_json_field, split_json_field, stored_columns
from penstock.audit.offset_ranges import OffsetRanges
from penstock.audit.source import AuditSource
from penstock.audit.tables.address import is_iceberg
from penstock.errors import PenstockError
from penstock.landing.offset_runs import NO_RUNS, Offsets, Runs, difference, intersection

BATCH_ROWS = 1 << 20
"""Rows in memory at once: 8 MiB per column."""
EXTRAS = {
    "iceberg": "audit-iceberg",
    "postgresql": "audit-postgresql",
    "postgres": "audit-postgresql",
    "mysql": "audit-mysql",
    "mariadb": "audit-mysql",
    "clickhouse": "audit-clickhouse",
    "clickhouses": "audit-clickhouse",
    "chdb": "audit-clickhouse",
}
"""Extra of the package that installs the driver of a table, by the scheme of its address."""
PLUGINS = "penstock_audit_tables"
"""Group of entry points of other packages: functions of an address and options that return a table, by scheme."""
WHOLE_NUMBER = "^[0-9]{1,18}$"
"""Texts that are offsets or partitions. Limit: 18 digits always fit into 64 bits."""
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
NO_PARTITION = int(np.iinfo(np.int64).min)
"""Partition of a row whose column of partitions is null or absent."""
Opened = TypeVar("Opened")
Mask = npt.NDArray[np.bool_]
_HIVE_VALUE = re.compile(r"([^/=]+)=([^/]*)/")


class TableUnreadable(PenstockError, RuntimeError):
    """The table cannot be read: the audit cannot be decided."""


class FileIsGone(TableUnreadable):
    """A file of the table does not exist."""


class OffsetRows(NamedTuple):
    """Rows of one file, shape (n,) each. Rows without an offset or topic are absent.

    ``partition`` is None if the audit knows no such column, and NO_PARTITION for a null. ``without_offset``: number of
    rows that may be of the audited topic and whose offset or topic is null.
    """

    file: str
    offset: Offsets
    partition: Offsets | None
    is_of_topic: Mask | None
    without_offset: int


Missing = Mapping[int, Runs]
"""Offsets that no row has, by partition."""

Reasons = Mapping[int, Mapping[str, Runs]]
"""Offsets that need no row, by partition and reason."""


class Loss(NamedTuple):
    """Rows that a commit removed: ``commit`` names version, operation, engine and time."""

    commit: str
    partition: int
    ranges: Runs


class Orphan(NamedTuple):
    """A file of no version that holds missing rows of a partition."""

    file: str
    partition: int
    rows: int


class AuditedTable(ABC):
    """A table at one version. Methods raise TableUnreadable.

    A kind of table without a history and without files of its own needs only ``column_names`` and ``batches``.
    """

    kind: str
    version = ""
    """Identifies the version that is read, for the report; empty if the kind of table has none."""

    def __init__(self) -> None:
        self.lost_files: list[str] = []
        """Files that belong to the table and do not exist, as far as it has been read."""
        self.unsearched: list[str] = []
        """Causes that were not searched, each with the reason; the verdict does not depend on them."""

    @abstractmethod
    def column_names(self) -> list[str]:
        """Return the columns, dotted for nested fields."""

    def paddings(self) -> Mapping[str, str]:
        """Return the characters that pad a column of fixed length; ``batches`` yields texts without them."""
        return {}

    @abstractmethod
    def batches(self, names: Sequence[str], dictionaries: Sequence[str] = ()) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the columns of all rows, and the file of each batch; a file may lack columns.

        ``dictionaries``: columns with few distinct strings, which may be dictionaries.
        """

    def rows(self, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
        """Yield the offsets of all rows."""
        for file, batch in self.batches(stored_columns(columns.names), columns.dictionaries):
            yield offset_rows(file, batch, columns, topic)

    def commits_of(self, files: set[str]) -> dict[str, str]:
        """Return the commit that added each file, for kinds of tables with a history."""
        return {}

    def explain(self, source: AuditSource, columns: OffsetColumns, missing: Missing) -> Reasons:
        """Return the missing offsets that need no row, by partition and reason."""
        return {}

    def losses(self, columns: OffsetColumns, topic: str, missing: Missing) -> list[Loss]:
        """Return the commits that removed rows with these offsets, the newest first."""
        return []

    def orphans(self, columns: OffsetColumns, topic: str, missing: Missing) -> list[Orphan]:
        """Return files that hold missing rows but belong to no version of the table."""
        return []


class PartitionOffsets:
    """The offsets of rows by partition. Rows without a partition belong to the only partition of the topic."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self._offsets = {partition: OffsetRanges() for partition in partitions}

    def add(self, rows: OffsetRows) -> None:
        """Add rows of the audited topic."""
        for partition, offsets in self._offsets.items():
            mask = rows.is_of_topic
            if rows.partition is not None:
                is_of_partition = rows.partition == partition
                mask = is_of_partition if mask is None else mask & is_of_partition
            offsets.add(rows.offset if mask is None else rows.offset[mask])

    def among(self, missing: Missing) -> Missing:
        """Return the offsets that are in ``missing``, of partitions that have any."""
        common = {
            partition: intersection(self._offsets[partition].ranges, ranges)
            for partition, ranges in missing.items()
            if partition in self._offsets
        }
        return {partition: ranges for partition, ranges in common.items() if len(ranges)}


def remove_offsets(missing: Missing, removed: Missing) -> Missing:
    """Return ``missing`` without the offsets of ``removed``, and without partitions that have none left."""
    remaining = {
        partition: difference(ranges, removed.get(partition, NO_RUNS)) for partition, ranges in missing.items()
    }
    return {partition: ranges for partition, ranges in remaining.items() if len(ranges)}


@contextlib.contextmanager
def translate_errors(subject: object, *errors: type[Exception]) -> Iterator[None]:
    """Turn errors of files, stores, Arrow and ``errors`` into TableUnreadable, with the first line of their text."""
    translated: tuple[type[Exception], ...] = (PenstockError, OSError, pa.ArrowException, *errors)
    try:
        yield
    except TableUnreadable:
        raise
    except FileNotFoundError as error:
        raise FileIsGone(f"{subject} does not exist: {str(error).partition(chr(10))[0]}") from None
    except translated as error:
        raise TableUnreadable(f"{subject} cannot be read: {str(error).partition(chr(10))[0]}") from None


def with_dictionaries(open_reader: Callable[[list[str]], Opened], dictionaries: Sequence[str]) -> Opened:
    """Open a Parquet file with columns as dictionaries, if it has them."""
    try:
        return open_reader(list(dictionaries))
    except KeyError:  # the topic is in the file's path, or nowhere
        return open_reader([])


def open_table(address: str, options: Mapping[str, str] | None = None, version: str = "") -> AuditedTable:
    """Return the table at a folder, URL or database address; ``options``: of the object store or the catalog.

    ``version``: an earlier version to read, for tables with versions.

    Raises TableUnreadable, also if a driver is not installed.
    """
    try:
        return _open_table(address, options or {}, int(version) if version.isdigit() else None)
    except ModuleNotFoundError as error:
        scheme = "iceberg" if is_iceberg(address) else address.partition("://")[0]
        extra = EXTRAS.get(scheme, "sql,kafka")
        raise TableUnreadable(f"this table needs {error.name}: pip install 'penstock-pipe[{extra}]'") from None


def _open_table(address: str, options: Mapping[str, str], version: int | None) -> AuditedTable:
    scheme = address.partition("://")[0] if "://" in address else ""
    for entry in entry_points(group=PLUGINS, name=scheme):
        opened: AuditedTable = entry.load()(address, options)
        return opened
    if is_iceberg(address):
        from penstock.audit.tables.iceberg import IcebergTable

        return IcebergTable(address, options, version)
    from penstock.audit.tables.delta import is_delta, open_delta, table_path
    from penstock.audit.tables.parquet_folder import ParquetFolder
    from penstock.audit.tables.sql_databases import DATABASES, open_database

    if scheme in DATABASES:
        return open_database(address, options)
    if is_delta(address, options):
        return open_delta(address, options, version)
    return ParquetFolder(table_path(address, options))


def offset_rows(file: str, rows: pa.RecordBatch, columns: OffsetColumns, topic: str) -> OffsetRows:
    """Return the offsets in a batch.

    A column that is not in the file has one value, in the file's path, as Hive writes partitioned tables. A column that
    is in neither is null: it was added to the table after the file.
    """
    offset = _whole_numbers(_column_or_path(file, rows, columns.offset), columns.offset)
    topics = _equals_topic(_column_or_path(file, rows, columns.topic), topic) if columns.topic else None
    # Fast path: without nulls, which is the rule, no column is copied.
    keep = None
    if offset.null_count or (topics is not None and topics.null_count):
        keep = pc.is_valid(offset).to_numpy(zero_copy_only=False)
        if topics is not None:
            # A row of another topic needs no offset.
            is_other = pc.fill_null(pc.invert(topics), False).to_numpy(zero_copy_only=False)
            keep = (keep & pc.is_valid(topics).to_numpy(zero_copy_only=False)) | is_other
    partition = None
    if columns.partition:
        numbers = _whole_numbers(_column_or_path(file, rows, columns.partition), columns.partition)
        partition = _as_numbers(numbers, keep, file, columns.partition, null=NO_PARTITION)
    is_of_topic = None
    if topics is not None:
        is_of_topic = pc.fill_null(topics, False).to_numpy(zero_copy_only=False)
        is_of_topic = is_of_topic if keep is None else is_of_topic[keep]
    offsets = _as_numbers(offset, keep, file, columns.offset)
    return OffsetRows(file, offsets, partition, is_of_topic, rows.num_rows - len(offsets))


def partition_value(file: str, name: str) -> str | None:
    """Return the value of a column in a file's path, as Hive and Delta write partitioned tables; None if absent."""
    text = dict(_HIVE_VALUE.findall(file)).get(name)
    return None if text in (None, HIVE_NULL) else unquote(str(text))


def _column_or_path(file: str, rows: pa.RecordBatch, name: str) -> Any:
    """Return a column, or its value in the file's path, or nulls."""
    column = column_of(rows, name)
    if column is None:
        column = pa.repeat(pa.scalar(partition_value(file, name), pa.string()), rows.num_rows)
    return column


def _equals_topic(topics: Any, topic: str) -> Any:
    """Return whether each row is of the topic; null for a null."""
    if pa.types.is_dictionary(topics.type):
        # Fast path: one comparison per distinct topic.
        return pc.equal(topics.dictionary.cast(pa.string()), pa.scalar(topic)).take(topics.indices)
    return pc.equal(topics.cast(pa.string()), pa.scalar(topic))


def column_of(rows: pa.RecordBatch, name: str) -> Any:
    """Return a column by its dotted name, or the texts of a JSON field; None if the batch lacks it."""
    if name in rows.schema.names:
        return rows.column(rows.schema.get_field_index(name))
    if is_json_field(name):
        stored, path = split_json_field(name)
        texts = column_of(rows, stored)
        return None if texts is None else _json_field(texts, path)
    head, *fields = name.split(".")
    if head not in rows.schema.names:
        return None
    column: Any = rows.column(rows.schema.get_field_index(head))
    for field in fields:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(field) < 0:
            return None
        column = pc.struct_field(column, field)
    return column


def _json_field(texts: pa.Array[Any], path: str) -> Any:
    """Return a field of JSON texts as text; null where a text is not JSON or lacks it."""
    import duckdb

    batch = pa.table({"json": texts.cast(pa.string())})  # noqa: F841 - the query reads it
    with duckdb.connect(config={"threads": 1}) as connection:
        query = "SELECT CASE WHEN json_valid(json) THEN json_extract_string(json, ?) END FROM batch"
        return connection.sql(query, params=[path]).to_arrow_table().column(0).combine_chunks()


def _whole_numbers(texts: Any, name: str) -> Any:
    """Return the texts of a JSON field, null where one is not a whole number; other columns unchanged."""
    if not is_json_field(name) or not pa.types.is_string(texts.type):
        return texts
    is_whole = pc.match_substring_regex(texts, WHOLE_NUMBER)
    return pc.if_else(is_whole, texts, pa.scalar(None, texts.type))


def _as_numbers(column: Any, keep: Mask | None, file: str, name: str, null: int = 0) -> Offsets:
    try:
        column = column.cast(pa.int64())
        filled = pc.fill_null(column, null) if column.null_count else column
        numbers: Offsets = filled.to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableUnreadable(f"{file}: column {name!r} has no whole numbers: {error}") from None
    return numbers if keep is None else numbers[keep]


def dotted_names(schema: pa.Schema) -> list[str]:
    """Return the names of all columns and nested fields."""
    return [name for field in schema for name in _field_names(field, "")]


def _field_names(field: Any, prefix: str) -> Iterator[str]:
    yield prefix + field.name
    if pa.types.is_struct(field.type):
        for inner in field.type:
            yield from _field_names(inner, f"{prefix}{field.name}.")
