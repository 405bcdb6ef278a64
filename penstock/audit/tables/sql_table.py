"""A table of a database: the offsets are counted by the database, and rows are fetched only where the counts do not
prove them.

Fast path: the database groups rows by blocks of offsets. A block whose rows are as many as its distinct offsets, and as
many as lie between its smallest and largest one, has each of them once. Only rows of other blocks are fetched.

Blocks of offsets, not hours: an hour with as many rows as records may have lost one and doubled another, its count
needs the whole topic read, and a table of offsets needs no column of a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.audit.columns import OffsetColumns, split_json_field
from penstock.audit.tables.table import BATCH_ROWS, NO_PARTITION, AuditedTable, OffsetRows, TableUnreadable, offset_rows
from penstock.landing.offset_runs import as_runs

BLOCK_OFFSETS = 1 << 16
"""Offsets of a block: a billion rows are 15,000 groups, and a block with a lost row fetches 65,536 rows."""
MAX_QUERIES = 16
"""Limit: ranges of offsets that are fetched by a query each; beyond, one query for all rows is quicker."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Differences between databases. ``connect`` opens a connection that reads from one snapshot and changes nothing;
    ``cursor`` returns a DB-API cursor that streams rows.
    """

    kind: str
    connect: Callable[[], Any]
    errors: tuple[type[Exception], ...]
    quote: str = '"'
    divide: str = "CAST({offset} AS BIGINT) / {size}"
    """Integer division of the offset."""
    cursor: Callable[[Any], Any] = lambda connection: connection.cursor()
    json_number: str = ""
    json_text: str = ""
    """Expressions of a field of a JSON column as a whole number, null if it is none, and as text. ``{column}`` is
    quoted; ``{path}`` is like ``$.a.b``, ``{steps}`` like ``a,b`` and ``{keys}`` like ``'a', 'b'``.
    """
    exact_text: str = "{column}"
    """Expression of a column of topics as a text without padding that distinguishes upper and lower case."""
    padding: Callable[[Sequence[Any]], str] = lambda column: ""
    """Returns the padding of a column, which DB-API describes: "" for none."""
    final: str = ""
    """Text after the name of the table, such as ClickHouse's FINAL, which merges rows before they are read."""
    sample: str = "{offset} IS NOT NULL"
    """Condition of rows of which any one shows whether all offsets are whole numbers."""


class SqlTable(AuditedTable):
    """A table or view of a database."""

    def __init__(self, dialect: Dialect, table: str) -> None:
        super().__init__()
        self.kind, self._dialect, self._name = dialect.kind, dialect, table
        self._table = self._quoted(table) + dialect.final
        with self._translated():
            self._connection = dialect.connect()

    def column_names(self) -> list[str]:
        """Return the columns."""
        return [column[0] for column in self._describe()]

    def paddings(self) -> Mapping[str, str]:
        paddings = {column[0]: self._dialect.padding(column) for column in self._describe()}
        return {name: characters for name, characters in paddings.items() if characters}

    def _describe(self) -> list[Any]:
        with self._cursor(f"SELECT * FROM {self._table} LIMIT 0") as cursor:  # noqa: S608 - quoted
            cursor.fetchmany(1)
            return list(cursor.description)

    def rows(self, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
        """Yield the offsets of all rows."""
        if not self._has_numbers(columns.offset):
            yield from self._fetch(columns, topic, "")
            return
        proved, unproved = self._count_blocks(columns, topic)
        if len(unproved) > MAX_QUERIES:
            yield from self._fetch(columns, topic, "")
            return
        yield from proved
        for condition in unproved:
            yield from self._fetch(columns, topic, f" WHERE {condition}")

    def _has_numbers(self, column: str) -> bool:
        name = self._expression(column)
        sample = self._dialect.sample.format(offset=name)
        query = f"SELECT {name} FROM {self._table} WHERE {sample} LIMIT 1"  # noqa: S608 - quoted
        with self._cursor(query) as cursor:
            return all(isinstance(row[0], int) for row in cursor.fetchmany(1))

    def _count_blocks(self, columns: OffsetColumns, topic: str) -> tuple[list[OffsetRows], list[str]]:
        """Return the rows of proved blocks, and conditions for the rows of all other ones."""
        offset = self._expression(columns.offset)
        keys = [self._expression(name, is_text=name == columns.topic) for name in columns.names[1:]]
        key_of = dict(zip(columns.names[1:], keys, strict=True))
        block = self._dialect.divide.format(offset=offset, size=BLOCK_OFFSETS)
        groups = ", ".join([*keys, "offset_block"])
        selected = ", ".join([*keys, f"{block} AS offset_block"])
        query = (
            f"SELECT {selected}, COUNT(*), COUNT(DISTINCT {offset}), MIN({offset}), MAX({offset}) "  # noqa: S608 - quoted
            f"FROM {self._table} GROUP BY {groups}"
        )
        proved, unproved = [], dict[str, list[tuple[int, int]]]()
        with self._cursor(query) as cursor:
            for *key, _, count, distinct, first, last in _all_rows(cursor):
                named = dict(zip(columns.names[1:], key, strict=True))
                row_topic = named.get(columns.topic, topic)
                if row_topic is not None and row_topic != topic:
                    proved.append(_other_topic(self._name, int(count)))
                elif first is None or row_topic is None:
                    proved.append(OffsetRows(self._name, np.zeros(0, np.int64), None, None, int(count)))
                elif count == distinct == last - first + 1:
                    proved.append(_block_rows(self._name, int(first), int(last), named, columns))
                else:
                    condition = " AND ".join(_equals(key_of[name], text) for name, text in named.items())
                    unproved.setdefault(condition, []).append((int(first), int(last) + 1))
        ranges = [
            f"{condition + ' AND ' if condition else ''}{offset} BETWEEN {begin} AND {end - 1}"
            for condition, spans in unproved.items()
            for begin, end in as_runs(spans).tolist()
        ]
        return proved, ranges

    def batches(self, names: Sequence[str], dictionaries: Sequence[str] = ()) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield columns of all rows."""
        for batch in self._select(names, ""):
            yield self._name, batch

    def _fetch(self, columns: OffsetColumns, topic: str, condition: str) -> Iterator[OffsetRows]:
        for batch in self._select(columns.names, condition, columns.topic):
            yield offset_rows(self._name, batch, columns, topic)

    def _select(self, names: Sequence[str], condition: str, topic: str = "") -> Iterator[pa.RecordBatch]:
        paddings = self.paddings()
        quoted = ", ".join(self._expression(name, is_text=name == topic) for name in names)
        with self._cursor(f"SELECT {quoted} FROM {self._table}{condition}") as cursor:  # noqa: S608 - quoted
            while batch := self._next_rows(cursor):
                columns = dict(zip(names, zip(*batch, strict=True), strict=True))
                for name in paddings.keys() & columns.keys():
                    columns[name] = tuple(_unpadded(entry, paddings[name]) for entry in columns[name])
                yield pa.RecordBatch.from_pydict({name: _array(column) for name, column in columns.items()})

    def _next_rows(self, cursor: Any) -> Any:
        with self._translated():
            return cursor.fetchmany(BATCH_ROWS)

    @contextlib.contextmanager
    def _cursor(self, query: str) -> Iterator[Any]:
        with self._translated(), contextlib.closing(self._dialect.cursor(self._connection)) as cursor:
            cursor.execute(query)
            yield cursor

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._dialect.errors as error:
            raise TableUnreadable(f"{self.kind}: {str(error).strip().partition(chr(10))[0]}") from None

    def _expression(self, name: str, *, is_text: bool = False) -> str:
        """Return a column, or a field of a JSON column, in SQL."""
        column, path = split_json_field(name)
        if not path:
            quoted = self._quoted(name)
            return self._dialect.exact_text.format(column=quoted) if is_text else quoted
        template = self._dialect.json_text if is_text else self._dialect.json_number
        if not template:
            raise TableUnreadable(f"{self.kind}: fields of JSON columns cannot be read")
        steps = path.split(".")[1:]
        keys = ", ".join(f"'{step}'" for step in steps)
        return template.format(column=self._quoted(column), path=path, steps=",".join(steps), keys=keys)

    def _quoted(self, name: str) -> str:
        """Quote an identifier; a dot separates schema and table, or a struct and its field."""
        quote = self._dialect.quote
        return ".".join(f"{quote}{part.replace(quote, quote * 2)}{quote}" for part in name.split("."))


def _all_rows(cursor: Any) -> Iterator[Any]:
    while batch := cursor.fetchmany(BATCH_ROWS):
        yield from batch


def _other_topic(name: str, count: int) -> OffsetRows:
    zeros = np.zeros(count, np.int64)
    return OffsetRows(name, zeros, zeros, zeros > 0, 0)


def _block_rows(name: str, first: int, last: int, key: Mapping[str, Any], columns: OffsetColumns) -> OffsetRows:
    offsets = np.arange(first, last + 1, dtype=np.int64)
    partition = None
    if columns.partition:
        number = key[columns.partition]
        try:
            partition = np.full(len(offsets), NO_PARTITION if number is None else int(number), np.int64)
        except ValueError:
            raise TableUnreadable(
                f"{name}: column {columns.partition!r} has {number!r}, which is not a partition"
            ) from None
    return OffsetRows(name, offsets, partition, None, 0)


def _equals(name: str, constant: Any) -> str:
    """Return a condition on a column. Strings are the audited topic, or a partition: without backslashes."""
    if constant is None:
        return f"{name} IS NULL"
    if isinstance(constant, int):
        return f"{name} = {constant}"
    text = str(constant).replace("'", "''")
    return f"{name} = '{text}'"


def _unpadded(entry: Any, characters: str) -> Any:
    if isinstance(entry, bytes):
        return entry.rstrip(characters.encode())
    return entry.rstrip(characters) if isinstance(entry, str) else entry


def _array(column: tuple[Any, ...]) -> Any:
    try:
        return pa.array(column)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if entry is None else str(entry) for entry in column])
