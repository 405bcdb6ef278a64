from __future__ import annotations

import pytest
from google.protobuf.any_pb2 import Any as ProtobufAny
from hypothesis import given
from hypothesis import strategies as st

from penstock.slogd.columns.plain_payloads import plain_payloads
from penstock.slogd.slogd_pb2 import AppendRequest, LogEntry


@given(st.lists(st.binary(max_size=20), max_size=8), st.integers(0, 2**64 - 1))
def test_plain_entries_give_their_payloads(payloads: list[bytes], offset: int) -> None:
    logs = [LogEntry(raw_bytes=payload, offset=offset) for payload in payloads]
    data = AppendRequest(topic="t", logs=logs, producer_id="me", sequence=1).SerializeToString()
    assert plain_payloads(data, len(logs)) == payloads


@pytest.mark.parametrize(
    "other",
    [
        LogEntry().SerializeToString(),
        LogEntry(raw_bytes=b"x", key=b"").SerializeToString(),
        LogEntry(raw_bytes=b"x", annotations={"a": "b"}).SerializeToString(),
        LogEntry(protobuf=ProtobufAny()).SerializeToString(),
        LogEntry(raw_bytes=b"x").SerializeToString() * 2,
    ],
)
def test_any_other_entry_leaves_them_to_a_loop(other: bytes) -> None:
    plain = AppendRequest(logs=[LogEntry(raw_bytes=b"x")]).SerializeToString()
    assert plain_payloads(plain + b"\x12" + bytes([len(other)]) + other, 2) is None


def test_two_payloads_of_one_entry_do_not_pass_for_those_of_two() -> None:
    twice = LogEntry(raw_bytes=b"x").SerializeToString() * 2
    assert plain_payloads(b"\x12" + bytes([len(twice)]) + twice + b"\x12\x00", 2) is None
