"""Commands of four letters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.plog.commands import VERBS, Command, parse_command


@pytest.mark.parametrize("verb", ["ping", "STAT", "eNvI", "Kill"])
def test_verbs_are_known_in_any_case_and_keep_their_trail(verb: str) -> None:
    assert parse_command(3, b"\0\0" + verb.encode() + b"\xff trail") == Command(3, verb.upper(), b"\xff trail")


@pytest.mark.parametrize("packet", [b"", b"\0", b"\0\0", b"\0\0PIN", b"\0\0KLIL", b"\0\1PING", b"PING"])
def test_anything_else_is_no_command(packet: bytes) -> None:
    assert parse_command(0, packet) is None


@given(st.binary(max_size=12))
def test_any_bytes_are_a_known_verb_or_none(packet: bytes) -> None:
    command = parse_command(0, b"\0\0" + packet)
    assert command is None or (command.verb in VERBS and command.trail == packet[4:])
