"""The answer of each command of Flight SQL: a statement's rows, or a description of the tables.

No call depends on an earlier one: tickets and prepared statements carry the statement itself (``commands.Handle``).
"""

from __future__ import annotations

import datetime as dt
import itertools
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight

from penstock.slogd.errors import BadRequest, Exhausted
from penstock.sql.catalog import read_catalog
from penstock.sql.flight_sql.commands import Command, Handle, parse_command
from penstock.sql.postgres.access import Engine
from penstock.sql.postgres.catalog.system_catalog import DATABASE, SystemCatalog
from penstock.sql.postgres.catalog.system_tables import SCHEMA
from penstock.sql.postgres.parameters import quoted
from penstock.sql.postgres.session.preparation import Preparation, text_of_enums
from penstock.sql.postgres.statements.statement import Statement, split
from penstock.sql.postgres.statements.tokens import Token
from penstock.sql.query import TOPICS, Query

SERVER_NAME = "Penstock"
TABLE_TYPE = "TABLE"
_NAME, _VERSION, _ARROW_VERSION, _READ_ONLY, _SQL, _SUBSTRAIT, _TRANSACTIONS, _CANCEL = 0, 1, 2, 3, 4, 5, 8, 9
_QUOTE_CHARACTER = 504
"""Numbers of Flight SQL's server information."""
_INFO_SCHEMA = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field(
            "value",
            pa.dense_union(
                [
                    pa.field("string_value", pa.string()),
                    pa.field("bool_value", pa.bool_()),
                    pa.field("bigint_value", pa.int64()),
                    pa.field("int32_bitmask", pa.int32()),
                    pa.field("string_list", pa.list_(pa.string())),
                    pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
                ]
            ),
            nullable=False,
        ),
    ]
)
_CATALOGS = pa.schema([pa.field("catalog_name", pa.string(), nullable=False)])
_SCHEMAS = pa.schema([pa.field("catalog_name", pa.string()), pa.field("db_schema_name", pa.string(), nullable=False)])
_TABLE_TYPES = pa.schema([pa.field("table_type", pa.string(), nullable=False)])
_TABLES = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("table_type", pa.string(), nullable=False),
    ]
)
_TABLES_WITH_SCHEMA = _TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))


class Answer:
    """The schema of an answer, and its batches. ``release`` gives back what the answer holds; it is called once."""

    def __init__(
        self,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self.schema, self._batches, self._release = schema, batches, release
        self._lock, self._is_released = threading.Lock(), False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches, each computed by the caller's thread, and release the answer at the end."""
        try:
            while True:
                # One thread computes while another may end the call: the query is not closed under its hands.
                with self._lock:
                    batch = None if self._is_released else next(self._batches, None)
                if batch is None:
                    return
                yield batch
        finally:
            self.close()

    def close(self) -> None:
        """Release the answer, once a batch that is being computed is done or interrupted. On any thread."""
        with self._lock:
            if not self._is_released:
                self._is_released = True
                self._release()


class Service:
    """Answers of one client, who may read some topics (None: all). Used by one call."""

    def __init__(self, engine: Engine, readable: frozenset[str] | None, user: str, cancelled: threading.Event) -> None:
        self._engine, self._cancelled = engine, cancelled
        self._tables = engine.tables(readable)
        self._catalog = SystemCatalog(read_catalog(self._tables), user)

    def schema_of_command(self, command: Command) -> pa.Schema:
        """Return the schema of a command's answer, without running it. Raises BadRequest, StatementFailed."""
        if (handle := _handle_of(command)) is not None:
            return self.schema_of(handle)
        return self._metadata(command).schema

    def answer(self, command: Command) -> Answer:
        """Run a command. Raises BadRequest, Exhausted, StatementFailed, PenstockError."""
        if (handle := _handle_of(command)) is not None:
            return self._run(handle)
        table = self._metadata(command)
        return Answer(table.schema, iter(table.to_batches()))

    def schema_of(self, handle: Handle) -> pa.Schema:
        """Return the schema of a statement's rows, without running it. Raises StatementFailed."""
        statement = _statement(handle.text)
        preparation = Preparation(self._catalog)
        try:
            # Parameters that are not bound yet are null.
            literals = handle.literals or ["NULL"] * statement.parameters
            return preparation.arrow_schema(preparation.translate(statement, literals))
        finally:
            preparation.close()

    def _run(self, handle: Handle) -> Answer:
        schema = self.schema_of(handle)
        preparation, config = Preparation(self._catalog), self._engine.config
        try:
            translation = preparation.translate(_statement(handle.text), handle.literals)
            text = translation.text
            if not self._engine.running.acquire(timeout=config.timeout):
                raise Exhausted("too many queries run at once (sql.max_queries); try again")
            try:
                query = Query(
                    self._tables,
                    text,
                    timeout_s=config.timeout,
                    cancelled=self._cancelled,
                    memory_bytes=config.memory,
                    prepare=lambda connection: preparation.install(connection, text),
                    is_verbatim=translation.is_verbatim,
                )
            except BaseException:
                self._engine.running.release()
                raise
        finally:
            preparation.close()

        def release() -> None:
            query.close()
            self._engine.running.release()

        return Answer(schema, self._batches(query, schema), release)

    def _batches(self, query: Query, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        max_rows, rows = self._engine.config.max_rows, 0
        for batch in query.stream(text_of_enums, max_rows + 1):
            rows += batch.num_rows
            if rows > max_rows:
                raise Exhausted(f"the answer has more than {max_rows:,} rows (sql.max_rows): add a LIMIT")
            arrays = [array.cast(field.type) for array, field in zip(batch.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _metadata(self, command: Command) -> pa.Table:
        match command.name:
            case "CommandGetCatalogs":
                return pa.table({"catalog_name": [DATABASE]}, schema=_CATALOGS)
            case "CommandGetDbSchemas":
                matches = _pattern(command.text(2))
                names = [name for name in (SCHEMA, TOPICS) if matches(name) and command.text(1) in (None, DATABASE)]
                columns = {"catalog_name": [DATABASE] * len(names), "db_schema_name": names}
                return pa.table(columns, schema=_SCHEMAS)
            case "CommandGetTableTypes":
                return pa.table({"table_type": [TABLE_TYPE]}, schema=_TABLE_TYPES)
            case "CommandGetTables":
                return self._table_list(command)
            case "CommandGetSqlInfo":
                return _server_information(command)
        raise BadRequest(f"{command.name} is not supported")

    def _table_list(self, command: Command) -> pa.Table:
        in_schema, is_named = _pattern(command.text(2)), _pattern(command.text(3))
        types, with_schema = command.text_list(4), (command.numbers.get(5) or [0])[-1] != 0
        is_ours = command.text(1) in (None, DATABASE) and (not types or TABLE_TYPE in types)
        relations = [
            relation
            for relation in self._catalog.relations
            if is_ours and in_schema(relation.schema) and is_named(relation.name)
        ]
        columns: dict[str, list[Any]] = {
            "catalog_name": [DATABASE] * len(relations),
            "db_schema_name": [relation.schema for relation in relations],
            "table_name": [relation.name for relation in relations],
            "table_type": [TABLE_TYPE] * len(relations),
        }
        if not with_schema:
            return pa.table(columns, schema=_TABLES)
        handles = [Handle(f'FROM "{relation.schema}"."{relation.name}"') for relation in relations]
        columns["table_schema"] = [self.schema_of(handle).serialize().to_pybytes() for handle in handles]
        return pa.table(columns, schema=_TABLES_WITH_SCHEMA)


def command_of(descriptor: bytes) -> Command:
    """Return the command of a descriptor. Raises BadRequest."""
    return parse_command(flight.FlightDescriptor.deserialize(descriptor).command or b"")


def bound(handle: Handle, batch: pa.RecordBatch) -> Handle:
    """Return a statement with the parameters of a batch's only row. Raises BadRequest."""
    batch.validate(full=True)
    if batch.num_rows != 1:
        raise BadRequest(f"one row of parameters is supported, not {batch.num_rows:,}")
    return Handle(handle.text, tuple(_literal(column[0].as_py()) for column in batch.columns))


def _handle_of(command: Command) -> Handle | None:
    if command.name == "CommandStatementQuery":
        return Handle(command.text(1) or "")
    if command.name in ("CommandPreparedStatementQuery", "TicketStatementQuery"):
        return Handle.parse((command.texts.get(1) or [b""])[-1])
    return None


def _statement(text: str) -> Statement:
    statements = split(text)
    if len(statements) != 1:
        raise BadRequest("one statement is needed")
    return _numbered(statements[0])


def _numbered(statement: Statement) -> Statement:
    """Return a statement with numbered parameters in place of question marks, which ADBC's clients may write."""
    numbers = itertools.count(1)
    return Statement(
        [
            Token("parameter", f"${next(numbers)}", token.position) if token.text == "?" else token
            for token in statement.tokens
        ]
    )


def _pattern(pattern: str | None) -> Callable[[str], bool]:
    """Return whether a name matches a pattern of LIKE; None matches all."""
    # RE2, which Arrow uses, takes linear time: a pattern may have many wildcards.
    return lambda name: pattern is None or bool(pc.match_like(pa.scalar(name), pattern).as_py())


def _server_information(command: Command) -> pa.Table:
    texts = {_NAME: SERVER_NAME, _VERSION: duckdb.__version__, _ARROW_VERSION: pa.__version__, _QUOTE_CHARACTER: '"'}
    flags = {_READ_ONLY: True, _SQL: True, _SUBSTRAIT: False, _CANCEL: False}
    requested = {*command.number_list(1)}
    numbers = [number for number in (*texts, *flags) if not requested or number in requested]
    children: list[Any] = [
        pa.array([texts[number] for number in numbers if number in texts], pa.string()),
        pa.array([flags[number] for number in numbers if number in flags], pa.bool_()),
    ]
    kinds = [0 if number in texts else 1 for number in numbers]
    offsets = [kinds[:index].count(kind) for index, kind in enumerate(kinds)]
    union = _INFO_SCHEMA.field("value").type
    children += [pa.array([], union.field(index).type) for index in range(2, union.num_fields)]
    names = [union.field(index).name for index in range(union.num_fields)]
    values = pa.UnionArray.from_dense(pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), children, names)
    return pa.Table.from_arrays([pa.array(numbers, pa.uint32()), values], schema=_INFO_SCHEMA)


def _literal(value: Any) -> str:
    """Return a parameter as DuckDB's literal. Raises BadRequest."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return f"({value:f})" if isinstance(value, Decimal) else f"({value})"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case bytes():
            return f"unhex('{value.hex()}')"
        case dt.datetime():
            return f"CAST('{value.isoformat(' ')}' AS {'TIMESTAMPTZ' if value.tzinfo else 'TIMESTAMP'})"
        case dt.date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case dt.time():
            return f"CAST('{value.isoformat()}' AS TIME)"
        case str():
            return quoted(value)
        case list():
            return f"[{', '.join(map(_literal, value))}]"
    raise BadRequest(f"a parameter of this type is not supported: {type(value).__name__}")
