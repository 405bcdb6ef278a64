"""A query over the tables and what of the log has not landed yet, as views of DuckDB with the names that Spark has."""

from __future__ import annotations

import contextlib
import itertools
import re
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import duckdb
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.landing.event_rules import VIEWS
from penstock.landing.from_kafka.rows import LOG_ROW
from penstock.landing.rows.engine import quoted
from penstock.landing.rows.unique_annotations import with_unique_annotations
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import TableFile, copy_live_rows
from penstock.landing.table_schema import LANDED, VIEW_COLUMNS
from penstock.landing.topics.topic_store import Range
from penstock.landing.typed.columns import TAKEN, TypedTable
from penstock.landing.watermarks import WATERMARKS, kept_watermarks
from penstock.sql.cut import ATTEMPTS, Cut, TableTooBusy, take_cut
from penstock.sql.log_tail import ranges_beyond, rows_beyond
from penstock.sql.tables import Tables

if TYPE_CHECKING:
    import pyarrow.dataset as ds

LOOK = 0.1
TOPICS = "topics"
"""The schema whose tables are the topics of the log, as they are."""
_TEXTS = re.compile(r"'(?:[^']|'')*'")
_BOUNDS = ("SET memory_limit = '2GB'", "SET max_temp_directory_size = '8GB'")
"""For queries that have to end in time: who asks is somebody else."""
_CLOSED = ("SET enable_external_access = false", "SET lock_configuration = true")
_REPEATED_NAMES = ("Map keys must be unique", "Arrow map contains duplicate key")
"""What DuckDB says of files that landed before names of annotations were made unique."""
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


class BadQuery(PenstockError, ValueError):
    """A query that cannot be answered; the text says why."""


class Query:
    """A connection to the tables as they were when it was opened, for one query; close it, or use it in a ``with``.

    ``batch``: through which the table was read, None where nobody asked for it; ``files``: those it has; ``newer``: how
    many messages of the log were read besides; ``took``: seconds until the answer.
    """

    def __init__(
        self,
        tables: Tables,
        text: str,
        tell: Callable[[int], None] = lambda _: None,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``seconds``: how long it may take in all, None for ever.

        Raises BadQuery, TableTooBusy, UnknownFormat, DamagedFile.
        """
        self._tables, self._text, self._tell = tables, text, tell
        self.batch: int | None = None
        self.files: Sequence[TableFile] = ()
        self.newer = 0
        self.took = 0.0
        self._clock, self._began = clock, clock()
        self._aside = tempfile.TemporaryDirectory(prefix="penstock-sql-")
        self._connection = duckdb.connect(":memory:", config=_SETTINGS)
        self._seconds = seconds
        self._closed = threading.Event()
        if seconds is not None:
            threading.Thread(target=self._stop_in_time, args=(seconds,), daemon=True).start()
        try:
            self._connection.execute("SET TimeZone = 'UTC'")
            self._connection.execute(f"SET temp_directory = {quoted(self._aside.name)}")
            _check_one_select(text)
            for statement in _BOUNDS if seconds is not None else ():
                self._connection.execute(statement)
            self._make_views({word.casefold() for word in re.findall(r"\w+", _TEXTS.sub("", text))})
        except duckdb.Error as error:
            self.close()
            raise BadQuery(self._words(error)) from None
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
        """Forget everything."""
        self._closed.set()
        self._connection.close()
        self._aside.cleanup()

    def answer(self, limit: int | None = None) -> pa.Table:
        """The rows, at most ``limit``. Raises BadQuery."""
        try:
            rows = self._connection.sql(self._text)
            found: pa.Table = (rows if limit is None else rows.limit(limit)).to_arrow_table()
            self.took = self._clock() - self._began
            return found.rename_columns(_different(found.column_names))
        except duckdb.Error as error:
            raise BadQuery(self._words(error)) from None

    def _words(self, error: duckdb.Error) -> str:
        return _words(error, self._text, self._seconds, [*VIEWS, *(one.view for one in self._tables.typed)])

    def _stop_in_time(self, seconds: float) -> None:
        """Again and again: between two statements there is nothing to interrupt."""
        late = not self._closed.wait(seconds)
        while late and not self._closed.wait(LOOK):
            with contextlib.suppress(duckdb.Error):
                self._connection.interrupt()

    def _make_views(self, words: set[str]) -> None:
        """Only those that may be meant."""
        if TOPICS in words:
            self._make_topics(words)
        if "watermarks" in words:
            self._keep("watermarks", _watermarks(self._tables))
        if words & {"landed", "show", *VIEWS, *(one.view for one in self._tables.typed)}:
            self._make_landed()
        for statement in _CLOSED:
            self._connection.execute(statement)

    def _make_landed(self) -> None:
        cut = self._with_what_waits()
        self.batch, self.files = cut.batch, cut.files
        columns = ", ".join(f'"{name}"' for name in LANDED.names)
        table = f"UNION ALL SELECT {columns} FROM {self._files(cut)}" if cut.files else ""  # noqa: S608  our own words
        self._connection.execute(f"CREATE VIEW landed AS SELECT {columns} FROM _tail {table}")  # noqa: S608
        for view, kind in VIEWS.items():
            named = ", ".join("data::JSON AS data" if n == "data" else f'"{n}"' for n in VIEW_COLUMNS[view].split(", "))
            self._connection.execute(f"CREATE VIEW {view} AS SELECT {named} FROM landed WHERE kind = '{kind.value}'")  # noqa: S608
        for one in self._tables.typed:
            self._make_typed(one, cut.typed.get(one.view, []))

    def _make_typed(self, table: TypedTable, files: Sequence[TableFile]) -> None:
        """What is in the table, and what it is about to have."""
        waits, rows = f"_tail_{table.view}", f"_files_{table.view}"
        given = ", ".join(f'{value} AS "{name}"' for name, value in table.given.items())
        own = ", ".join(f'{value} AS "{name}"' for name, value in table.values.items())
        taken = ", ".join(f'"{name}"' for name in (*TAKEN, "date"))
        tail = f"(SELECT *, {given} FROM _tail WHERE kind = 'event' AND type = {quoted(table.type)})"  # noqa: S608
        self._connection.execute(f"CREATE VIEW {waits} AS SELECT {taken}, {own} FROM {tail}")  # noqa: S608
        columns = ", ".join(f'"{one.name}"' for one in table.schema)
        union = f"UNION ALL SELECT {columns} FROM {rows}" if files else ""  # noqa: S608
        if files:
            self._connection.register(rows, self._dataset(self._tables.layout.typed(table.name), files, table.schema))
        self._connection.execute(f"CREATE VIEW {table.view} AS SELECT {columns} FROM {waits} {union}")  # noqa: S608

    def _dataset(self, folder: TablePath, files: Sequence[TableFile], schema: pa.Schema = LANDED) -> ds.Dataset:
        """Rows of topics that who asks may read."""
        import pyarrow.dataset as ds

        from penstock.tables import dataset_of

        rows = dataset_of(folder, files, schema, Path(self._aside.name))
        if self._tables.readable is None:
            return rows
        topics = pa.array(sorted(self._tables.readable), pa.string())
        return rows.filter(ds.field("topic").isin(topics) & ds.field("partition").is_null())

    def _files(self, cut: Cut) -> str:
        """The rows of the table, for a FROM. Who may not read all topics gets no files that a query could name."""
        folder, readable = self._tables.layout.landed, self._tables.readable
        if readable is None and isinstance(folder, Path):
            copies = Path(self._aside.name)
            self._connection.execute(f"SET allowed_directories = [{quoted(str(folder))}, {quoted(str(copies))}]")
            paths = [folder / one if one.live is None else copy_live_rows(folder, one, copies) for one in cut.files]
            files = ", ".join(quoted(str(path)) for path in paths)
            return f"read_parquet([{files}], hive_partitioning = true, hive_types = {{'kind': VARCHAR, 'date': DATE}})"
        self._connection.register("_files", self._dataset(folder, cut.files))
        return "_files"

    def _with_what_waits(self) -> Cut:
        """The table as it is now, and beside it what it does not have. Raises TableTooBusy."""
        tables = self._tables
        for _ in range(ATTEMPTS):
            cut = take_cut(tables.layout, tables.window)
            ranges = ranges_beyond(tables, cut)
            rows = rows_beyond(tables, cut, ranges, self._count)
            self._keep("_tail", pa.RecordBatchReader.from_batches(LANDED, rows))
            if not _some_went(ranges, tables):
                return cut
        raise TableTooBusy(f"{tables.layout.landed}: what had landed was dropped from the log meanwhile; ask again")

    def _make_topics(self, words: set[str]) -> None:
        self._connection.execute(f"CREATE SCHEMA {TOPICS}")
        store = self._tables.store
        for name, view in store.views(["*"]).items() if store is not None else ():
            if words.issuperset(re.findall(r"\w+", name.casefold())) and self._tables.may_read(name):
                rows = store.read(Range(name, view.start, view.end), LOG_ROW) if store is not None else iter(())
                batches = map(with_unique_annotations, rows)
                self._keep(f'{TOPICS}."{name}"', pa.RecordBatchReader.from_batches(LOG_ROW, batches))

    def _keep(self, name: str, rows: pa.RecordBatchReader | pa.Table) -> None:
        """Rows as a table: what is much goes to the disk, and may be asked for more than once."""
        self._connection.register("_given", rows)
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM _given")
        self._connection.unregister("_given")

    def _count(self, messages: int) -> None:
        self.newer = messages
        self._tell(messages)


def _different(names: list[str]) -> list[str]:
    """Names of columns, so that each is there once."""
    found: list[str] = []
    for name in names:
        numbered = (name if number == 0 else f"{name}_{number}" for number in itertools.count())
        found.append(next(one for one in numbered if one not in found))
    return found


def _some_went(ranges: Sequence[Range], tables: Tables) -> bool:
    """Whether retention may have dropped what was to be read: then it has landed."""
    views = tables.store.views(tables.patterns) if tables.store is not None else {}
    return any(one.topic in views and views[one.topic].start > one.begin for one in ranges)


def _check_one_select(text: str) -> None:
    """Raises BadQuery, duckdb.Error."""
    statements = duckdb.extract_statements(text)
    if len(statements) != 1:
        raise BadQuery("one query at a time, please" if statements else "there is no query")
    if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise BadQuery("the tables can only be asked: SELECT")


def _words(error: duckdb.Error, text: str, seconds: float | None, views: Sequence[str]) -> str:
    """What DuckDB says, and what may be meant."""
    if isinstance(error, duckdb.InterruptException):
        return f"stopped after {seconds or 0:.0f} s: ask for less, by date or topic"
    words = str(error).strip().replace("\n\n", "\n")
    if any(sign in words for sign in _REPEATED_NAMES):
        return "a row has an annotation's name twice, and DuckDB takes no such map: run `penstock tables repair` once"
    if isinstance(error, duckdb.CatalogException):
        words = f"{words.splitlines()[0]} There are landed, {', '.join(views)}, watermarks and {TOPICS}.NAME."
    elif isinstance(error, duckdb.ParserException) and re.search(r"\boffset\b", text, re.IGNORECASE):
        words += '\nthe column "offset" is written in quotes: it is a word of SQL'
    return words


def _watermarks(tables: Tables) -> pa.Table:
    rows = [row for row in kept_watermarks(tables.layout) if tables.may_read(row[1])]
    columns: dict[str, list[Any]] = {name: [row[at] for row in rows] for at, name in enumerate(WATERMARKS.names)}
    return pa.table(columns, schema=WATERMARKS)
