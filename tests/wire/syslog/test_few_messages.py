"""Few syslog messages, read one by one: equal to what the columns read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records import ANNOTATIONS
from penstock.wire.syslog.codec import annotations_in_columns, build_annotations
from penstock.wire.syslog.few_messages import MAX_FEW_MESSAGES, read_few
from tests.wire.syslog.hostile import HOSTILE, PIECES, generate_messages, messages_of
from tests.wire.syslog.test_headers import device_rows

RECEIVED = int(datetime(2026, 11, 22, tzinfo=UTC).timestamp() * 1_000_000)
BERLIN = ZoneInfo("Europe/Berlin")
ORDINARY = [
    b"<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - 'su root' failed",
    b"<165>1 2026-08-24T05:14:15.000003-07:00 192.0.2.1 app 8710 - - %% text",
    b"<14>1 - - - - - - text",
    b"<191>1 2026-11-22T00:00:00+01:00 h app 1 m [a@1 k=\"v 1\" l=\"\"][b@2 m=\"x y\"] text",
    b"<86>1 2026-11-22T00:00:00Z h app 1 m [timeQuality tzKnown=\"1\" isSynced=\"1\" syncAccuracy=\"230500\"]",
    b"<34>1 2026-11-22T00:00:00Z h app 1 m [b@2] text",
    b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed on /dev/pts/8",
    b"<13>Feb  5 17:32:18 10.0.0.99 sshd[4711]: Accepted publickey: 50 % of them",
    b"<0>Jan  1 00:00:00 web-17.example.com a/b.c-d[x1]:",
    b"<191>Dec 31 23:59:59 1host App:\ttext",
]  # fmt: skip
TAGGED = [b"<34>Oct 11 22:14:15 sshd[123]: from a local sender", b"<5>Nov  3 01:02:03 su: text"]
MORE_PIECES = [
    *PIECES,
    *(b"<192>", b"<034>", b"1999 ", b"2026 ", b"19991 ", b"CET ", b"EST: ", b"+02:00 ", b"host: host: ", b"Feb 29 "),
    *(b"Oct 32 ", b"24:00:00", b"22:14:60", b"oct ", b"Foo ", b'[p q="1" q="2"]', b'[p q="]"]', b'[p  q="1"]', b"[p]"),
    *(b"%%", b"  %", b"2026-13-01T00:00:00Z", b"2026-11-22T00:00:00,5Z", b"2026-11-22T00:00:00", b".1234567", b"/"),
]


def in_columns(
    messages: Sequence[bytes], zone: tzinfo | None, *, is_local: bool, received: int = RECEIVED
) -> list[list[tuple[str, str]]]:
    moment = np.array([received], np.int64)
    rows: list[list[tuple[str, str]]] = annotations_in_columns(
        pa.array(messages, pa.binary()), moment, zone, is_local=is_local
    ).to_pylist()
    return rows


def assert_equal_where_read(messages: Sequence[bytes], zone: tzinfo | None, *, is_local: bool) -> int:
    """Compare the messages that are read one by one with the columns of all; return how many there are."""
    read = 0
    for message, expected in zip(messages, in_columns(messages, zone, is_local=is_local), strict=True):
        if (rows := read_few([message], RECEIVED, zone, is_local=is_local)) is not None:
            assert rows == [expected], message
            read += 1
    return read


def mutated(draw: random.Random, message: bytes) -> bytes:
    """Return ``message`` after one or two changes at any place."""
    for _ in range(draw.choice([1, 1, 2])):
        begin = draw.randrange(len(message) + 1)
        end = begin + draw.choice([0, 0, 1, 1, 2, 5])
        message = message[:begin] + draw.choice([b"", *MORE_PIECES]) + message[end:]
    return message


@pytest.mark.parametrize("zone", [UTC, BERLIN])
@pytest.mark.parametrize(("messages", "is_local"), [(ORDINARY, False), (TAGGED, True)])
def test_ordinary_messages_are_read_one_by_one(messages: list[bytes], is_local: bool, zone: tzinfo) -> None:
    assert assert_equal_where_read(messages, zone, is_local=is_local) == len(messages)


def test_messages_of_devices_are_equal_to_those_of_columns() -> None:
    assert_equal_where_read([sent.encode() for _, sent, *_ in device_rows()], UTC, is_local=False)


@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("zone", [UTC, BERLIN, None])
def test_changed_messages_are_equal_to_those_of_columns(zone: tzinfo | None, is_local: bool) -> None:
    draw = random.Random(3164)
    messages = [mutated(draw, draw.choice([*ORDINARY, *TAGGED])) for _ in range(20_000)]
    assert assert_equal_where_read(messages, zone, is_local=is_local) > 1_000


def test_hostile_messages_are_equal_to_those_of_columns() -> None:
    assert_equal_where_read(generate_messages(5_000), UTC, is_local=False)


@given(messages_of(HOSTILE | st.sampled_from(ORDINARY)))
def test_any_messages_are_equal_to_those_of_columns(messages: list[bytes]) -> None:
    assert_equal_where_read(messages, UTC, is_local=False)


@pytest.mark.parametrize("zone", [UTC, BERLIN])
def test_times_are_equal_to_those_of_columns(zone: tzinfo) -> None:
    draw = random.Random(9)
    for _ in range(500):
        received = draw.randrange(0, 4_000_000_000) * 1_000_000
        stamps = [
            datetime.fromtimestamp(draw.randrange(0, 4_000_000_000), UTC).strftime("%b %e %H:%M:%S") for _ in range(5)
        ]
        messages = [f"<34>{stamp} h app: x".encode() for stamp in stamps]
        expected = in_columns(messages, zone, is_local=False, received=received)
        for message, row in zip(messages, expected, strict=True):
            assert read_few([message], received, zone, is_local=False) in ([row], None)


@pytest.mark.parametrize(
    "stamp", ["Mar 28 02:30:00", "Oct 25 02:30:00", "Feb 29 10:00:00", "Oct 11 22:14:60", "Nov 31 00:00:00"]
)
def test_rare_times_are_left_to_the_columns(stamp: str) -> None:
    # In Berlin the first occurs never in 2027, and the second twice.
    assert read_few([f"<34>{stamp} h app: x".encode()], RECEIVED, BERLIN, is_local=False) is None


@pytest.mark.parametrize(
    ("now", "stamp", "expected"),
    [
        ("2026-01-01T00:00:05", "Dec 31 23:59:59", "2025-12-31T23:59:59Z"),
        ("2026-12-31T23:59:59", "Jan  1 00:00:01", "2027-01-01T00:00:01Z"),
        ("2026-07-31T23:59:59", "Jan 31 00:00:00", "2026-01-31T00:00:00Z"),
    ],
)
def test_year_is_the_nearest_to_the_receipt(now: str, stamp: str, expected: str) -> None:
    received = int(datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp() * 1_000_000)
    rows = read_few([f"<34>{stamp} h app: x".encode()], received, UTC, is_local=False)
    assert rows is not None
    assert dict(rows[0])["timestamp"] == expected


def test_a_round_with_another_form_has_columns_as_a_whole() -> None:
    messages = pa.array([*ORDINARY, b"text without a header"], pa.binary())
    assert read_few(messages.to_pylist(), RECEIVED, UTC, is_local=False) is None
    annotations = build_annotations(messages, np.array([RECEIVED], np.int64), UTC)
    assert annotations.to_pylist() == in_columns(messages.to_pylist(), UTC, is_local=False)


@pytest.mark.parametrize("count", [1, MAX_FEW_MESSAGES, MAX_FEW_MESSAGES + 1])
def test_column_has_one_type_for_any_number_of_messages(count: int) -> None:
    annotations = build_annotations(pa.array(ORDINARY[:1] * count, pa.binary()), np.array([RECEIVED], np.int64), UTC)
    assert annotations.type == ANNOTATIONS
    assert annotations.null_count == 0
    assert len(annotations) == count
