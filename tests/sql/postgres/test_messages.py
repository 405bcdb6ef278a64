"""The wire format of PostgreSQL's protocol."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.postgres import messages
from penstock.sql.postgres.messages import Incoming, ProtocolViolation, SqlError


def incoming(content: bytes, piece: int = 7) -> Incoming:
    pieces = iter([content[begin : begin + piece] for begin in range(0, len(content), piece)])
    return Incoming(lambda _: next(pieces, b""))


@given(st.binary(max_size=60), st.integers(1, 20), st.booleans())
def test_any_bytes_are_messages_or_refused(content: bytes, piece: int, first: bool) -> None:
    reader = incoming(content, piece)

    def read() -> None:
        if first:
            _, options = reader.first()
            while True:
                options.text()
        while True:
            _, fields = reader.next(50)
            fields.integers("I")
            fields.text()

    with pytest.raises((ProtocolViolation, EOFError)):
        read()


def test_message_arrives_in_pieces() -> None:
    reader = incoming(messages.message(b"Q", b"select 1\0") + messages.message(b"X"), 3)
    kind, fields = reader.next()
    assert (kind, fields.text(), fields.is_empty) == (b"Q", "select 1", True)
    assert reader.next()[0] == b"X"
    with pytest.raises(EOFError):
        reader.next()


def test_long_message_is_refused_before_its_bytes_are_read() -> None:
    received: list[int] = []

    def receive(count: int) -> bytes:
        received.append(count)
        return b"Q" + struct.pack("!I", 1 << 30)

    with pytest.raises(ProtocolViolation, match=r"1,073,741,820 bytes; 1,048,576 are allowed"):
        Incoming(receive).next()
    assert len(received) == 1


@pytest.mark.parametrize("length", [0, 7, 20_000, 0xFFFFFFFF])
def test_first_message_has_a_sensible_length(length: int) -> None:
    with pytest.raises(ProtocolViolation):
        incoming(struct.pack("!I", length) + bytes(40)).first()


def test_error_has_code_text_position_and_hint() -> None:
    sent = messages.error_response(SqlError("42P01", "no such table", 8, "Existing: t"))
    fields = {field[:1]: field[1:] for field in sent[5:].split(b"\0") if field}
    assert fields == {
        b"S": b"ERROR",
        b"V": b"ERROR",
        b"C": b"42P01",
        b"M": b"no such table",
        b"P": b"8",
        b"H": b"Existing: t",
    }


def test_text_with_a_zero_byte_does_not_end_early() -> None:
    assert messages.text_field("a\0b\udc80") == b"ab?\0"
