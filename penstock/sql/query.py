"""A query over the tables and the unlanded part of the log, as views of DuckDB with the names that Spark uses.

Invariant: a message of the log is in the answer once, either from the table or from the log, even if batches are
committed during the query. A query reads nothing but the data: DuckDB's access to other files and its settings are
locked before the user's text runs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import duckdb
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.landing.event_rules import VIEWS
from penstock.landing.from_kafka.rows import LOG_ROW
from penstock.landing.rows.engine import sql_literal
from penstock.landing.rows.unique_annotations import with_unique_annotations
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import BATCH_ROWS, TableFile, copy_live_rows
from penstock.landing.table_schema import LANDED, VIEW_COLUMNS
from penstock.landing.topics.topic_store import Range
from penstock.landing.typed.columns import LANDED_COLUMNS, TypedTable
from penstock.proof.watermarks import WATERMARKS, kept_watermarks
from penstock.sql.cut import MAX_ATTEMPTS, Cut, TableTooBusy, take_cut
from penstock.sql.error_text import explain_error
from penstock.sql.log_tail import ranges_beyond, rows_beyond
from penstock.sql.tables import Tables

if TYPE_CHECKING:
    import pyarrow.dataset as ds

INTERRUPT_INTERVAL_S = 0.1
"""Upper bound of the time by which a query exceeds its limit."""
TOPICS = "topics"
"""Schema whose tables are the topics of the log."""
_TEXTS = re.compile(r"'(?:[^']|'')*'")
MEMORY_BYTES, SPILLED_BYTES_PER_BYTE = 2 << 30, 4
"""Limits of memory and scratch files for queries with a time limit: they come from other users."""
ROWS_PER_BATCH = 2048
"""Rows that ``stream`` holds at once, as many as DuckDB computes at once."""
MAX_TABLES = 4_096
"""Limit for the tables that a query joins through the queries of its WITH; DuckDB binds as many in about a second."""
CLOSED = ("SET enable_external_access = false", "SET lock_configuration = true")
"""Order: executed last, as nothing can be changed after it; then only the data is readable."""
_READ_ONLY = "the tables are read-only: only SELECT is allowed"
_EXPLAIN = re.compile(r"^EXPLAIN\s*(?:\(\s*FORMAT\s+\w+\s*\)\s*)?", re.IGNORECASE)
READING_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
"""DuckDB's nodes of a query that change nothing. Others are a COPY, INSERT, UPDATE or DELETE in a WITH."""
_NODE = re.compile(r'(?<!\\)"type":"([A-Z_]+_NODE)"')
_FUNCTION = re.compile(r'(?<!\\)"function_name":"((?:[^"\\]|\\.)*)"')
_READING_FUNCTIONS = re.compile(
    "duckdb_.*|pragma_.*|json_each|json_tree|range|generate_series|unnest|repeat|repeat_row|summary|test_all_types"
    "|icu_calendar_names|pg_timezone_names"
)
"""Table functions that read neither files nor memory addresses, and run no other text as SQL."""
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
"""DuckDB would otherwise download and run an extension for a function that a query names."""


class BadQuery(PenstockError, ValueError):
    """A query that cannot be answered; ``cause`` is DuckDB's error, None if DuckDB did not refuse it."""

    def __init__(self, text: str, cause: duckdb.Error | None = None) -> None:
        super().__init__(text)
        self.cause = cause


class Query:
    """A connection to the tables as of its opening, for one query. Close it, or use it in a ``with``.

    ``batch`` is the batch through which the table was read, None if no table was needed; ``files`` are its files,
    ``newer`` the messages of the log that were read in addition, and ``took`` the seconds until the answer.
    """

    def __init__(
        self,
        tables: Tables,
        text: str,
        report_progress: Callable[[int], None] = lambda _: None,
        timeout_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        cancelled: threading.Event | None = None,
        memory_bytes: int = MEMORY_BYTES,
        prepare: Callable[[duckdb.DuckDBPyConnection], None] = lambda _: None,
        is_verbatim: bool = True,
    ) -> None:
        """Open the views that ``text`` needs. ``timeout_s`` limits the whole query; None for no limit. Setting
        ``cancelled`` ends it early, from any thread. ``memory_bytes`` applies with a time limit only. ``prepare`` may
        choose a schema for the views, and create functions. ``is_verbatim``: ``text`` is the client's own, so
        errors may name a position in it.

        Raises BadQuery, TableTooBusy, UnknownFormat, DamagedFile.
        """
        self._tables, self._text, self._report_progress = tables, text, report_progress
        self._is_verbatim = is_verbatim
        self.batch: int | None = None
        self.files: Sequence[TableFile] = ()
        self.newer = 0
        self.took = 0.0
        self._clock, self._began = clock, clock()
        self._scratch = tempfile.TemporaryDirectory(prefix="penstock-sql-")
        # Invariant: not below DuckDB's own folder, in which a query may read files even if external access is off.
        self._copies = tempfile.TemporaryDirectory(prefix="penstock-sql-rows-")
        self._connection = duckdb.connect(":memory:", config=SETTINGS)
        self._timeout_s, self._cancelled = timeout_s, cancelled
        self._closed = threading.Event()
        if timeout_s is not None or cancelled is not None:
            # Threads: DuckDB releases the interpreter's lock during a query, so that this thread can interrupt it.
            threading.Thread(target=self._interrupt_when_due, daemon=True).start()
        try:
            self._connection.execute("SET TimeZone = 'UTC'")
            self._connection.execute(f"SET temp_directory = {sql_literal(self._scratch.name)}")
            # Order: the check before anything of the text runs; a second statement could change settings.
            check_one_select(text)
            for statement in memory_limits(memory_bytes) if timeout_s is not None else ():
                self._connection.execute(statement)
            prepare(self._connection)
            self._make_views(words_of(text))
        except duckdb.Error as error:
            self.close()
            raise BadQuery(self._explain_error(error), error) from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the connection and the scratch folders."""
        self._closed.set()
        self._connection.close()
        self._scratch.cleanup()
        self._copies.cleanup()

    def answer(self, limit: int | None = None) -> pa.Table:
        """Return the rows, at most ``limit``. Raises BadQuery."""
        try:
            rows = self._connection.sql(self._text)
            answer: pa.Table = (rows if limit is None else rows.limit(limit)).to_arrow_table()
            self.took = self._clock() - self._began
            # SQL allows equal names of columns; JSON objects and DataFrames do not.
            return answer.rename_columns(_unique_names(answer.column_names))
        except duckdb.Error as error:
            raise BadQuery(self._explain_error(error), error) from None

    def stream(self, express: Callable[[Sequence[str]], Sequence[str]], limit: int) -> Iterator[pa.RecordBatch]:
        """Yield at most ``limit`` rows, in batches. ``express`` returns an expression for each column, from the
        columns' types; it refers to them as ``#1``, ``#2`` and so on. Raises BadQuery.
        """
        try:
            rows = self._connection.sql(self._text)
            expressions = express([str(kind) for kind in rows.types])
            yield from rows.limit(limit).project(", ".join(expressions)).to_arrow_reader(ROWS_PER_BATCH)
        except duckdb.Error as error:
            raise BadQuery(self._explain_error(error), error) from None
        except OSError as error:  # Arrow's, for an error of DuckDB after the first batch
            kind = duckdb.InterruptException if str(error).startswith("INTERRUPT") else duckdb.Error
            raise BadQuery(self._explain_error(cause := kind(str(error))), cause) from None

    def _explain_error(self, error: duckdb.Error) -> str:
        if isinstance(error, duckdb.InterruptException) and self._cancelled is not None and self._cancelled.is_set():
            return "cancelled"
        if isinstance(error, duckdb.InterruptException):
            return f"stopped after {self._timeout_s or 0:.0f} s: select less, by date or topic"
        typed = (typed_table.view for typed_table in self._tables.typed)
        views = ["landed", *VIEWS, *typed, "watermarks", f"{TOPICS}.NAME"]
        return explain_error(error, self._text, views, is_verbatim=self._is_verbatim)

    def _interrupt_when_due(self) -> None:
        """Interrupt the query once its time is over or it is cancelled."""
        end_s = math.inf if self._timeout_s is None else time.monotonic() + self._timeout_s
        # Repeated: an interrupt between two statements has no effect.
        while not self._closed.wait(INTERRUPT_INTERVAL_S):
            if time.monotonic() >= end_s or (self._cancelled is not None and self._cancelled.is_set()):
                with contextlib.suppress(duckdb.Error):
                    self._connection.interrupt()

    def _make_views(self, words: set[str]) -> None:
        """Create the views that the words of the query may refer to; others would cost a read of the log."""
        if TOPICS in words:
            self._make_topics(words)
        if "watermarks" in words:
            self._store("watermarks", _watermarks(self._tables))
        if words & {"landed", "show", *VIEWS, *(typed_table.view for typed_table in self._tables.typed)}:
            self._make_landed(words)
        # Order: locked last, because making the views reads files and changes settings.
        for statement in CLOSED:
            self._connection.execute(statement)

    def _make_landed(self, words: set[str]) -> None:
        cut = self._load_tail()
        self.batch, self.files = cut.batch, cut.files
        columns = ", ".join(f'"{name}"' for name in LANDED.names)
        table = f"UNION ALL SELECT {columns} FROM {self._files(cut)}" if cut.files else ""  # noqa: S608  names from the schema
        self._connection.execute(f"CREATE VIEW landed AS SELECT {columns} FROM _tail {table}")  # noqa: S608
        for view, kind in VIEWS.items():
            view_columns = ", ".join(
                "data::JSON AS data" if column == "data" else f'"{column}"' for column in VIEW_COLUMNS[view].split(", ")
            )
            selection = f"SELECT {view_columns} FROM landed WHERE kind = '{kind.value}'"  # noqa: S608
            self._connection.execute(f"CREATE VIEW {view} AS {selection}")
        for typed_table in self._tables.typed:
            self._store(f"_tail_{typed_table.view}", typed_table.schema.empty_table())
            # Fast path: the unlanded rows are converted only for the typed tables of the query.
            if typed_table.view in words:
                self._add_typed_tail(typed_table)
            self._make_typed(typed_table, cut.typed.get(typed_table.view, []))

    def _make_typed(self, table: TypedTable, files: Sequence[TableFile]) -> None:
        """Create the view of a typed table: its files, and the unlanded rows as it will store them."""
        tail_view, file_view = f"_tail_{table.view}", f"_files_{table.view}"
        columns = ", ".join(f'"{column.name}"' for column in table.schema)
        union = f"UNION ALL SELECT {columns} FROM {file_view}" if files else ""  # noqa: S608
        if files:
            self._connection.register(
                file_view, self._dataset(self._tables.layout.typed(table.name), files, table.schema)
            )
        self._connection.execute(f"CREATE VIEW {table.view} AS SELECT {columns} FROM {tail_view} {union}")  # noqa: S608

    def _add_typed_tail(self, table: TypedTable) -> None:
        """Store the unlanded rows of a typed table as it will have them."""
        common = ", ".join(f'"{name}"' for name in (*LANDED_COLUMNS, "date", "data"))
        selection = f"SELECT {common} FROM _tail WHERE kind = 'event' AND type = {sql_literal(table.type)}"  # noqa: S608
        # Limit: of a large tail, one batch at a time is in memory.
        with self._connection.cursor() as cursor:
            # ``prepare`` may have chosen a schema, which a cursor does not inherit.
            (path,) = self._connection.execute("SELECT current_setting('search_path')").fetchall()[0]
            cursor.execute(f"SET search_path = {sql_literal(path)}")
            for rows in cursor.sql(selection).to_arrow_reader(BATCH_ROWS):
                typed = table.compute(rows["data"])
                arrays = [
                    (typed[field.name] if field.name in typed else rows[field.name]).cast(field.type)
                    for field in table.schema
                ]
                self._connection.register("_new_rows", pa.Table.from_arrays(arrays, schema=table.schema))
                self._connection.execute(f"INSERT INTO _tail_{table.view} FROM _new_rows")
                self._connection.unregister("_new_rows")

    def _dataset(self, folder: TablePath, files: Sequence[TableFile], schema: pa.Schema = LANDED) -> ds.Dataset:
        """Return the table's rows of topics that the user may read."""
        import pyarrow.dataset as ds

        from penstock.tables import dataset_of

        rows = dataset_of(folder, files, schema, Path(self._copies.name))
        if self._tables.readable is None:
            return rows
        # Rights name topics of the log, so rows of Kafka's topics are only for users who may read everything.
        topics = pa.array(sorted(self._tables.readable), pa.string())
        return rows.filter(ds.field("topic").isin(topics) & ds.field("partition").is_null())

    def _files(self, cut: Cut) -> str:
        """Return the FROM clause of the table's rows.

        A user who may not read all topics gets a dataset instead of file names, which the query could read without the
        filter.
        """
        folder, readable = self._tables.layout.landed, self._tables.readable
        if readable is None and isinstance(folder, Path):
            copies = Path(self._copies.name)
            paths = [folder / file if file.live is None else copy_live_rows(folder, file, copies) for file in cut.files]
            files = ", ".join(sql_literal(str(path)) for path in paths)
            # Invariant: files, not their folder, in which a query that passes all checks could create files.
            self._connection.execute(f"SET allowed_paths = [{files}]")
            return f"read_parquet([{files}], hive_partitioning = true, hive_types = {{'kind': VARCHAR, 'date': DATE}})"
        self._connection.register("_files", self._dataset(folder, cut.files))
        return "_files"

    def _load_tail(self) -> Cut:
        """Take a cut and load the unlanded rows into ``_tail``. Raises TableTooBusy."""
        tables = self._tables
        for _ in range(MAX_ATTEMPTS):
            cut = take_cut(tables.layout, tables.window)
            ranges = ranges_beyond(tables, cut)
            rows = rows_beyond(tables, cut, ranges, self._set_newer)
            # Order: the cut before the tail: a batch that is committed during the read changes the table and repeats
            # the attempt.
            self._store("_tail", pa.RecordBatchReader.from_batches(LANDED, rows))
            if not _has_expired(ranges, tables):
                return cut
        raise TableTooBusy(f"{tables.layout.landed}: retention dropped rows during every attempt; run the query again")

    def _make_topics(self, words: set[str]) -> None:
        self._connection.execute(f"CREATE SCHEMA {TOPICS}")
        store = self._tables.store
        for name, view in store.views(["*"]).items() if store is not None else ():
            if words.issuperset(words_of(name)) and self._tables.may_read(name):
                rows = store.read(Range(name, view.start, view.end), LOG_ROW) if store is not None else iter(())
                batches = map(with_unique_annotations, rows)
                self._store(f'{TOPICS}."{name}"', pa.RecordBatchReader.from_batches(LOG_ROW, batches))

    def _store(self, name: str, rows: pa.RecordBatchReader | pa.Table) -> None:
        """Store rows as a table: large ones spill to disk, and a query may read them more than once."""
        self._connection.register("_new_rows", rows)
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM _new_rows")
        self._connection.unregister("_new_rows")

    def _set_newer(self, messages: int) -> None:
        self.newer = messages
        self._report_progress(messages)


def _unique_names(names: list[str]) -> list[str]:
    """Return column names that are unique, numbered if necessary."""
    unique: list[str] = []
    for name in names:
        numbered = (name if number == 0 else f"{name}_{number}" for number in itertools.count())
        unique.append(next(candidate for candidate in numbered if candidate not in unique))
    return unique


def _has_expired(ranges: Sequence[Range], tables: Tables) -> bool:
    """Return whether retention dropped offsets of ``ranges``; they have landed by then."""
    views = tables.store.views(tables.patterns) if tables.store is not None else {}
    return any(
        offset_range.topic in views and views[offset_range.topic].start > offset_range.begin for offset_range in ranges
    )


def words_of(text: str) -> set[str]:
    """Return the words of a query that may be names, in lower case."""
    # Words in quotes are data, so they need no view.
    return {word.casefold() for word in re.findall(r"\w+", _TEXTS.sub("", text))}


def memory_limits(memory_bytes: int) -> tuple[str, str]:
    """Return the statements that limit a connection's memory and scratch files."""
    spilled_bytes = SPILLED_BYTES_PER_BYTE * memory_bytes
    return f"SET memory_limit = '{memory_bytes}B'", f"SET max_temp_directory_size = '{spilled_bytes}B'"


def check_one_select(text: str) -> None:
    """Raise BadQuery or duckdb.Error unless the text is one SELECT, or EXPLAIN with one, that only reads tables."""
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates, for which DuckDB has a TypeError
        raise BadQuery("the query is not UTF-8") from None
    statements = duckdb.extract_statements(text)
    if len(statements) != 1:
        raise BadQuery("only one statement is allowed" if statements else "the query is empty")
    kind, select = statements[0].type, statements[0].query
    if kind == duckdb.StatementType.EXPLAIN:
        # Invariant: DuckDB parses the rest, too. EXPLAIN ANALYZE runs its statement, which may be COPY.
        select = _EXPLAIN.sub("", select, count=1)
        try:
            explained = duckdb.extract_statements(select)
        except duckdb.Error:
            raise BadQuery("EXPLAIN is allowed as EXPLAIN SELECT and EXPLAIN (FORMAT ...) SELECT only") from None
        kind = explained[0].type if len(explained) == 1 else kind
    if kind != duckdb.StatementType.SELECT:
        raise BadQuery(_READ_ONLY)
    _check_nodes(select)


def _check_nodes(select: str) -> None:
    """Raise BadQuery if a part of the parsed SELECT changes anything or reads files."""
    connection, refused = _parser()
    with connection.cursor() as cursor:
        ((parsed,),) = cursor.execute("SELECT json_serialize_sql($1)", [select]).fetchall()
    # Texts of the query are inside JSON texts, where quotes are escaped: they cannot look like a key.
    if parsed.startswith('{"error":true') or not READING_NODES.issuperset(_NODE.findall(parsed)):
        raise BadQuery(_READ_ONLY)
    if functions := refused.intersection(name.casefold() for name in _FUNCTION.findall(parsed)):
        text = f"{min(functions)} is disabled: a query reads the tables only"
        raise BadQuery(text, duckdb.PermissionException(text))
    if '"cte_map":{"map":[{' in parsed:
        try:
            for statement in json.loads(parsed)["statements"]:
                _count_tables(statement["node"], {})
        except RecursionError:
            raise BadQuery("the query is nested too deeply") from None


def _count_tables(query: dict[str, Any], outer: Mapping[str, int]) -> int:
    """Return how many tables a parsed query joins, including the tables of its WITH's queries; at least 1.

    Raises BadQuery beyond ``MAX_TABLES``: each query of a WITH may double the columns of the one before.
    """
    counts = dict(outer)
    for entry in query.get("cte_map", {}).get("map", ()):
        counts[entry["key"].casefold()] = _count_tables(entry["value"]["query_node"], counts)
    total, pending = 0, [part for key, part in query.items() if key != "cte_map"]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict) and (part.get("cte_map") or {}).get("map"):
            total += _count_tables(part, counts)
        elif isinstance(part, dict):
            if part.get("type") == "BASE_TABLE":
                total += counts.get(str(part.get("table_name")).casefold(), 1)
            pending += part.values()
    if total > MAX_TABLES:
        raise BadQuery(f"the queries of a WITH join their tables more than {MAX_TABLES:,} times")
    return max(total, 1)


@lru_cache(maxsize=1)
def _parser() -> tuple[duckdb.DuckDBPyConnection, frozenset[str]]:
    """Return a connection that parses texts, and the names of DuckDB's table functions that a query may not call."""
    connection = duckdb.connect(":memory:", config=SETTINGS)
    names = "SELECT function_name FROM duckdb_functions() WHERE function_type ="
    rows = connection.execute(f"{names} 'table' EXCEPT {names} 'scalar'").fetchall()
    connection.execute(CLOSED[0])
    return connection, frozenset(name for (name,) in rows if not _READING_FUNCTIONS.fullmatch(name))


def _watermarks(tables: Tables) -> pa.Table:
    rows = [row for row in kept_watermarks(tables.layout) if tables.may_read(row[1])]
    columns: dict[str, list[Any]] = {name: [row[index] for row in rows] for index, name in enumerate(WATERMARKS.names)}
    return pa.table(columns, schema=WATERMARKS)
