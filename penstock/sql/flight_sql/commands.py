"""Messages of Arrow Flight SQL: commands of clients, and handles of statements.

A handle is the statement itself with its parameters, so the server remembers nothing of its clients.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.files.json_values import parse_object
from penstock.server.flight.batch_messages import bytes_field
from penstock.slogd.errors import BadRequest

PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
MAX_STATEMENT_CHARS = 1 << 18
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_MAX_FIELDS = 1_000


@dataclass(frozen=True, slots=True)
class Command:
    """A message of Flight SQL: its name, and its fields by number in the order of the message."""

    name: str
    texts: Mapping[int, list[bytes]]
    numbers: Mapping[int, list[int]]

    def text(self, number: int) -> str | None:
        """Return a text field; None if it is absent. Raises BadRequest."""
        fields = self.texts.get(number)
        return None if not fields else _decode(fields[-1])

    def text_list(self, number: int) -> list[str]:
        """Return a repeated text field. Raises BadRequest."""
        return [_decode(field) for field in self.texts.get(number, ())]

    def number_list(self, number: int) -> list[int]:
        """Return a repeated number field, packed or not. Raises BadRequest."""
        numbers = list(self.numbers.get(number, ()))
        for packed in self.texts.get(number, ()):
            position = 0
            while position < len(packed):
                entry, position = _varint(packed, position)
                numbers.append(entry)
        return numbers


def parse_command(message: bytes) -> Command:
    """Parse a message in an ``Any``. Raises BadRequest."""
    texts, _ = _fields(message)
    url = _decode((texts.get(1) or [b""])[-1])
    if not url.startswith(PREFIX):
        raise BadRequest("this is not a command of Flight SQL")
    return Command(url.removeprefix(PREFIX), *_fields((texts.get(2) or [b""])[-1]))


def pack(name: str, *fields: tuple[int, bytes]) -> bytes:
    """Return a message in an ``Any``."""
    body = b"".join(bytes_field(number, content) for number, content in fields)
    return bytes_field(1, (PREFIX + name).encode()) + bytes_field(2, body)


@dataclass(frozen=True, slots=True)
class Handle:
    """A statement with its parameters as DuckDB's literals; () if none were bound."""

    text: str
    literals: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the bytes that a client sends back."""
        return json.dumps({"text": self.text, "literals": self.literals}).encode()

    @classmethod
    def parse(cls, content: bytes) -> Handle:
        """Parse a handle, which may be anything that a client made up. Raises BadRequest."""
        try:
            document = parse_object(content)
            text, literals = document["text"], document["literals"]
            if type(text) is not str or type(literals) is not list or not all(type(entry) is str for entry in literals):
                raise ValueError
        except (ValueError, KeyError):
            raise BadRequest("this server did not issue the handle") from None
        if len(text) > MAX_STATEMENT_CHARS:
            raise BadRequest(f"a statement has at most {MAX_STATEMENT_CHARS:,} characters")
        return cls(text, tuple(literals))


def _decode(field: bytes) -> str:
    try:
        return field.decode()
    except UnicodeDecodeError:
        raise BadRequest("a text is not UTF-8") from None


def _fields(message: bytes) -> tuple[dict[int, list[bytes]], dict[int, list[int]]]:
    """Return the fields of a message of protobuf. Raises BadRequest."""
    texts, numbers, position = defaultdict[int, list[bytes]](list), defaultdict[int, list[int]](list), 0
    for _ in range(_MAX_FIELDS):
        if position == len(message):
            return texts, numbers
        tag, position = _varint(message, position)
        number, kind = tag >> 3, tag & 7
        if kind == _BYTES:
            length, position = _varint(message, position)
            end = position + length
            texts[number].append(message[position:end])
        elif kind == _VARINT:
            content, end = _varint(message, position)
            numbers[number].append(content)
        elif kind in (_FIXED64, _FIXED32):
            end = position + (8 if kind == _FIXED64 else 4)
        else:
            raise BadRequest("a message is damaged")
        if end > len(message):
            raise BadRequest("a message is cut off")
        position = end
    raise BadRequest(f"a message has more than {_MAX_FIELDS:,} fields")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    number = 0
    for index in range(_MAX_VARINT_BYTES):
        if position + index >= len(message):
            break
        octet = message[position + index]
        number |= (octet & 0x7F) << 7 * index
        if octet < 0x80:
            return number, position + index + 1
    raise BadRequest("a message is cut off")
