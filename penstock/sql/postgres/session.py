"""A connection of a client of PostgreSQL, from its password to its end: simple and extended queries.

Each statement reads the newest rows of the tables and the log: a transaction holds no snapshot, as nothing can be
changed in it. An error fails a transaction as in PostgreSQL, because clients rely on that.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from penstock.config.keys.sql import SqlConfig
from penstock.errors import PenstockError
from penstock.sql.catalog import read_catalog
from penstock.sql.postgres import messages
from penstock.sql.postgres.access import Reader, Rights, RightsUnknown, WrongPassword
from penstock.sql.postgres.messages import Incoming, ProtocolViolation, SqlError
from penstock.sql.postgres.preparation import INTERNAL, READ_ONLY, Preparation, StatementFailed, code_of
from penstock.sql.postgres.settings import SessionSettings
from penstock.sql.postgres.statements import Statement, split
from penstock.sql.postgres.system_catalog import DATABASE, SystemCatalog
from penstock.sql.postgres.types import (
    BINARY_FORMAT,
    TEXT,
    TEXT_FORMAT,
    BadParameter,
    Column,
    data_rows,
    expression,
    literal,
)
from penstock.sql.query import BadQuery, Query
from penstock.sql.tables import Tables

CATALOG_MAX_AGE_S = 30.0
"""Time after which new topics and tables are seen by the statements of a connection."""
MAX_STATEMENT_CHARS = 1 << 18
MAX_PREPARED, MAX_PREPARED_CHARS = 1_000, 1 << 20
"""Limits of a connection's prepared statements."""
MAX_PREPARED_FIELDS = 100_000
"""Limit for the parameters and columns of a connection's prepared statements."""
MAX_ROWS_BYTES, MAX_ROW_BYTES = 4 << 20, 256 << 20
"""Limits of the rows that are encoded at once, and of a single row: encoding needs several times their memory."""
ACQUIRE_INTERVAL_S = 0.1
"""Time after which a query that waits for others looks for a cancel request and the end of its client."""
MAX_PORTALS = 20
BUFFERED_BYTES = 1 << 16
IDLE, IN_TRANSACTION, FAILED = b"I", b"T", b"E"
_LOGGER = logging.getLogger(__name__)
_TRANSACTIONS = {
    "begin": "BEGIN",
    "start": "START TRANSACTION",
    "commit": "COMMIT",
    "end": "COMMIT",
    "rollback": "ROLLBACK",
    "abort": "ROLLBACK",
    "savepoint": "SAVEPOINT",
    "release": "RELEASE",
}
_CHANGES = frozenset(
    {
        *("insert", "update", "delete", "merge", "create", "drop", "alter", "truncate", "grant", "revoke", "comment"),
        *("copy", "call", "do", "lock", "vacuum", "analyze", "reindex", "cluster", "refresh", "import", "security"),
        *("attach", "detach", "install", "load", "export", "checkpoint", "pragma", "use"),
    }
)
_UNSUPPORTED = frozenset({"listen", "notify", "prepare", "execute", "move"})


class Wire(Protocol):
    """The bytes of one connection."""

    def receive(self, count: int, timeout_s: float | None) -> bytes:
        """Return the next bytes, empty at the end. Raises TimeoutError, OSError."""

    def send(self, content: bytes | memoryview) -> None:
        """Send all bytes. Raises OSError."""

    def is_closed(self) -> bool:
        """Report whether the client has closed the connection."""


@dataclass
class Engine:
    """The parts that all connections share. ``tables`` returns the tables of a client who may read some topics."""

    tables: Callable[[frozenset[str] | None], Tables]
    config: SqlConfig
    rights: Rights
    counts: Counter[str] = field(default_factory=Counter)
    """Connections and statements that were refused, by reason."""

    def __post_init__(self) -> None:
        self.running = threading.BoundedSemaphore(self.config.max_queries)


class _Cancelled(threading.Event):
    """Set by a cancel request, or once the client has gone."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def is_set(self) -> bool:
        return super().is_set() or self._wire.is_closed()


@dataclass(slots=True)
class _Prepared:
    """A statement with the declared types of its parameters. ``columns`` is None if they depend on the parameters."""

    text: str
    oids: list[int]
    columns: list[Column] | None
    failure: StatementFailed | None = None
    described: bool = False


@dataclass(slots=True)
class _Portal:
    """A statement with its parameters, and the rows that it has still to send."""

    statement: Statement | None
    literals: list[str]
    columns: list[Column]
    formats: list[int]
    rows: Iterator[pa.RecordBatch] | None = None
    batch: pa.RecordBatch | None = None
    sent: int = 0
    end_s: float = 0.0
    close: Callable[[], None] = lambda: None


class Session:
    """A connection after its first message. Runs on a thread of its own; ``cancel`` may be called on any thread."""

    def __init__(self, wire: Wire, incoming: Incoming, engine: Engine, options: Mapping[str, str]) -> None:
        self._wire, self._incoming, self._engine = wire, incoming, engine
        self._user = options.get("user", "")
        self._settings = SessionSettings(self._user, options.get("application_name", ""))
        self._database = options.get("database", self._user)
        self._out = bytearray()
        self._state = IDLE
        self._prepared: dict[str, _Prepared] = {}
        self._portals: dict[str, _Portal] = {}
        self._process = 0
        self._reader: Reader | None = None
        self._preparation: Preparation | None = None
        self._prepared_until_s = 0.0
        self._prepared_for: frozenset[str] | None = None
        self._cancelled: threading.Event | None = None

    def log_in(self) -> bool:
        """Ask for the password and check it; the client hears why it is refused. Raises ProtocolViolation, OSError."""
        token = ""
        if self._engine.rights.need_token:
            self._send(messages.authentication(3))
            self._flush()
            kind, fields = self._incoming.next(messages.MAX_STARTUP_BYTES)
            if kind != b"p":
                raise ProtocolViolation("a password is expected")
            token = fields.text()
        self._reader = Reader(self._engine.rights, token)
        try:
            self._reader.topics()
        except WrongPassword as error:
            return self._refuse("wrong password", SqlError("28P01", str(error)))
        except RightsUnknown as error:
            return self._refuse("rights unknown", SqlError("57P03", str(error)))
        if self._database not in (DATABASE, ""):
            text = f'database "{self._database}" does not exist; the only one is "{DATABASE}"'
            return self._refuse("unknown database", SqlError("3D000", text))
        self._send(messages.authentication(0))
        return True

    def _refuse(self, reason: str, error: SqlError) -> bool:
        self._engine.counts[reason] += 1
        self._send(messages.error_response(error, "FATAL"))
        self._flush()
        return False

    def start(self, process: int, secret: int) -> None:
        """Send the settings of the session, and what cancels its queries."""
        self._process = process
        for name, setting in self._settings.reported():
            self._send(messages.parameter_status(name, setting))
        self._send(messages.backend_key(process, secret))
        self._send(messages.ready(IDLE))
        self._flush()

    def cancel(self) -> None:
        """End the query that runs now, if any."""
        if (cancelled := self._cancelled) is not None:
            cancelled.set()

    def run(self) -> None:
        """Answer until the client ends the connection. Raises ProtocolViolation, EOFError, OSError."""
        skipping = False
        while True:
            kind, fields = self._next_message()
            # A client that sends messages without a pause must not keep a query beyond its time, either.
            self._close_portals(before_s=time.monotonic())
            if kind == b"X":
                return
            if skipping and kind != b"S":
                continue
            try:
                skipping = False
                self._handle(kind, fields)
            except (StatementFailed, PenstockError, pa.ArrowException, MemoryError) as error:
                if isinstance(error, ProtocolViolation):
                    raise
                self._send_error(_error_of(error))
                # After an error the client's messages count for nothing up to its Sync; a simple query has none.
                skipping = kind not in (b"Q", b"S")
                if kind == b"Q":
                    self._send_ready()
            if len(self._out) > BUFFERED_BYTES:
                self._flush()

    def close(self) -> None:
        """Release the queries of the session."""
        self._close_portals()
        if self._preparation is not None:
            self._preparation.close()

    def _next_message(self) -> tuple[bytes, messages.Reader]:
        while True:
            try:
                return self._incoming.next()
            except TimeoutError:
                # A client that leaves rows unread must not keep one of the few queries for itself.
                self._close_portals(before_s=time.monotonic())

    def receive(self, count: int) -> bytes:
        """Return the next bytes of the client; raises TimeoutError when rows have waited too long to be fetched."""
        self._flush()
        ends = [portal.end_s for portal in self._portals.values() if portal.rows is not None]
        return self._wire.receive(count, max(min(ends) - time.monotonic(), 0.01) if ends else None)

    def _handle(self, kind: bytes, fields: messages.Reader) -> None:
        match kind:
            case b"Q":
                self._simple_query(fields.text())
            case b"P":
                self._parse(fields)
            case b"B":
                self._bind(fields)
            case b"D":
                self._describe(fields)
            case b"E":
                self._execute(self._portal(fields.text()), fields.integer("I"))
            case b"C":
                self._close(fields)
            case b"S":
                if self._state == IDLE:
                    self._close_portals()
                self._send_ready()
            case b"H":
                self._flush()
            case b"d" | b"c" | b"f":
                pass  # of a COPY that was refused
            case b"F":
                raise StatementFailed(SqlError("0A000", "function calls are not supported"))
            case _:
                raise ProtocolViolation(f"a message has the unknown type {kind!r}")

    def _simple_query(self, text: str) -> None:
        statements = self._split(text)
        if not statements:
            self._send(messages.EMPTY_QUERY)
        for statement in statements:
            columns = self._columns(statement, [])
            portal = _Portal(statement, [], columns, [TEXT_FORMAT] * len(columns))
            self._check_transaction(statement)
            if columns:
                self._send(messages.row_description(columns, portal.formats))
            try:
                self._execute(portal, 0)
            finally:
                portal.close()
        self._send_ready()

    def _split(self, text: str) -> list[Statement]:
        if len(text) > MAX_STATEMENT_CHARS:
            raise StatementFailed(SqlError("54000", f"a statement has at most {MAX_STATEMENT_CHARS:,} characters"))
        return split(text)

    def _parse(self, fields: messages.Reader) -> None:
        name, text, oids = fields.text(), fields.text(), fields.integers("I")
        statements = self._split(text)
        if len(statements) > 1:
            raise StatementFailed(SqlError("42601", "a prepared statement is one statement"))
        if name and name in self._prepared:
            raise StatementFailed(SqlError("42P05", f'prepared statement "{name}" already exists'))
        self._prepared.pop(name, None)
        chars = sum(len(prepared.text) for prepared in self._prepared.values())
        too_many = StatementFailed(SqlError("53400", "too many prepared statements; close some"))
        if len(self._prepared) >= MAX_PREPARED or chars + len(text) > MAX_PREPARED_CHARS:
            raise too_many
        prepared = _Prepared(text, oids, [])
        if statements:
            count = statements[0].parameters
            if count > messages.MAX_PARAMETERS:
                raise StatementFailed(
                    SqlError("54000", f"a statement has at most {messages.MAX_PARAMETERS:,} parameters")
                )
            # Limit: the number of a parameter alone must not decide how many there are.
            numbers = statements[0].parameter_numbers
            if missing := next((number for number in range(len(oids) + 1, count) if number not in numbers), 0):
                raise StatementFailed(SqlError("42P18", f"could not determine data type of parameter ${missing}"))
            prepared.oids = [*oids, *[0] * (count - len(oids))]
            try:
                prepared.columns = self._columns(
                    statements[0], [literal(oid, TEXT_FORMAT, None) for oid in prepared.oids]
                )
            except StatementFailed as error:
                if not count:
                    raise
                prepared.columns, prepared.failure = None, error
        fields_of = [len(entry.oids) + len(entry.columns or ()) for entry in (*self._prepared.values(), prepared)]
        if sum(fields_of) > MAX_PREPARED_FIELDS:
            raise too_many
        self._prepared[name] = prepared
        self._send(messages.PARSE_COMPLETE)

    def _bind(self, fields: messages.Reader) -> None:
        name, statement_name = fields.text(), fields.text()
        prepared = self._statement(statement_name)
        formats, count = fields.integers("H"), fields.integer("H")
        parameters = []
        for _ in range(count):
            length = fields.integer("i")
            parameters.append(None if length < 0 else fields.read_bytes(length))
        answer_formats = fields.integers("H")
        if count != len(prepared.oids):
            raise StatementFailed(SqlError("08P01", f"{len(prepared.oids)} parameters are needed, not {count}"))
        literals = []
        for oid, form, parameter in zip(prepared.oids, _spread(formats, count), parameters, strict=True):
            literals.append(literal(oid, form, parameter))
        statement = next(iter(split(prepared.text)), None)
        columns = prepared.columns
        if statement is not None and (columns is None or (literals and not prepared.described)):
            columns = self._columns(statement, literals)
        columns = columns or []
        if name and name in self._portals:
            raise StatementFailed(SqlError("42P03", f'portal "{name}" already exists'))
        self._close_portal(name)
        if len(self._portals) >= MAX_PORTALS:
            raise StatementFailed(SqlError("53400", f"at most {MAX_PORTALS} portals may be open"))
        portal_formats = _spread(answer_formats, len(columns))
        self._portals[name] = _Portal(statement, literals, columns, portal_formats)
        self._send(messages.BIND_COMPLETE)

    def _describe(self, fields: messages.Reader) -> None:
        kind, name = fields.read_bytes(1), fields.text()
        if kind == b"S":
            prepared = self._statement(name)
            if prepared.columns is None and prepared.failure is not None:
                raise prepared.failure
            prepared.described = True
            self._send(messages.parameter_description([oid or TEXT.oid for oid in prepared.oids]))
            columns, formats = prepared.columns or [], [TEXT_FORMAT] * len(prepared.columns or [])
        elif kind == b"P":
            portal = self._portal(name)
            columns, formats = portal.columns, portal.formats
        else:
            raise ProtocolViolation("a description is of a statement or a portal")
        self._send(messages.row_description(columns, formats) if columns else messages.NO_DATA)

    def _close(self, fields: messages.Reader) -> None:
        kind, name = fields.read_bytes(1), fields.text()
        if kind == b"S":
            self._prepared.pop(name, None)
        elif kind == b"P":
            self._close_portal(name)
        else:
            raise ProtocolViolation("a statement or a portal can be closed")
        self._send(messages.CLOSE_COMPLETE)

    def _statement(self, name: str) -> _Prepared:
        try:
            return self._prepared[name]
        except KeyError:
            raise StatementFailed(SqlError("26000", f'prepared statement "{name}" does not exist')) from None

    def _portal(self, name: str) -> _Portal:
        try:
            return self._portals[name]
        except KeyError:
            raise StatementFailed(SqlError("34000", f'portal "{name}" does not exist')) from None

    def _close_portal(self, name: str) -> None:
        if (portal := self._portals.pop(name, None)) is not None:
            portal.close()

    def _close_portals(self, before_s: float | None = None) -> None:
        for name, portal in list(self._portals.items()):
            if before_s is None or (portal.rows is not None and portal.end_s <= before_s):
                self._close_portal(name)

    def _columns(self, statement: Statement, literals: Sequence[str]) -> list[Column]:
        """Return the columns of a statement's answer, without running it. Raises StatementFailed."""
        words = statement.words
        if words[:1] == ["show"] and (setting := self._settings.shown_name(words)):
            return [Column(setting, TEXT)]
        if statement.is_query:
            preparation = self._bound_preparation()
            return preparation.columns(preparation.translate(statement, literals))
        return []

    def _bound_preparation(self) -> Preparation:
        """Return the preparation of the tables as the client may read them now."""
        readable = self._readable()
        now_s = time.monotonic()
        if self._preparation is None or now_s >= self._prepared_until_s or readable != self._prepared_for:
            try:
                tables = read_catalog(self._engine.tables(readable))
            except OSError as error:
                raise self._unreadable(error) from None
            catalog = SystemCatalog(tables, self._user, self._settings.texts, self._process)
            preparation = Preparation(catalog)
            if self._preparation is not None:
                self._preparation.close()
            self._preparation, self._prepared_for = preparation, readable
            self._prepared_until_s = now_s + CATALOG_MAX_AGE_S
        return self._preparation

    def _unreadable(self, error: OSError) -> StatementFailed:
        """Return the client's error for tables that cannot be read; the operator finds the cause in the log."""
        _LOGGER.error("the tables cannot be read: %s", error)
        return StatementFailed(SqlError("58030", f"the tables cannot be read: {error.strerror or error}"))

    def _readable(self) -> frozenset[str] | None:
        assert self._reader is not None  # set before the first statement
        try:
            return self._reader.topics()
        except WrongPassword:
            raise StatementFailed(SqlError("28000", "the token was revoked")) from None
        except RightsUnknown as error:
            raise StatementFailed(SqlError("57P03", str(error))) from None

    def _check_transaction(self, statement: Statement) -> None:
        if self._state == FAILED and statement.words[:1] not in (["rollback"], ["abort"], ["commit"], ["end"]):
            text = "the transaction has failed: its statements are ignored until ROLLBACK"
            raise StatementFailed(SqlError("25P02", text))

    def _execute(self, portal: _Portal, max_rows: int) -> None:
        statement = portal.statement
        if statement is None:
            self._send(messages.EMPTY_QUERY)
            return
        self._check_transaction(statement)
        if statement.is_query and not self._is_setting(statement):
            self._send_rows(portal, statement, max_rows)
        else:
            self._send(messages.command_complete(self._command(statement)))

    def _is_setting(self, statement: Statement) -> bool:
        return statement.words[:1] == ["show"] and self._settings.shown_name(statement.words) is not None

    def _send_rows(self, portal: _Portal, statement: Statement, max_rows: int) -> None:
        if portal.rows is None:
            self._open(portal, statement)
        assert portal.rows is not None  # opened
        sent_before = portal.sent
        while (batch := portal.batch or next(portal.rows, None)) is not None:
            allowed = self._engine.config.max_rows - portal.sent
            if not allowed:
                text = f"the answer has more than {self._engine.config.max_rows:,} rows (sql.max_rows): add a LIMIT"
                raise StatementFailed(SqlError("54000", text))
            row_count = min(allowed, max_rows - (portal.sent - sent_before) if max_rows else batch.num_rows)
            if not row_count:
                portal.batch = batch
                self._send(messages.PORTAL_SUSPENDED)
                return
            rows = batch.slice(0, row_count)
            while rows.nbytes > MAX_ROWS_BYTES and rows.num_rows > 1:
                rows = rows.slice(0, rows.num_rows // 2)
            if rows.nbytes > MAX_ROW_BYTES:
                raise StatementFailed(SqlError("54000", f"a row has at most {MAX_ROW_BYTES:,} bytes"))
            portal.batch = batch.slice(rows.num_rows) if rows.num_rows < batch.num_rows else None
            self._send(self._encoded(rows, portal))
            portal.sent += rows.num_rows
            if len(self._out) > BUFFERED_BYTES:
                self._flush()
        portal.close()
        verb = "EXPLAIN" if statement.words[:1] == ["explain"] else f"SELECT {portal.sent - sent_before}"
        self._send(messages.command_complete(verb))

    def _encoded(self, rows: pa.RecordBatch, portal: _Portal) -> memoryview:
        try:
            return data_rows(rows, portal.columns, portal.formats)
        except (ValueError, OverflowError, struct.error) as error:
            text = f"a value of the answer cannot be represented ({error}): cast it to VARCHAR"
            raise StatementFailed(SqlError("22003", text)) from None

    def _wait_for_turn(self, end_s: float, cancelled: threading.Event) -> None:
        """Wait until a query may run. Raises StatementFailed once the time is over or the query is cancelled."""
        while not self._engine.running.acquire(timeout=ACQUIRE_INTERVAL_S):
            if cancelled.is_set():
                raise StatementFailed(SqlError("57014", "the query was cancelled"))
            if time.monotonic() >= end_s:
                text = "too many queries run at once (sql.max_queries); try again"
                raise StatementFailed(SqlError("53300", text))

    def _open(self, portal: _Portal, statement: Statement) -> None:
        """Start the query of a portal. It counts as running until the portal is closed."""
        engine, preparation = self._engine, self._bound_preparation()
        text = preparation.translate(statement, portal.literals).text
        cancelled: threading.Event = _Cancelled(self._wire)
        portal.end_s = time.monotonic() + engine.config.timeout
        # Order: a cancel request must reach the query while it waits, too.
        self._cancelled = cancelled
        self._wait_for_turn(portal.end_s, cancelled)
        query: Query | None = None

        def close() -> None:
            # Once: the place of a running query must not be given back twice.
            portal.close = lambda: None
            portal.rows, portal.batch = iter(()), None
            if query is not None:
                query.close()
            engine.running.release()

        portal.close = close
        try:
            tables = engine.tables(self._readable())
            query = Query(
                tables,
                text,
                timeout_s=max(portal.end_s - time.monotonic(), ACQUIRE_INTERVAL_S),
                cancelled=cancelled,
                memory_bytes=engine.config.memory,
                prepare=lambda connection: preparation.install(connection, text),
            )
        except OSError as error:
            close()
            raise self._unreadable(error) from None
        except BaseException:
            close()
            raise

        def express(kinds: Sequence[str]) -> list[str]:
            answered = zip(portal.columns, kinds, portal.formats, strict=True)
            return [
                f"{expression(entry, f'#{n}', kind, form)} AS c{n}" for n, (entry, kind, form) in enumerate(answered, 1)
            ]

        portal.rows = query.stream(express, engine.config.max_rows + 1)

    def _command(self, statement: Statement) -> str:
        """Carry out a statement that reads no tables; return its tag. Raises StatementFailed."""
        words = statement.words
        verb = words[0] if words else ""
        if verb in _TRANSACTIONS:
            return self._transaction(verb, words)
        match verb:
            case "set":
                self._send(self._settings.change(statement))
                return "SET"
            case "show":
                return self._show(words)
            case "reset":
                return "RESET"
            case "discard":
                if words[1:2] == ["all"]:
                    self._prepared.clear()
                    self._close_portals()
                return "DISCARD ALL" if words[1:2] == ["all"] else "DISCARD"
            case "deallocate":
                self._deallocate(statement)
                return "DEALLOCATE"
            case "unlisten":
                return "UNLISTEN"
            case "close":
                return "CLOSE CURSOR"
        if verb in _CHANGES:
            if verb == "copy":
                raise StatementFailed(SqlError("0A000", "COPY is not supported: only SELECT is"))
            raise StatementFailed(SqlError(READ_ONLY, "the tables are read-only: only SELECT is allowed"))
        if verb in _UNSUPPORTED:
            raise StatementFailed(SqlError("0A000", f"{verb.upper()} is not supported"))
        token = statement.significant[0]
        raise StatementFailed(SqlError("42601", f'syntax error at or near "{token.text[:40]}"', token.position + 1))

    def _transaction(self, verb: str, words: Sequence[str]) -> str:
        tag = _TRANSACTIONS[verb]
        if verb in ("savepoint", "release") or (verb == "rollback" and "to" in words):
            if self._state == FAILED and verb == "rollback":
                self._state = IN_TRANSACTION
            return tag
        if verb in ("begin", "start"):
            if self._state != IDLE:
                self._send(messages.notice("there is already a transaction in progress"))
            self._state = IN_TRANSACTION
            return tag
        # PostgreSQL answers a COMMIT of a failed transaction so.
        failed = self._state == FAILED
        self._state = IDLE
        self._close_portals()
        return "ROLLBACK" if failed else tag

    def _show(self, words: Sequence[str]) -> str:
        name = self._settings.shown_name(words) or ""
        row = pa.record_batch({"setting": pa.array([self._settings.texts.get(name, "")], pa.string())})
        self._send(data_rows(row, [Column(name, TEXT)], [TEXT_FORMAT]))
        return "SHOW"

    def _deallocate(self, statement: Statement) -> None:
        names = [token.identifier for token in statement.significant[1:] if not token.is_word("prepare")]
        if names == ["all"]:
            self._prepared.clear()
        elif names:
            self._statement(names[0])
            del self._prepared[names[0]]

    def _send_error(self, error: SqlError) -> None:
        self._engine.counts[error.code] += 1
        if self._state == IN_TRANSACTION:
            self._state = FAILED
        if self._state == IDLE:
            self._close_portals()
        self._send(messages.error_response(error))

    def _send_ready(self) -> None:
        self._send(messages.ready(self._state))
        self._flush()

    def _send(self, content: bytes | memoryview) -> None:
        self._out += content

    def _flush(self) -> None:
        if self._out:
            out, self._out = self._out, bytearray()
            self._wire.send(memoryview(out))


def _spread(formats: Sequence[int], count: int) -> list[int]:
    """Return a format for each field: none given means text, and a single one is meant for all."""
    spread = list(formats) if len(formats) > 1 else [formats[0] if formats else TEXT_FORMAT] * count
    if len(spread) != count or any(form not in (TEXT_FORMAT, BINARY_FORMAT) for form in spread):
        raise ProtocolViolation("there is not a format for each field")
    return spread


def _error_of(error: Exception) -> SqlError:
    match error:
        case StatementFailed():
            return error.error
        case BadParameter():
            return SqlError("22P02", str(error))
        case BadQuery() if str(error) == "cancelled":
            return SqlError("57014", "the query was cancelled")
        case BadQuery():
            return SqlError(code_of(error.cause) if error.cause is not None else READ_ONLY, str(error))
        case MemoryError():
            return SqlError("53200", "out of memory")
    return SqlError(INTERNAL, str(error))
