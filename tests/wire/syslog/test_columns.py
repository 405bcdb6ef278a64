"""Batches of syslog messages as columns."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from penstock.wire.syslog.columns import COLUMNS, syslog_columns
from tests.wire.syslog.hostile import HOSTILE, generate_messages, messages_of

RECEIVED = np.array([datetime(2026, 11, 22, tzinfo=UTC).timestamp() * 1_000_000], np.int64)


def rows(*messages: bytes, zone: str = "UTC") -> list[dict[str, Any]]:
    batch = syslog_columns(pa.array(messages, pa.binary()), RECEIVED, zoneinfo.ZoneInfo(zone))
    batch.validate(full=True)
    assert batch.schema == COLUMNS
    return batch.to_pylist()


def filled_fields(message: bytes) -> dict[str, Any]:
    """Return fields that are not null, except facility and severity; the time as text."""
    (row,) = rows(message)
    row = {name: value for name, value in row.items() if value is not None and name not in ("facility", "severity")}
    if "timestamp" in row:
        row["timestamp"] = row["timestamp"].isoformat().removesuffix("+00:00")
    return row


TIME = "2026-10-11T22:14:15"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            b'<165>1 2026-10-11T22:14:15Z h app 8710 ID47 [a@1 k="v"] \xef\xbb\xbfthe text',
            {
                "timestamp": TIME,
                "host": "h",
                "app_name": "app",
                "proc_id": "8710",
                "msg_id": "ID47",
                "structured_data": [("a@1.k", "v")],
                "message": "the text",
            },
        ),
        (b"<165>1 - - - - - - the text", {"message": "the text"}),
        (b"<165>1 - - - - -", {"message": ""}),
        (b"<165>1 - h - - - [broken text", {"host": "h", "message": "[broken text"}),
        (
            b"<34>Oct 11 22:14:15 h su[7]: failed: x\n",
            {"timestamp": TIME, "host": "h", "app_name": "su", "proc_id": "7", "message": "failed: x"},
        ),
        (b"<34>2026-10-11T22:14:15+00:00 h su: x", {"timestamp": TIME, "host": "h", "app_name": "su", "message": "x"}),
        (b"\xef\xbb\xbf<34>Oct 11 22:14:15 h no tag", {"timestamp": TIME, "host": "h", "message": "no tag"}),
        (b"<34>app: the text", {"app_name": "app", "message": "the text"}),
        (b"<34>the text", {"message": "the text"}),
        (b"the text: all of it", {"message": "the text: all of it"}),
        (b"", {"message": ""}),
        # What Cisco's devices send, as their manuals show it.
        (
            b"<189>48: *Oct 11 22:14:15: %SYS-5-CONFIG_I: done",
            {"timestamp": TIME, "app_name": "%SYS-5-CONFIG_I", "message": "done"},
        ),
        (
            b"<189>48: Oct 11 22:14:15.000 UTC: %SYS-5-CONFIG_I: done",
            {"timestamp": TIME, "app_name": "%SYS-5-CONFIG_I", "message": "done"},
        ),
        (
            b"<189>48: router1: Oct 11 22:14:15: %SYS-5-A: done",
            {"timestamp": TIME, "host": "router1", "app_name": "%SYS-5-A", "message": "done"},
        ),
        (
            b"<189>: 2026 Oct 11 22:14:15 UTC: %ETH-5-IF_UP: up",
            {"timestamp": TIME, "app_name": "%ETH-5-IF_UP", "message": "up"},
        ),
        (
            b"<166>:Oct 11 22:14:15 UTC: %ASA-6-302: built",
            {"timestamp": TIME, "app_name": "%ASA-6-302", "message": "built"},
        ),
        (
            b"<166>Oct 11 2026 22:14:15: %ASA-6-302: built",
            {"timestamp": TIME, "app_name": "%ASA-6-302", "message": "built"},
        ),
        (
            b"<166>Oct 11 2026 22:14:15 asa1 : %ASA-6-302: built",
            {"timestamp": TIME, "host": "asa1", "app_name": "%ASA-6-302", "message": "built"},
        ),
        (
            b"<166>2026-10-11T22:14:15Z asa1 : %ASA-6-302: built",
            {"timestamp": TIME, "host": "asa1", "app_name": "%ASA-6-302", "message": "built"},
        ),
        (
            b"<189>46: RP/0/RSP0/CPU0:Oct 11 22:14:15.000 : config[65]: %MGBL-SYS-5-CONFIG_I : done",
            {
                "timestamp": TIME,
                "host": "RP/0/RSP0/CPU0",
                "app_name": "%MGBL-SYS-5-CONFIG_I",
                "proc_id": "65",
                "message": "done",
            },
        ),
        (
            b"<34>Oct 11 22:14:15 h app: at 50: % done",
            {"timestamp": TIME, "host": "h", "app_name": "app", "message": "at 50: % done"},
        ),
    ],
    ids=str,
)
def test_headers_and_messages_are_apart(message: bytes, expected: dict[str, Any]) -> None:
    assert filled_fields(message) == expected


def test_times_without_a_zone_are_of_the_listeners_and_a_zones_name_wins() -> None:
    sent = (
        b"<34>Oct 11 22:14:15 h a: x",
        b"<189>4: Oct 11 22:14:15 UTC: %A-5-B: x",
        b"<189>4: Oct 11 22:14:15 CET: %A-5-B: x",
    )
    hours = [row["timestamp"].hour for row in rows(*sent, zone="Europe/Berlin")]
    assert hours == [20, 22, 21]


@pytest.mark.parametrize(
    ("text", "host", "hour"),
    [
        (b"CET web01 sshd[1]: x", "web01", 21),
        (b"CET router sshd[1]: x", "router", 21),
        (b"CET web-a app: x", "web-a", 21),
        (b"CET a.example app: x", "a.example", 21),
        (b"+0200 host app: x", "host", 20),
        (b"+14:00 host app: x", "host", 8),
        (b"-0330 host app: x", "host", 1),
        (b"EST error occurred: disk full", "EST", 22),
        (b"MET app server: started", "MET", 22),
        (b"+9999 host app: x", "+9999", 22),
        (b"+1500 host app: x", "+1500", 22),
        (b"-0260 host app: x", "-0260", 22),
    ],
)
def test_zone_between_time_and_host_is_not_a_host_with_the_name_of_a_zone(text: bytes, host: str, hour: int) -> None:
    (row,) = rows(b"<34>Oct 11 22:14:15 " + text)
    assert (row["host"], row["timestamp"].hour) == (host, hour)


def test_facility_and_severity_have_names() -> None:
    names = [(row["facility"], row["severity"]) for row in rows(b"<0>x", b"<191>x", b"<34>x", b"x")]
    assert names == [("kern", "emerg"), ("local7", "debug"), ("auth", "crit"), ("user", "notice")]


def test_nothing_has_the_same_columns() -> None:
    assert rows() == []


def check(messages: list[bytes]) -> None:
    for message, row in zip(messages, rows(*messages), strict=True):
        readable = message.decode("utf-8", "replace")
        assert len(row["message"]) <= len(readable) + 1
        if message.isascii():
            assert message.rstrip(b"\r\n\0").decode().endswith(row["message"].rstrip("\r\n\0"))


@given(messages_of(HOSTILE))
def test_any_bytes_have_columns(messages: list[bytes]) -> None:
    check(messages)


def test_ten_thousand_hostile_messages_have_columns() -> None:
    check(generate_messages(10_000))
