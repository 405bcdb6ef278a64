"""The messages of an extended query: Parse, Bind, Describe and Close."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.sql.postgres import messages
from penstock.sql.postgres.messages import ProtocolViolation, SqlError
from penstock.sql.postgres.parameters import literal
from penstock.sql.postgres.session.client_catalog import ClientCatalog
from penstock.sql.postgres.session.output import Output
from penstock.sql.postgres.session.portals import Portal, Portals
from penstock.sql.postgres.session.preparation import StatementFailed, split_checked
from penstock.sql.postgres.session.prepared_statements import PreparedStatement, PreparedStatements
from penstock.sql.postgres.session.transactions import Transaction
from penstock.sql.postgres.statements.statement import split
from penstock.sql.postgres.types import BINARY_FORMAT, TEXT, TEXT_FORMAT


class ExtendedQuery:
    """Prepares the statements of one session and binds their parameters, on its thread."""

    def __init__(
        self,
        output: Output,
        prepared: PreparedStatements,
        portals: Portals,
        transaction: Transaction,
        catalog: ClientCatalog,
    ) -> None:
        self._output, self._prepared, self._portals = output, prepared, portals
        self._transaction, self._catalog = transaction, catalog

    def parse(self, fields: messages.Reader) -> None:
        """Parse: prepare a statement. Raises StatementFailed, ProtocolViolation."""
        name, text, oids = fields.text(), fields.text(), fields.integers("I")
        statements = split_checked(text)
        if len(statements) > 1:
            raise StatementFailed(SqlError("42601", "a prepared statement is one statement"))
        for statement in statements:
            self._transaction.check(statement)
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
                prepared.columns = self._catalog.columns(
                    statements[0], [literal(oid, TEXT_FORMAT, None) for oid in prepared.oids]
                )
            except StatementFailed as error:
                if not count:
                    raise
                prepared.columns, prepared.failure = None, error
        self._prepared.add(name, prepared)
        self._output.send(messages.PARSE_COMPLETE)

    def bind(self, fields: messages.Reader) -> None:
        """Bind: make a portal of a prepared statement and its parameters. Raises StatementFailed, ProtocolViolation."""
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
            columns = self._catalog.columns(statement, literals)
        columns = columns or []
        self._portals.add(name, Portal(statement, literals, columns, _spread(answer_formats, len(columns))))
        self._output.send(messages.BIND_COMPLETE)

    def describe(self, fields: messages.Reader) -> None:
        """Describe: send the columns of a statement or a portal. Raises StatementFailed, ProtocolViolation."""
        kind, name = fields.read_bytes(1), fields.text()
        if kind == b"S":
            prepared = self._prepared.named(name)
            self._infer_parameters(prepared)
            if prepared.columns is None and prepared.failure is not None:
                raise prepared.failure
            prepared.described = True
            self._output.send(messages.parameter_description([oid or TEXT.oid for oid in prepared.oids]))
            columns, formats = prepared.columns or [], [TEXT_FORMAT] * len(prepared.columns or [])
        elif kind == b"P":
            portal = self._portals.named(name)
            columns, formats = portal.columns, portal.formats
        else:
            raise ProtocolViolation("only a statement or a portal can be described")
        self._output.send(messages.row_description(columns, formats) if columns else messages.NO_DATA)

    def _infer_parameters(self, prepared: PreparedStatement) -> None:
        """Give parameters without a declared type the one that their place needs: clients that ask for the types, such
        as asyncpg, pgx and tokio-postgres, encode by them and refuse numbers and times for text.
        """
        if prepared.described or all(prepared.oids):
            return
        (statement,) = split(prepared.text)
        inferred = self._catalog.preparation().infer_parameters(statement, prepared.oids)
        if inferred != prepared.oids:
            prepared.oids = inferred
            literals = [literal(oid, TEXT_FORMAT, None) for oid in inferred]
            prepared.columns = self._catalog.columns(statement, literals)

    def close(self, fields: messages.Reader) -> None:
        """Close: release a statement or a portal. Raises StatementFailed, ProtocolViolation."""
        kind, name = fields.read_bytes(1), fields.text()
        if kind == b"S":
            self._prepared.close(name)
        elif kind == b"P":
            self._portals.close(name)
        else:
            raise ProtocolViolation("a statement or a portal can be closed")
        self._output.send(messages.CLOSE_COMPLETE)


def _spread(formats: Sequence[int], count: int) -> list[int]:
    """Return a format for each field: an empty list means text, and a single format applies to all fields."""
    spread = list(formats) if len(formats) > 1 else [formats[0] if formats else TEXT_FORMAT] * count
    if len(spread) != count or any(form not in (TEXT_FORMAT, BINARY_FORMAT) for form in spread):
        raise ProtocolViolation("there is not a format for each field")
    return spread
