"""The start of a session: the client's password, and the database that it asks for."""

from __future__ import annotations

from penstock.sql.postgres import messages
from penstock.sql.postgres.access import Engine, Reader, RightsUnknown, WrongPassword
from penstock.sql.postgres.catalog.system_catalog import DATABASE
from penstock.sql.postgres.messages import Incoming, ProtocolViolation, SqlError
from penstock.sql.postgres.session.output import Output


def authenticate(incoming: Incoming, output: Output, engine: Engine, database: str) -> Reader | None:
    """Ask for the password and check it; return the client's rights, or None once the client has the reason why not.

    Raises ProtocolViolation, OSError.
    """
    token = ""
    if engine.rights.need_token:
        output.send(messages.authentication(3))
        output.flush()
        kind, fields = incoming.next(messages.MAX_STARTUP_BYTES)
        if kind != b"p":
            raise ProtocolViolation("a password is expected")
        token = fields.text()
    reader = Reader(engine.rights, token)
    refusal = _refusal(reader, database)
    if refusal is None:
        output.send(messages.authentication(0))
        return reader
    reason, error = refusal
    engine.counts[reason] += 1
    output.send(messages.error_response(error, "FATAL"))
    output.flush()
    return None


def _refusal(reader: Reader, database: str) -> tuple[str, SqlError] | None:
    """Return the counted reason of a refusal and its message; None if the client is admitted."""
    try:
        reader.topics()
    except WrongPassword as error:
        return "wrong password", SqlError("28P01", str(error))
    except RightsUnknown as error:
        return "rights unknown", SqlError("57P03", str(error))
    if database not in (DATABASE, ""):
        text = f'database "{database}" does not exist; the only one is "{DATABASE}"'
        return "unknown database", SqlError("3D000", text)
    return None
