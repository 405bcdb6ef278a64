"""A connection of a client of PostgreSQL, from its password to its end: simple and extended queries.

Each statement reads the newest rows of the tables and the log: a transaction holds no snapshot, as nothing can be
changed in it. An error fails a transaction as in PostgreSQL, because clients rely on that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.sql.postgres import messages
from penstock.sql.postgres.access import Engine, Reader
from penstock.sql.postgres.messages import Incoming, ProtocolViolation, SqlError
from penstock.sql.postgres.parameters import BadParameter
from penstock.sql.postgres.session.client_catalog import ClientCatalog
from penstock.sql.postgres.session.commands import Commands
from penstock.sql.postgres.session.execution import Execution
from penstock.sql.postgres.session.extended_query import ExtendedQuery
from penstock.sql.postgres.session.output import Output, Wire
from penstock.sql.postgres.session.portals import Portal, Portals
from penstock.sql.postgres.session.preparation import INTERNAL, READ_ONLY, StatementFailed, code_of, split_checked
from penstock.sql.postgres.session.prepared_statements import PreparedStatements
from penstock.sql.postgres.session.settings import SessionSettings
from penstock.sql.postgres.session.transactions import IDLE, Transaction
from penstock.sql.postgres.types import TEXT_FORMAT
from penstock.sql.query import BadQuery

_KINDS = b"QPBDECSHdcfFX"
"""Types of messages."""
_ZONE_OPTION = re.compile(r"(?:-c\s*|--)timezone=(\S+)", re.IGNORECASE)


class Session:
    """A connection after its start-up. Runs on a thread of its own; ``cancel`` may be called on any thread."""

    def __init__(
        self,
        wire: Wire,
        incoming: Incoming,
        output: Output,
        engine: Engine,
        reader: Reader,
        options: Mapping[str, str],
    ) -> None:
        self._wire, self._incoming, self._output, self._engine = wire, incoming, output, engine
        user = options.get("user", "")
        self._settings = SessionSettings(user, options.get("application_name", ""), _zone_of(options))
        self._portals = portals = Portals(engine, wire.is_closed)
        prepared = PreparedStatements()
        self._transaction = transaction = Transaction(output, portals, self._settings)
        self._catalog = ClientCatalog(engine, reader, user, self._settings, portals)
        commands = Commands(output, self._settings, prepared, portals, transaction)
        self._execution = Execution(output, self._settings, portals, transaction, self._catalog, commands)
        self._extended = ExtendedQuery(output, prepared, portals, transaction, self._catalog)

    def start(self, process: int, secret: int) -> None:
        """Send the settings of the session, and the key that cancels its queries."""
        self._catalog.process = process
        for name, setting in self._settings.reported():
            self._output.send(messages.parameter_status(name, setting))
        self._output.send(messages.backend_key(process, secret))
        self._output.send(messages.ready(IDLE))
        self._output.flush()

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
            self._output.flush_full()

    def close(self) -> None:
        """Release the queries of the session."""
        self._portals.close_all(held=True)
        self._catalog.close()

    def _next_message(self) -> tuple[bytes, messages.Reader]:
        while True:
            try:
                return self._incoming.next()
            except TimeoutError:
                self._portals.close_late()

    def receive(self, count: int) -> bytes:
        """Return the next bytes of the client; raises TimeoutError when rows have waited too long to be fetched."""
        self._output.flush()
        return self._wire.receive(count, self._portals.remaining_s())

    def _handle(self, kind: bytes, fields: messages.Reader) -> None:
        match kind:
            case b"Q":
                self._simple_query(fields.text())
            case b"P":
                self._extended.parse(fields)
            case b"B":
                self._extended.bind(fields)
            case b"D":
                self._extended.describe(fields)
            case b"E":
                self._execution.execute(self._portals.named(fields.text()), fields.integer("I"))
            case b"C":
                self._extended.close(fields)
            case b"S":
                if self._transaction.state == IDLE:
                    self._portals.close_all()
                self._send_ready()
            case b"H":
                self._output.flush()
            case b"d" | b"c" | b"f":
                pass  # rows of a COPY that was refused
            case b"F":
                raise StatementFailed(SqlError("0A000", "function calls are not supported"))
            case _:
                raise ProtocolViolation(f"a message has the unknown type {kind!r}")

    def _simple_query(self, text: str) -> None:
        statements = split_checked(text)
        if not statements:
            self._output.send(messages.EMPTY_QUERY)
        for statement in statements:
            columns = self._catalog.columns(statement, [])
            portal = Portal(statement, [], columns, [TEXT_FORMAT] * len(columns))
            self._transaction.check(statement)
            if columns:
                self._output.send(messages.row_description(columns, portal.formats))
            try:
                self._execution.execute(portal, 0)
            finally:
                portal.close()
        self._send_ready()

    def _send_error(self, error: SqlError) -> None:
        self._engine.counts[error.code] += 1
        self._transaction.fail()
        self._output.send(messages.error_response(error))

    def _send_ready(self) -> None:
        self._output.send(messages.ready(self._transaction.state))
        self._output.flush()


def _zone_of(options: Mapping[str, str]) -> str:
    """Return the time zone that a client's first message asks for, as Java's and libpq's clients send it."""
    own = {name.lower(): text for name, text in options.items()}
    match = _ZONE_OPTION.search(own.get("options", ""))
    return own.get("timezone") or (match[1] if match else "")


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
