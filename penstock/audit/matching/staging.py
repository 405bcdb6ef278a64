"""Records and rows side by side in a temporary DuckDB, as canonical text, so that they can be joined and compared.

Two contents are equal if their canonical texts are. The type of the table's column decides: numbers are compared as
numbers of that type, times as microseconds, bytes as the text that they encode. A JSON field that is absent equals
null. DuckDB spills to a temporary folder beyond its limit of memory, so a topic may be larger than memory.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.audit.columns import OffsetColumns
from penstock.audit.fields import BadField, FieldPair
from penstock.audit.matching.decoder import decode_values, load_decoder
from penstock.audit.offset_ranges import OffsetRanges
from penstock.audit.pace import Pace
from penstock.audit.source import AuditSource, SourceUnavailable
from penstock.audit.tables.table import AuditedTable, TableUnreadable, column_of, offset_rows, partition_value
from penstock.kafka.absent_offsets import ClassifiedRange
from penstock.landing.offset_runs import Runs, count_offsets, difference, is_inside

MEMORY = "1GB"
_NESTED = ("STRUCT", "MAP", "UNION")
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_WHOLE = r"'[-+]?[0-9]+(\.0*)?'"
Progress = Callable[[str], None]


class Staging:
    """Tables ``records`` (partition, position, micros, required, c0, c1, ...) and ``rows`` (partition, position, file,
    c0, c1, ...), whose columns c are the pairs. Load the rows first: their types decide how records are read.
    """

    def __init__(self, pairs: Sequence[FieldPair], decoder: str = "") -> None:
        self.pairs = list(pairs)
        self._decoder = load_decoder(decoder) if decoder else None
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-audit-")
        self._connection = duckdb.connect(str(Path(self._folder.name) / "audit.duckdb"))
        for setting, text in (
            ("memory_limit", MEMORY),
            ("temp_directory", f"{self._folder.name}/spilled"),
            ("TimeZone", "UTC"),
        ):
            self._connection.execute(f"SET {setting} = '{text}'")
        self._types: list[str] = []
        self._paddings: list[str] = []
        self._spans: Mapping[int, Runs] = {}
        self._read: defaultdict[int, OffsetRanges] = defaultdict(OffsetRanges)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._folder.cleanup()

    def query(self, sql: str) -> list[Any]:
        """Return the rows of a query."""
        return self._connection.execute(sql).fetchall()

    def execute(self, sql: str) -> None:
        """Run a statement."""
        self._connection.execute(sql)

    def arrays(self, sql: str) -> dict[str, Any]:
        """Return the columns of a query as numpy arrays."""
        return dict(self._connection.execute(sql).fetchnumpy())

    def load_rows(
        self,
        table: AuditedTable,
        columns: OffsetColumns | None,
        topic: str,
        selected: Mapping[int, Runs] | None,
        pace: Pace,
    ) -> None:
        """Load the columns of rows; with ``columns``, only rows whose partition and offset are ``selected``."""
        available = table.column_names()
        for pair in self.pairs:
            if pair.column not in available:
                raise BadField(f"the table has no column {pair.column!r}; its columns are {', '.join(available[:30])}")
        paddings = table.paddings()
        self._paddings = [paddings.get(pair.column, "") for pair in self.pairs]
        names = [*(pair.column for pair in self.pairs), *(columns.names if columns else ())]
        untyped = [f"c{index}" for index in range(len(self.pairs))]
        is_new = True
        for file, batch in table.batches(list(dict.fromkeys(names))):
            rows = self._rows(file, batch, columns, topic, selected)
            typed = [name for name in untyped if not pa.types.is_null(rows.schema.field(name).type)]
            if not is_new:
                self._set_types(rows, typed)
            untyped = [name for name in untyped if name not in typed]
            self._insert(f"loading {table.kind}", "rows", rows, "SELECT * FROM batch", TableUnreadable)
            is_new = False
            pace.advance(rows.num_rows)
        if is_new:
            fields = ", ".join(f"{name} VARCHAR" for name in untyped)
            self._connection.execute(
                f'CREATE TABLE rows ("partition" INTEGER, position BIGINT, file VARCHAR, {fields})'
            )
        else:
            for name in untyped:
                self._connection.execute(f"ALTER TABLE rows ALTER {name} TYPE VARCHAR USING NULL")
        types = self.query("SELECT data_type FROM duckdb_columns() WHERE table_name = 'rows' ORDER BY column_index")
        self._types = [name for (name,) in types[3:]]

    def _set_types(self, rows: pa.Table, names: Iterable[str]) -> None:
        """Give columns that no earlier file had the types that they have in ``rows``."""
        self._connection.register("batch", rows)
        for name in names:
            ((kind,),) = self.query(f"SELECT column_type FROM (DESCRIBE SELECT {name} FROM batch)")  # noqa: S608
            self._connection.execute(f"ALTER TABLE rows ALTER {name} TYPE {kind} USING NULL")

    def _rows(
        self,
        file: str,
        batch: pa.RecordBatch,
        columns: OffsetColumns | None,
        topic: str,
        selected: Mapping[int, Runs] | None,
    ) -> pa.Table:
        partitions: Any = np.zeros(batch.num_rows, np.int32)
        positions: Any = np.arange(batch.num_rows)
        if columns is not None:
            offsets = column_of(batch, columns.offset)
            if offsets is not None and offsets.null_count:
                batch = batch.filter(pc.is_valid(offsets))
            rows = offset_rows(file, batch, columns, topic)
            positions = rows.offset
            partitions = np.zeros(len(positions), np.int64) if rows.partition is None else np.maximum(rows.partition, 0)
            mask = np.zeros(len(positions), bool)
            for number, ranges in (selected or {}).items():
                mask |= is_inside(positions, ranges) & (partitions == number)
            if rows.is_of_topic is not None:
                mask &= rows.is_of_topic
            batch, partitions, positions = batch.filter(pa.array(mask)), partitions[mask], positions[mask]
        plain = [_content(file, batch, pair.column) for pair in self.pairs]
        return pa.table(
            {
                "partition": pa.array(partitions, pa.int32()),
                "position": pa.array(positions, pa.int64()),
                "file": pa.repeat(file, batch.num_rows),
                **{f"c{index}": content for index, content in enumerate(plain)},
            }
        )

    def load_records(
        self,
        source: AuditSource,
        spans: Mapping[int, Runs],
        required: Mapping[int, Runs],
        counts_tombstones: bool,
        progress: Progress,
    ) -> None:
        """Load the records at ``spans``; those at ``required`` that are not tombstones must have a row."""
        contents = ", ".join(
            f"{self._unpadded(index, _content_of_record(pair, index, name))} AS c{index}"
            for index, (pair, name) in enumerate(zip(self.pairs, self._types, strict=True))
        )
        query = (
            'SELECT "partition", position, micros, required, '  # noqa: S608 - parsed fields
            f"{contents} FROM (SELECT *, {'decoded' if self._decoder else 'try(decode(value))'} AS json FROM batch)"
        )
        loaded = 0
        pace = Pace("records", sum(map(count_offsets, spans.values())), progress)
        self._spans = spans
        for partition, ranges in spans.items():
            for batch in source.read(partition, ranges):
                offsets = batch.column("offset").to_numpy()
                self._read[partition].add(offsets)
                is_required = is_inside(offsets, required[partition])
                if not counts_tombstones:
                    is_required &= batch.column("value").is_valid().to_numpy(zero_copy_only=False)
                columns: dict[str, Any] = {
                    "partition": pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows),
                    "position": batch.column("offset"),
                    "micros": batch.column("timestamp").cast(pa.int64()),
                    "required": pa.array(is_required),
                    "key": batch.column("key"),
                    "value": batch.column("value"),
                }
                if self._decoder:
                    columns["decoded"] = decode_values(self._decoder, batch.column("value"))
                for index, pair in enumerate(self.pairs):
                    if pair.header:
                        columns[f"h{index}"] = pc.map_lookup(batch.column("headers"), pair.header, "last")
                self._insert(f"loading {source.topic}", "records", pa.table(columns), query, SourceUnavailable)
                loaded += batch.num_rows
                pace.advance(batch.num_rows)
        if not loaded:
            fields = ", ".join(f"c{index} VARCHAR" for index in range(len(self.pairs)))
            self._connection.execute(
                'CREATE TABLE records ("partition" INTEGER, position BIGINT, micros BIGINT, required BOOLEAN, '
                f"{fields})"
            )

    def unread(self, source: AuditSource, partition: int) -> Sequence[ClassifiedRange]:
        """Return why offsets of a partition gave no record to ``load_records``."""
        return source.classify(partition, difference(self._spans[partition], self._read[partition].ranges))

    def _insert(self, purpose: str, name: str, batch: pa.Table, query: str, failure: type[Exception]) -> None:
        self._connection.register("batch", batch)
        try:
            is_new = not self.query(f"SELECT 1 FROM duckdb_tables() WHERE table_name = '{name}'")  # noqa: S608
            self._connection.execute(f"CREATE TABLE {name} AS {query}" if is_new else f"INSERT INTO {name} {query}")
        except duckdb.Error as error:
            raise failure(f"{purpose} for comparison failed: {str(error).partition(chr(10))[0]}") from None

    def is_nested(self, index: int) -> bool:
        """Report whether column ``index`` has parts, such as a list."""
        return _is_nested(self._types[index])

    def has_content(self, index: int) -> bool:
        """Report whether any record has field ``index``."""
        return bool(self.query(f"SELECT count(c{index}) > 0 FROM records")[0][0])  # noqa: S608 - a number

    def require_plain(self, indices: Iterable[int]) -> None:
        """Raise BadField if one of the columns is nested."""
        for index in indices:
            if self.is_nested(index):
                kind = self._types[index].partition("(")[0]
                raise BadField(f"column {self.pairs[index].column!r} is a {kind}, which cannot be compared")

    def content_of_row(self, index: int) -> str:
        """Return the expression for the canonical text of column ``index`` of ``rows``."""
        return _content_of_row(f"rows.c{index}", self._types[index], self.pairs[index])

    def _unpadded(self, index: int, text: str) -> str:
        """Return the text of a record without the padding of its column, as the database compares it."""
        characters = " || ".join(f"chr({ord(character)})" for character in self._paddings[index])
        return f"rtrim({text}, {characters})" if characters else text

    def hour_of_row(self, index: int) -> str:
        """Return the expression for the hour since the epoch of column ``index`` of ``rows``; null if none."""
        column, name = f"rows.c{index}", self._types[index]
        micros = f"epoch_us({column}::TIMESTAMP)" if _is_time(name) else _micros(f"CAST({column} AS VARCHAR)")
        return f"({micros}) // 3600000000"

    def hour_of_record(self, index: int) -> str:
        """Return the expression for the hour since the epoch of field ``index`` of ``records``; null if none."""
        return f"({_micros(f'records.c{index}')}) // 3600000000"


def _is_nested(name: str) -> bool:
    """Report whether a type of DuckDB has parts, such as a list."""
    return name.startswith(_NESTED) or name.endswith("]")


def _content(file: str, batch: pa.RecordBatch, name: str) -> Any:
    """Return a column in a type that DuckDB reads exactly: times without a zone, dictionaries as their contents."""
    column = column_of(batch, name)
    if column is None:
        # Hive and Delta keep the columns that a table is partitioned by in the paths of its files.
        text = partition_value(file, name)
        return pa.nulls(batch.num_rows) if text is None else pa.repeat(text, batch.num_rows)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type):
        # Limit: the year 2262 for nanoseconds; a coarser time keeps its range.
        return column.cast(pa.timestamp("us"), safe=False)
    return column


def _is_time(name: str) -> bool:
    return name.startswith("TIMESTAMP")


def _text(column: str) -> str:
    return f"coalesce(try(decode({column})), hex({column}))"


def _micros(text: str) -> str:
    """Return the microseconds of a text: an ISO time, or an epoch number whose size says its unit.

    Numbers from 1e11 on are milliseconds, from 1e14 on microseconds, and from 1e17 on nanoseconds.
    """
    number = f"TRY_CAST({text} AS DOUBLE)"
    # DuckDB takes a zone behind a blank, as Ruby writes it, for a name.
    joined = rf"regexp_replace({text}, ' ([+-][0-9]{{2}}:?[0-9]{{2}})$', '\1')"
    return (
        # DuckDB drops the zone of a text that becomes a TIMESTAMP. A text without a zone is in that of the connection.
        f"CASE WHEN {number} IS NULL THEN epoch_us(TRY_CAST({joined} AS TIMESTAMPTZ)) "
        f"WHEN abs({number}) < 1e11 THEN CAST({number} * 1000000 AS BIGINT) "
        f"WHEN abs({number}) < 1e14 THEN CAST({number} * 1000 AS BIGINT) "
        f"WHEN abs({number}) < 1e17 THEN CAST({number} AS BIGINT) "
        f"ELSE TRY_CAST(TRY_CAST({text} AS HUGEINT) // 1000 AS BIGINT) END"
    )


def _content_of_row(column: str, name: str, pair: FieldPair) -> str:
    if name == "BLOB":
        return _text(column)
    if _is_time(name):
        return f"CAST(epoch_us({column}::TIMESTAMP) AS VARCHAR)"
    if pair.field == "timestamp":
        return f"CAST({_micros(f'CAST({column} AS VARCHAR)')} AS VARCHAR)"
    return f"CAST({column} AS VARCHAR)"


def _content_of_record(pair: FieldPair, index: int, name: str) -> str:
    if pair.field == "timestamp":
        return "CAST(micros AS VARCHAR)"
    if pair.field in ("key", "value"):
        text = _text(pair.field)
    elif pair.header:
        text = _text(f"h{index}")
    else:
        path = pair.field.replace("'", "''")
        text = f"CASE WHEN json_valid(json) THEN json_extract_string(json, '{path}') END"
    if _is_time(name):
        return f"coalesce(CAST({_micros(text)} AS VARCHAR), {text})"
    if name in _NUMBERS:
        # A cast alone would round 17.6 to 18.
        whole = f"CASE WHEN regexp_full_match({text}, {_WHOLE}) THEN TRY_CAST({text} AS HUGEINT) END"
        return f"coalesce(CAST({whole} AS VARCHAR), {text})"
    if name in ("VARCHAR", "BLOB") or _is_nested(name):
        return text
    return f"coalesce(CAST(TRY_CAST({text} AS {name}) AS VARCHAR), {text})"
