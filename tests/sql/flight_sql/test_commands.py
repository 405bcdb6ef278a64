"""Messages of Flight SQL, and handles that a client may have made up."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.flight.batch_messages import bytes_field
from penstock.slogd.errors import BadRequest
from penstock.sql.flight_sql.commands import MAX_STATEMENT_CHARS, PREFIX, Handle, pack, parse_command

COMMANDS = st.builds(
    lambda name, body: bytes_field(1, (PREFIX + name).encode()) + bytes_field(2, body),
    st.sampled_from(["CommandStatementQuery", "CommandGetTables", "X"]),
    st.binary(max_size=30),
)


@given(st.binary(max_size=40) | COMMANDS)
def test_any_bytes_are_a_command_or_refused(message: bytes) -> None:
    try:
        command = parse_command(message)
        command.text(1)
        command.text_list(4)
        command.number_list(1)
    except BadRequest:
        pass


@given(
    st.binary(max_size=40)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
        lambda value: json.dumps({"text": value, "literals": value}).encode()
    )
)
def test_any_bytes_are_a_handle_or_refused(content: bytes) -> None:
    with contextlib.suppress(BadRequest):
        Handle.parse(content)


def test_handle_and_command_are_read_as_they_were_written() -> None:
    handle = Handle("select $1", ("'it''s'",))
    command = parse_command(pack("TicketStatementQuery", (1, handle.encode())))
    assert command.name == "TicketStatementQuery"
    assert Handle.parse(command.texts[1][0]) == handle


def test_repeated_numbers_are_read_packed_and_single() -> None:
    packed = bytes_field(1, b"\x00\xf8\x03")
    message = bytes_field(1, (PREFIX + "CommandGetSqlInfo").encode()) + bytes_field(2, packed + b"\x08\x07")
    assert parse_command(message).number_list(1) == [7, 0, 504]


def test_long_statement_is_refused() -> None:
    with pytest.raises(BadRequest, match="262,144 characters"):
        Handle.parse(Handle("x" * (MAX_STATEMENT_CHARS + 1)).encode())
