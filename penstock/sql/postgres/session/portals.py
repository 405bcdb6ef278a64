"""Portals of a connection: statements with their parameters, and the rows that a client has still to fetch.

A cursor of SQL is a portal, too, as in PostgreSQL. A portal with unread rows counts as a running query, so it is closed
once ``sql.timeout`` has passed: a client that leaves rows unread must not keep one of the few places for itself.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.sql.postgres.access import Engine
from penstock.sql.postgres.messages import SqlError
from penstock.sql.postgres.rows import data_rows, expression
from penstock.sql.postgres.session.copying import Copy
from penstock.sql.postgres.session.preparation import Preparation, StatementFailed
from penstock.sql.postgres.statements.statement import Statement
from penstock.sql.postgres.types import Column
from penstock.sql.query import Query

MAX_PORTALS = 20
MAX_ROWS_BYTES, MAX_ROW_BYTES = 4 << 20, 256 << 20
"""Limits of the rows that are encoded at once, and of a single row: encoding needs several times their memory."""
ACQUIRE_INTERVAL_S = 0.1
"""Time after which a query that waits for others looks for a cancel request and the end of its client."""
_LOGGER = logging.getLogger(__name__)


class _Cancelled(threading.Event):
    """Set by a cancel request, or once the client has gone."""

    def __init__(self, is_client_gone: Callable[[], bool]) -> None:
        super().__init__()
        self._is_client_gone = is_client_gone

    def is_set(self) -> bool:
        return super().is_set() or self._is_client_gone()


@dataclass(slots=True)
class Portal:
    """A statement with its parameters, and the rows that it has still to send.

    A held one outlives the transaction that declared it, unless this is rolled back (``uncommitted``). ``readable`` are
    the topics that its client might read when the query began. ``copy`` says how a COPY sends them.
    """

    statement: Statement | None
    literals: list[str]
    columns: list[Column]
    formats: list[int]
    held: bool = False
    uncommitted: bool = False
    readable: frozenset[str] | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    rows: Iterator[pa.RecordBatch] | None = None
    batch: pa.RecordBatch | None = None
    sent: int = 0
    end_s: float = 0.0
    close: Callable[[], None] = lambda: None
    copy: Copy | None = None


class Portals:
    """The portals of one connection, by name. Used on its thread; ``cancel`` may be called on any thread."""

    def __init__(self, engine: Engine, is_client_gone: Callable[[], bool]) -> None:
        self._engine, self._is_client_gone = engine, is_client_gone
        self._by_name: dict[str, Portal] = {}
        self._cancelled: threading.Event | None = None

    def cancel(self) -> None:
        """End the query that runs now, if any."""
        if (cancelled := self._cancelled) is not None:
            cancelled.set()

    def add(self, name: str, portal: Portal, kind: str = "portal") -> None:
        """Keep a portal, in place of the unnamed one if it has no name. Raises StatementFailed."""
        if name and name in self._by_name:
            raise StatementFailed(SqlError("42P03", f'{kind} "{name}" already exists'))
        self.close(name)
        if len(self._by_name) >= MAX_PORTALS:
            raise StatementFailed(SqlError("53400", f"at most {MAX_PORTALS} portals may be open"))
        self._by_name[name] = portal

    def find_portal(self, name: str) -> Portal | None:
        """Return a portal, or None."""
        return self._by_name.get(name)

    def named(self, name: str, kind: str = "portal") -> Portal:
        """Return a portal. Raises StatementFailed."""
        if (portal := self._by_name.get(name)) is None:
            raise StatementFailed(SqlError("34000", f'{kind} "{name}" does not exist'))
        return portal

    def close(self, name: str) -> None:
        """Close a portal if there is one of this name."""
        if (portal := self._by_name.pop(name, None)) is not None:
            portal.close()

    def close_all(self, *, held: bool = False) -> None:
        """Close all portals that are not held, or all if ``held``."""
        for name, portal in list(self._by_name.items()):
            if held or not portal.held:
                self.close(name)

    def end_transaction(self, *, committed: bool) -> None:
        """Close the portals that end with a transaction; held ones stay if it is ``committed``."""
        for name, portal in list(self._by_name.items()):
            if not portal.held or (portal.uncommitted and not committed):
                self.close(name)
            portal.uncommitted = False

    def close_late(self) -> None:
        """Close portals whose rows were not fetched within the time of a query."""
        now_s = time.monotonic()
        for name, portal in list(self._by_name.items()):
            if portal.rows is not None and portal.end_s <= now_s:
                self.close(name)

    def remaining_s(self) -> float | None:
        """Return the seconds until the first portal is late; None if none has unread rows."""
        ends = [portal.end_s for portal in self._by_name.values() if portal.rows is not None]
        return max(min(ends) - time.monotonic(), 0.01) if ends else None

    def start(self, portal: Portal, preparation: Preparation, readable: frozenset[str] | None) -> None:
        """Start a portal's query unless it runs. It counts as running until the portal is closed.

        Raises StatementFailed, BadQuery.
        """
        if portal.rows is not None:
            # Invariant: what a client may no longer read is not sent by a query that began earlier, either.
            if readable is not None and (portal.readable is None or not portal.readable <= readable):
                raise StatementFailed(SqlError("42501", "the rights of the client have changed"))
            self._cancelled = portal.cancelled
            return
        assert portal.statement is not None
        engine, portal.readable = self._engine, readable
        translation = preparation.translate(portal.statement, portal.literals)
        text = translation.text
        cancelled = portal.cancelled = _Cancelled(self._is_client_gone)
        portal.end_s = time.monotonic() + engine.config.timeout
        # Order: a cancel request must reach the query while it waits, too.
        self._cancelled = cancelled
        self._wait_for_turn(portal.end_s, cancelled)
        query: Query | None = None

        def close() -> None:
            # Once: the place of a running query must not be given back twice.
            portal.close = lambda: None
            portal.rows, portal.batch = iter(()), None
            try:
                if query is not None:
                    query.close()
            finally:
                engine.running.release()

        portal.close = close
        try:
            query = Query(
                engine.tables(readable),
                text,
                timeout_s=max(portal.end_s - time.monotonic(), ACQUIRE_INTERVAL_S),
                cancelled=cancelled,
                memory_bytes=engine.config.memory,
                prepare=lambda connection: preparation.install(connection, text),
                is_verbatim=translation.is_verbatim,
            )
        except OSError as error:
            close()
            raise unreadable(error) from None
        except BaseException:
            close()
            raise

        def express(kinds: Sequence[str]) -> list[str]:
            answered = zip(portal.columns, kinds, portal.formats, strict=True)
            return [
                f"{expression(entry, f'#{n}', kind, form)} AS c{n}" for n, (entry, kind, form) in enumerate(answered, 1)
            ]

        portal.rows = query.stream(express, engine.config.max_rows + 1)

    def rows(self, portal: Portal, max_rows: int) -> Iterator[memoryview]:
        """Yield the next rows of a started portal, encoded; at most ``max_rows`` unless it is 0.

        ``portal.sent`` counts them; the portal is closed once it has no more. Raises StatementFailed, BadQuery.
        """
        assert portal.rows is not None
        config, sent_before = self._engine.config, portal.sent
        while (batch := portal.batch or next(portal.rows, None)) is not None:
            allowed = config.max_rows - portal.sent
            if not allowed:
                text = f"the answer has more than {config.max_rows:,} rows (sql.max_rows): add a LIMIT"
                raise StatementFailed(SqlError("54000", text))
            row_count = min(allowed, max_rows - (portal.sent - sent_before) if max_rows else batch.num_rows)
            if not row_count:
                portal.batch = batch
                return
            rows = batch.slice(0, row_count)
            while rows.nbytes > MAX_ROWS_BYTES and rows.num_rows > 1:
                rows = rows.slice(0, rows.num_rows // 2)
            if rows.nbytes > MAX_ROW_BYTES:
                raise StatementFailed(SqlError("54000", f"a row has at most {MAX_ROW_BYTES:,} bytes"))
            portal.batch = batch.slice(rows.num_rows) if rows.num_rows < batch.num_rows else None
            portal.sent += rows.num_rows
            yield _encoded(rows, portal)
        portal.close()

    def _wait_for_turn(self, end_s: float, cancelled: threading.Event) -> None:
        """Wait until a query may run. Raises StatementFailed once the time is over or the query is cancelled."""
        while not self._engine.running.acquire(timeout=ACQUIRE_INTERVAL_S):
            if cancelled.is_set():
                raise StatementFailed(SqlError("57014", "the query was cancelled"))
            if time.monotonic() >= end_s:
                text = "too many queries run at once (sql.max_queries); try again"
                raise StatementFailed(SqlError("53300", text))


def unreadable(error: OSError) -> StatementFailed:
    """Return the client's error for tables that cannot be read; the operator finds the cause in the log."""
    _LOGGER.error("the tables cannot be read: %s", error)
    return StatementFailed(SqlError("58030", f"the tables cannot be read: {error.strerror or error}"))


def _encoded(rows: pa.RecordBatch, portal: Portal) -> memoryview:
    try:
        if portal.copy is not None:
            return portal.copy.rows(rows, portal.columns, are_first=portal.sent == rows.num_rows)
        return data_rows(rows, portal.columns, portal.formats)
    except (ValueError, OverflowError, struct.error) as error:
        text = f"a value of the answer cannot be represented ({error}): cast it to VARCHAR"
        raise StatementFailed(SqlError("22003", text)) from None
