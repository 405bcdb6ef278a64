"""Messages of PostgreSQL's protocol: read from a client, and written to it.

Limit: a message's length is checked before its bytes are read, and memory grows with the bytes that have arrived.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.sql.postgres.types import Column

PROTOCOL_MAJOR = 3
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
MAX_STARTUP_BYTES = 10_000
"""Limit of PostgreSQL for the first message and the password."""
MAX_MESSAGE_BYTES = 1 << 20
"""Limit for a statement with its parameters. It bounds the time to split a text, too."""
RECEIVED_BYTES = 1 << 16
MAX_PARAMETERS = 65_535


class ProtocolViolation(PenstockError, ValueError):
    """Bytes that are not a message of the protocol, after which the connection cannot continue."""


class Reader:
    """Fields of one message, in order. Raises ProtocolViolation for a field that is not there."""

    def __init__(self, body: bytes) -> None:
        self._body, self._position = body, 0

    def read_bytes(self, length: int) -> bytes:
        """Return the next bytes."""
        end = self._position + length
        if length < 0 or end > len(self._body):
            raise ProtocolViolation("a message ends in the middle of a field")
        field, self._position = self._body[self._position : end], end
        return field

    def integer(self, form: str) -> int:
        """Return the next number; ``form`` is its letter in ``struct``."""
        number: int = struct.unpack(f"!{form}", self.read_bytes(struct.calcsize(f"!{form}")))[0]
        return number

    def integers(self, form: str) -> list[int]:
        """Return a count of two bytes, then that many numbers."""
        count = self.integer("H")
        size = struct.calcsize(f"!{form}")
        return list(struct.unpack(f"!{count}{form}", self.read_bytes(count * size)))

    def text(self) -> str:
        """Return the next text, which a zero byte ends."""
        end = self._body.find(b"\0", self._position)
        if end < 0:
            raise ProtocolViolation("a text has no end")
        text = self.read_bytes(end - self._position)
        self._position += 1
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise ProtocolViolation("a text is not UTF-8") from None

    @property
    def is_empty(self) -> bool:
        """Report whether all fields were taken."""
        return self._position == len(self._body)


class Incoming:
    """Messages of a client. ``receive`` returns the next bytes, empty at the end of the connection."""

    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self.receive, self._bytes = receive, bytearray()

    def first(self) -> tuple[int, Reader]:
        """Return code and fields of the first message. Raises ProtocolViolation, EOFError, OSError."""
        length = self._length(MAX_STARTUP_BYTES)
        fields = Reader(self._consume(length))
        return fields.integer("I"), fields

    def next(self, max_bytes: int = MAX_MESSAGE_BYTES) -> tuple[bytes, Reader]:
        """Return type and fields of the next message. Raises ProtocolViolation, EOFError, OSError."""
        # A timeout leaves what has arrived for the next call, so nothing is taken before the message is complete.
        self._fill(5)
        length = int.from_bytes(self._bytes[1:5], "big") - 4
        if not 0 <= length <= max_bytes:
            raise ProtocolViolation(f"a message has {length:,} bytes; {max_bytes:,} are allowed")
        self._fill(5 + length)
        kind = self._consume(1)
        self._consume(4)
        return kind, Reader(self._consume(length))

    @property
    def has_bytes(self) -> bool:
        """Report whether bytes have arrived that no message was made of."""
        return bool(self._bytes)

    def _length(self, max_bytes: int) -> int:
        length = int.from_bytes(self._consume(4), "big") - 4
        if not 4 <= length <= max_bytes:
            raise ProtocolViolation(f"the first message has {length:,} bytes")
        return length

    def _fill(self, count: int) -> None:
        while len(self._bytes) < count:
            received = self.receive(RECEIVED_BYTES)
            if not received:
                raise EOFError
            self._bytes += received

    def _consume(self, count: int) -> bytes:
        self._fill(count)
        content = bytes(self._bytes[:count])
        del self._bytes[:count]
        return content


@dataclass(frozen=True, slots=True)
class SqlError:
    """An error as clients see it: a code of PostgreSQL, a text, and a position in the statement (from 1; 0: none)."""

    code: str
    text: str
    position: int = 0
    hint: str = ""


def message(kind: bytes, body: bytes = b"") -> bytes:
    """Return a message."""
    return kind + struct.pack("!I", len(body) + 4) + body


def text_field(text: str) -> bytes:
    """Return a text with its end. A zero byte within the text would end it early, so it is left out."""
    return text.replace("\0", "").encode(errors="replace") + b"\0"


def authentication(code: int) -> bytes:
    """Return a request for authentication: 0 accepts the client, 3 asks for the password."""
    return message(b"R", struct.pack("!I", code))


def parameter_status(name: str, setting: str) -> bytes:
    """Return a setting of the session that clients follow."""
    return message(b"S", text_field(name) + text_field(setting))


def backend_key(process: int, secret: int) -> bytes:
    """Return the message with the key that cancels a query of this connection."""
    return message(b"K", struct.pack("!II", process, secret))


def negotiate_version(minor: int, unknown_options: Sequence[str]) -> bytes:
    """Return the newest minor version of the protocol, and the options of the client that do not exist here."""
    options = b"".join(map(text_field, unknown_options))
    return message(b"v", struct.pack("!II", PROTOCOL_MAJOR << 16 | minor, len(unknown_options)) + options)


def ready(state: bytes) -> bytes:
    """Return the end of an answer: ``I`` idle, ``T`` in a transaction, ``E`` in a failed one."""
    return message(b"Z", state)


def error_response(error: SqlError, severity: str = "ERROR", kind: bytes = b"E") -> bytes:
    """Return an error, or a notice (``kind`` N)."""
    fields = {"S": severity, "V": severity, "C": error.code, "M": error.text or "error"}
    if error.hint:
        fields["H"] = error.hint
    if error.position:
        fields["P"] = str(error.position)
    return message(kind, b"".join(name.encode() + text_field(text) for name, text in fields.items()) + b"\0")


def notice(text: str, warning_code: str = "") -> bytes:
    """Return a notice, or a warning with its code; clients show or log both."""
    return error_response(SqlError(warning_code or "00000", text), "WARNING" if warning_code else "NOTICE", b"N")


def row_description(columns: Sequence[Column], formats: Sequence[int]) -> bytes:
    """Return names and types of an answer's columns; a format is 0 for text, 1 for binary."""
    body = [struct.pack("!H", len(columns))]
    for column, form in zip(columns, formats, strict=True):
        numbers = struct.pack("!IHIhiH", 0, 0, column.kind.oid, column.kind.size, column.modifier, form)
        body.append(text_field(column.name) + numbers)
    return message(b"T", b"".join(body))


def parameter_description(oids: Sequence[int]) -> bytes:
    """Return the types of a statement's parameters."""
    return message(b"t", struct.pack(f"!H{len(oids)}I", len(oids), *oids))


def command_complete(tag: str) -> bytes:
    """Return the end of one statement's answer, such as ``SELECT 3``."""
    return message(b"C", text_field(tag))


PARSE_COMPLETE, BIND_COMPLETE, CLOSE_COMPLETE = message(b"1"), message(b"2"), message(b"3")
NO_DATA, EMPTY_QUERY, PORTAL_SUSPENDED = message(b"n"), message(b"I"), message(b"s")
