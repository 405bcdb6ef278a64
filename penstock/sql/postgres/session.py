"""A connection of a client of PostgreSQL, from its password to its end: simple and extended queries.

Each statement reads the newest rows of the tables and the log: a transaction holds no snapshot, as nothing can be
changed in it. An error fails a transaction as in PostgreSQL, because clients rely on that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.sql.catalog import read_catalog
from penstock.sql.postgres import cursors, messages
from penstock.sql.postgres.access import Engine, Reader, RightsUnknown, WrongPassword
from penstock.sql.postgres.copying import Copy, read_copy
from penstock.sql.postgres.messages import Incoming, ProtocolViolation, SqlError
from penstock.sql.postgres.parameters import BadParameter, literal
from penstock.sql.postgres.portals import Portal, Portals, unreadable
from penstock.sql.postgres.preparation import INTERNAL, READ_ONLY, Preparation, StatementFailed, code_of, syntax_error
from penstock.sql.postgres.prepared_statements import PreparedStatement, PreparedStatements
from penstock.sql.postgres.rows import data_rows
from penstock.sql.postgres.settings import SessionSettings
from penstock.sql.postgres.statements import Statement, split
from penstock.sql.postgres.system_catalog import DATABASE, SystemCatalog
from penstock.sql.postgres.types import BINARY_FORMAT, TEXT, TEXT_FORMAT, Column
from penstock.sql.query import BadQuery

CATALOG_MAX_AGE_S = 30.0
"""Time after which new topics and tables are seen by the statements of a connection."""
MAX_STATEMENT_CHARS = 1 << 18
BUFFERED_BYTES = 1 << 16
IDLE, IN_TRANSACTION, FAILED = b"I", b"T", b"E"
_KINDS = b"QPBDECSHdcfFX"
"""Types of messages."""
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
        *("call", "do", "lock", "vacuum", "analyze", "reindex", "cluster", "refresh", "import", "security"),
        *("attach", "detach", "install", "load", "export", "checkpoint", "pragma", "use"),
    }
)
_UNSUPPORTED = frozenset({"listen", "notify", "prepare", "execute", "move"})
_ENDS_FAILED = frozenset({"rollback", "abort", "commit", "end"})


class Wire(Protocol):
    """The bytes of one connection."""

    def receive(self, count: int, timeout_s: float | None) -> bytes:
        """Return the next bytes, empty at the end. Raises TimeoutError, OSError."""

    def send(self, content: bytes | memoryview) -> None:
        """Send all bytes. Raises OSError."""

    def is_closed(self) -> bool:
        """Report whether the client has closed the connection."""


class Session:
    """A connection after its first message. Runs on a thread of its own; ``cancel`` may be called on any thread."""

    def __init__(self, wire: Wire, incoming: Incoming, engine: Engine, options: Mapping[str, str]) -> None:
        self._wire, self._incoming, self._engine = wire, incoming, engine
        self._user = options.get("user", "")
        self._settings = SessionSettings(self._user, options.get("application_name", ""))
        self._database = options.get("database", self._user)
        self._out = bytearray()
        self._state = IDLE
        self._prepared = PreparedStatements()
        self._portals = Portals(engine, wire.is_closed)
        self._process = 0
        self._reader: Reader | None = None
        self._preparation: Preparation | None = None
        self._prepared_until_s = 0.0
        self._prepared_for: frozenset[str] | None = None

    def log_in(self) -> bool:
        """Ask for the password and check it; report whether the client is admitted, and tell it why not.

        Raises ProtocolViolation, OSError.
        """
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
        """Send the settings of the session, and the key that cancels its queries."""
        self._process = process
        for name, setting in self._settings.reported():
            self._send(messages.parameter_status(name, setting))
        self._send(messages.backend_key(process, secret))
        self._send(messages.ready(IDLE))
        self._flush()

    def cancel(self) -> None:
        """End the query that runs now, if any."""
        self._portals.cancel()

    def run(self) -> None:
        """Answer until the client ends the connection. Raises ProtocolViolation, EOFError, OSError."""
        skipping = False
        while True:
            kind, fields = self._next_message()
            # A client that sends messages without a pause must not keep a query beyond its time, either.
            self._portals.close_late()
            if kind == b"X":
                return
            if skipping and kind != b"S":
                continue
            try:
                skipping = False
                self._handle(kind, fields)
            except (StatementFailed, PenstockError, pa.ArrowException, MemoryError) as error:
                # A message with wrong fields was read to its end, so the next one can be read; see PostgreSQL.
                if isinstance(error, ProtocolViolation) and kind not in _KINDS:
                    raise
                self._send_error(_error_of(error))
                # After an error the client's messages count for nothing up to its Sync; a simple query and a function
                # call have none.
                skipping = kind not in (b"Q", b"S", b"F")
                if kind in (b"Q", b"F"):
                    self._send_ready()
            if len(self._out) > BUFFERED_BYTES:
                self._flush()

    def close(self) -> None:
        """Release the queries of the session."""
        self._portals.close_all(held=True)
        if self._preparation is not None:
            self._preparation.close()

    def _next_message(self) -> tuple[bytes, messages.Reader]:
        while True:
            try:
                return self._incoming.next()
            except TimeoutError:
                self._portals.close_late()

    def receive(self, count: int) -> bytes:
        """Return the next bytes of the client; raises TimeoutError when rows have waited too long to be fetched."""
        self._flush()
        return self._wire.receive(count, self._portals.remaining_s())

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
                self._execute(self._portals.named(fields.text()), fields.integer("I"))
            case b"C":
                self._close(fields)
            case b"S":
                if self._state == IDLE:
                    self._portals.close_all()
                self._send_ready()
            case b"H":
                self._flush()
            case b"d" | b"c" | b"f":
                pass  # rows of a COPY that was refused
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
            portal = Portal(statement, [], columns, [TEXT_FORMAT] * len(columns))
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
        for statement in statements:
            self._check_transaction(statement)
        self._prepared.make_room(name, text)
        prepared = PreparedStatement(text, oids, [])
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
        self._prepared.add(name, prepared)
        self._send(messages.PARSE_COMPLETE)

    def _bind(self, fields: messages.Reader) -> None:
        name, statement_name = fields.text(), fields.text()
        prepared = self._prepared.named(statement_name)
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
        self._portals.add(name, Portal(statement, literals, columns, _spread(answer_formats, len(columns))))
        self._send(messages.BIND_COMPLETE)

    def _describe(self, fields: messages.Reader) -> None:
        kind, name = fields.read_bytes(1), fields.text()
        if kind == b"S":
            prepared = self._prepared.named(name)
            self._infer_parameters(prepared)
            if prepared.columns is None and prepared.failure is not None:
                raise prepared.failure
            prepared.described = True
            self._send(messages.parameter_description([oid or TEXT.oid for oid in prepared.oids]))
            columns, formats = prepared.columns or [], [TEXT_FORMAT] * len(prepared.columns or [])
        elif kind == b"P":
            portal = self._portals.named(name)
            columns, formats = portal.columns, portal.formats
        else:
            raise ProtocolViolation("a description is of a statement or a portal")
        self._send(messages.row_description(columns, formats) if columns else messages.NO_DATA)

    def _infer_parameters(self, prepared: PreparedStatement) -> None:
        """Give parameters without a declared type the one that their place needs: clients that ask for the types, such
        as asyncpg, pgx and tokio-postgres, encode by them and refuse numbers and times for text.
        """
        if prepared.described or all(prepared.oids):
            return
        (statement,) = split(prepared.text)
        inferred = self._bound_preparation().infer_parameters(statement, prepared.oids)
        if inferred != prepared.oids:
            prepared.oids = inferred
            literals = [literal(oid, TEXT_FORMAT, None) for oid in inferred]
            prepared.columns = self._columns(statement, literals)

    def _close(self, fields: messages.Reader) -> None:
        kind, name = fields.read_bytes(1), fields.text()
        if kind == b"S":
            self._prepared.close(name)
        elif kind == b"P":
            self._portals.close(name)
        else:
            raise ProtocolViolation("a statement or a portal can be closed")
        self._send(messages.CLOSE_COMPLETE)

    def _columns(self, statement: Statement, literals: Sequence[str]) -> list[Column]:
        """Return the columns of a statement's answer, without running it. Raises StatementFailed."""
        words = statement.words
        if words[:1] == ["show"] and (setting := self._settings.shown_name(words)):
            return [Column(setting, TEXT)]
        if words[:1] == ["fetch"]:
            cursor = self._portals.find_portal(cursors.read_fetch(statement).name)
            return cursor.columns if cursor else []
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
                raise unreadable(error) from None
            catalog = SystemCatalog(tables, self._user, self._settings.texts, self._process)
            preparation = Preparation(catalog)
            if self._preparation is not None:
                self._preparation.close()
            self._preparation, self._prepared_for = preparation, readable
            self._prepared_until_s = now_s + CATALOG_MAX_AGE_S
        return self._preparation

    def _readable(self) -> frozenset[str] | None:
        assert self._reader is not None  # set before the first statement
        try:
            return self._reader.topics()
        except WrongPassword:
            raise StatementFailed(SqlError("28000", "the token was revoked")) from None
        except RightsUnknown as error:
            raise StatementFailed(SqlError("57P03", str(error))) from None

    def _check_transaction(self, statement: Statement) -> None:
        if self._state == FAILED and not _ENDS_FAILED.intersection(statement.words[:1]):
            text = "the transaction has failed: its statements are ignored until ROLLBACK"
            raise StatementFailed(SqlError("25P02", text))

    def _execute(self, portal: Portal, max_rows: int) -> None:
        statement = portal.statement
        if statement is None:
            self._send(messages.EMPTY_QUERY)
            return
        self._check_transaction(statement)
        if statement.is_query and not self._is_setting(statement):
            row_count = self._send_rows(portal, max_rows)
            if portal.batch is not None:
                self._send(messages.PORTAL_SUSPENDED)
                return
            tag = "EXPLAIN" if statement.words[:1] == ["explain"] else f"SELECT {row_count}"
        elif statement.words[:1] == ["declare"]:
            tag = self._declare(cursors.read_declaration(statement), portal.literals)
        elif statement.words[:1] == ["fetch"]:
            tag = self._fetch(cursors.read_fetch(statement), portal.formats)
        elif statement.words[:1] == ["copy"]:
            tag = self._copy(read_copy(statement), portal.literals)
        else:
            tag = self._command(statement)
        self._send(messages.command_complete(tag))

    def _is_setting(self, statement: Statement) -> bool:
        return statement.words[:1] == ["show"] and self._settings.shown_name(statement.words) is not None

    def _send_rows(self, portal: Portal, max_rows: int) -> int:
        """Send the next rows of a portal, all if ``max_rows`` is 0; return how many. Raises StatementFailed."""
        sent_before = portal.sent
        preparation = self._bound_preparation()
        self._portals.start(portal, preparation, self._readable())
        for rows in self._portals.rows(portal, max_rows):
            self._send(rows)
            if len(self._out) > BUFFERED_BYTES:
                self._flush()
        return portal.sent - sent_before

    def _declare(self, cursor: cursors.Declaration, literals: list[str]) -> str:
        if self._state == IDLE and not cursor.held:
            raise StatementFailed(SqlError("25P01", "DECLARE CURSOR can only be used in transaction blocks"))
        columns = self._columns(cursor.query, literals)
        portal = Portal(cursor.query, literals, columns, [TEXT_FORMAT] * len(columns), cursor.held, self._state != IDLE)
        self._portals.add(cursor.name, portal, "cursor")
        return "DECLARE CURSOR"

    def _fetch(self, fetch: cursors.Fetch, formats: list[int]) -> str:
        cursor = self._portals.named(fetch.name, "cursor")
        if cursor.rows is None:
            cursor.formats = formats
        elif cursor.formats != formats:
            raise StatementFailed(SqlError("0A000", "all rows of a cursor are fetched in the same formats"))
        try:
            return f"FETCH {self._send_rows(cursor, fetch.max_rows)}"
        except BaseException:
            # A cursor that failed must not end like one that has no more rows.
            self._portals.close(fetch.name)
            raise

    def _copy(self, copy: Copy, literals: list[str]) -> str:
        columns = self._columns(copy.query, literals)
        portal = Portal(copy.query, literals, columns, [copy.column_format] * len(columns), copy=copy)
        self._send(copy.start(columns))
        try:
            row_count = self._send_rows(portal, 0)
        finally:
            portal.close()
        self._send(copy.end(row_count))
        return f"COPY {row_count}"

    def _command(self, statement: Statement) -> str:
        """Carry out a statement that reads no tables; return its tag. Raises StatementFailed."""
        words = statement.words
        verb = words[0] if words else ""
        if verb in _TRANSACTIONS:
            return self._transaction(verb, words)
        match verb:
            case "set":
                self._send(self._settings.change(statement))
                return "SET CONSTRAINTS" if words[1:2] == ["constraints"] else "SET"
            case "show":
                return self._show(words)
            case "reset":
                self._send(self._settings.reset(statement))
                return "RESET"
            case "discard":
                if words[1:2] == ["all"]:
                    if self._state != IDLE:
                        raise StatementFailed(SqlError("25001", "DISCARD ALL cannot run inside a transaction block"))
                    self._prepared.clear()
                    self._portals.close_all(held=True)
                    self._send(self._settings.reset_all())
                return "DISCARD ALL" if words[1:2] == ["all"] else "DISCARD"
            case "deallocate":
                self._deallocate(statement)
                return "DEALLOCATE"
            case "unlisten":
                return "UNLISTEN"
            case "close":
                return self._close_cursor(statement)
        if verb in _CHANGES:
            raise StatementFailed(SqlError(READ_ONLY, "the tables are read-only: only SELECT is allowed"))
        if verb in _UNSUPPORTED:
            raise StatementFailed(SqlError("0A000", f"{verb.upper()} is not supported"))
        raise syntax_error(statement.significant[0])

    def _transaction(self, verb: str, words: Sequence[str]) -> str:
        tag = _TRANSACTIONS[verb]
        if verb in ("savepoint", "release") or (verb == "rollback" and "to" in words):
            if self._state == IDLE:
                raise StatementFailed(SqlError("25P01", f"{tag} can only be used in transaction blocks"))
            if self._state == FAILED and verb == "rollback":
                self._state = IN_TRANSACTION
            return tag
        if verb in ("begin", "start"):
            if self._state != IDLE:
                self._send(messages.notice("there is already a transaction in progress", "25001"))
            self._state = IN_TRANSACTION
            self._settings.begin()
            return tag
        if self._state == IDLE:
            self._send(messages.notice("there is no transaction in progress", "25P01"))
        # PostgreSQL answers ROLLBACK to a COMMIT of a failed transaction.
        failed = self._state == FAILED
        self._state = IDLE
        committed = tag == "COMMIT" and not failed
        self._portals.end_transaction(committed=committed)
        self._send(self._settings.end(committed))
        return "ROLLBACK" if failed else tag

    def _close_cursor(self, statement: Statement) -> str:
        name = statement.significant[-1]
        if name.is_word("all"):
            self._portals.close_all(held=True)
            return "CLOSE CURSOR ALL"
        self._portals.named(name.identifier, "cursor")
        self._portals.close(name.identifier)
        return "CLOSE CURSOR"

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
            self._prepared.named(names[0])
            self._prepared.close(names[0])

    def _send_error(self, error: SqlError) -> None:
        self._engine.counts[error.code] += 1
        if self._state == IN_TRANSACTION:
            self._state = FAILED
        if self._state == IDLE:
            self._portals.close_all()
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
    """Return a format for each field: an empty list means text, and a single format applies to all fields."""
    spread = list(formats) if len(formats) > 1 else [formats[0] if formats else TEXT_FORMAT] * count
    if len(spread) != count or any(form not in (TEXT_FORMAT, BINARY_FORMAT) for form in spread):
        raise ProtocolViolation("there is not a format for each field")
    return spread


def _error_of(error: Exception) -> SqlError:
    match error:
        case StatementFailed():
            return error.error
        case ProtocolViolation():
            return SqlError("08P01", str(error))
        case BadParameter():
            return SqlError("22P02", str(error))
        case BadQuery() if str(error) == "cancelled":
            return SqlError("57014", "the query was cancelled")
        case BadQuery():
            return SqlError(code_of(error.cause) if error.cause is not None else READ_ONLY, str(error))
        case MemoryError():
            return SqlError("53200", "out of memory")
    return SqlError(INTERNAL, str(error))
