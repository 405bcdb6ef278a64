"""The export format of journals: fields of text and bytes, limits, sequence numbers, and any bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.tail.journal_export import (
    MAX_ENTRY_BYTES,
    MAX_LINE_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_TEXT_BYTES,
    BadExport,
    ExportReader,
    JournalEntries,
    is_same_entry,
)
from tests.client.tail.journals import BOOT, SOURCE, cursor_of, export_of, field

RECORDED = (
    b"__CURSOR=s=bcce4fb8ffcb40e9a6e05eee8b7831bf;i=5ef603;b=ec25d6795f0645619ddac9afdef453ee;m=545242e7049;t=50f1202\n"
    b"__REALTIME_TIMESTAMP=1423944916375353\n__MONOTONIC_TIMESTAMP=5794517905481\n"
    b"_BOOT_ID=ec25d6795f0645619ddac9afdef453ee\n_TRANSPORT=journal\n_UID=1001\nPRIORITY=6\nSYSLOG_FACILITY=3\n"
    b"_HOSTNAME=bupkis\nSYSLOG_IDENTIFIER=python3\n_SYSTEMD_UNIT=session-35898.scope\n"
    b"MESSAGE\n\x07\0\0\0\0\0\0\0foo\nbar\nCODE_FILE=<string>\n_PID=16853\n_UDEV_DEVLINK=/a\n_UDEV_DEVLINK=/b\n\n"
)
"""An entry as the format's documentation shows it."""


def read(data: bytes, size: int = 1 << 20) -> tuple[list[bytes], list[list[tuple[str, str]]]]:
    """Return payloads and annotations of all entries, read ``size`` bytes at a time."""
    reader = ExportReader()
    payloads: list[Any] = []
    annotations: list[Any] = []
    for begin in range(0, len(data), size):
        reader.feed(data[begin : begin + size])
        if (entries := reader.drain()) is not None:
            payloads += entries.payloads.to_pylist()
            annotations += entries.with_annotations({}, np.zeros(len(entries), np.int64)).to_pylist()
    return payloads, annotations


def entries_of(*cursors: str) -> JournalEntries:
    reader = ExportReader()
    reader.feed(b"".join(field("__CURSOR", cursor.encode()) + b"\n" for cursor in cursors))
    entries = reader.drain()
    assert entries is not None
    return entries


def test_fields_become_payload_and_annotations() -> None:
    (payload,), (annotations,) = read(RECORDED)
    assert payload == b"foo\nbar"
    assert dict(annotations) == {
        "cursor": RECORDED[len(b"__CURSOR=") : RECORDED.index(b"\n")].decode(),
        "time": "2015-02-14T20:15:16.375353Z",
        "transport": "journal",
        "uid": "1001",
        "severity": "info",
        "facility": "daemon",
        "hostname": "bupkis",
        "app_name": "python3",
        "unit": "session-35898.scope",
        "procid": "16853",
    }


def test_message_is_the_last_of_several_and_empty_without_one() -> None:
    data = field("__CURSOR", b"c") + field("MESSAGE", b"one\n") + field("MESSAGE", b"two=2") + b"\n"
    payloads, annotations = read(data + field("__CURSOR", b"d") + field("PRIORITY", b"9") + b"\n")
    assert payloads == [b"two=2", b""]
    assert annotations == [[("cursor", "c"), ("message", "one\n")], [("cursor", "d"), ("severity", "9")]]


def test_repeated_field_is_a_repeated_annotation_and_other_times_stay() -> None:
    data = field("__CURSOR", b"c") + field("SYSLOG_IDENTIFIER", b"a") + field("SYSLOG_IDENTIFIER", b"b\xff\n")
    _, (annotations,) = read(data + field("__REALTIME_TIMESTAMP", b"soon") + b"\n")
    assert annotations == [("cursor", "c"), ("app_name", "a"), ("app_name", "b\ufffd\n"), ("time", "soon")]


def test_constants_and_missing_entries_come_first() -> None:
    entries = entries_of(cursor_of(5), cursor_of(9))
    annotations = entries.with_annotations({"host": "a"}, entries.missing_before(cursor_of(4))).to_pylist()
    assert annotations == [
        [("host", "a"), ("cursor", cursor_of(5))],
        [("host", "a"), ("missing", "3"), ("cursor", cursor_of(9))],
    ]


@pytest.mark.parametrize(
    ("previous", "cursor", "missing"),
    [
        (None, cursor_of(5), 0),
        (cursor_of(4), cursor_of(5), 0),
        (cursor_of(4), cursor_of(0xFFFF), 0xFFFF - 5),
        (cursor_of(9), cursor_of(5), 0),
        (cursor_of(4), cursor_of(9, source="0" * 32), 0),
        (cursor_of(4), "opaque", 0),
        ("opaque", cursor_of(4), 0),
        (cursor_of(0), cursor_of((1 << 64) - 1), 1 << 62),
    ],
)
def test_missing_entries_are_those_between_numbers_of_one_source(
    previous: str | None, cursor: str, missing: int
) -> None:
    assert entries_of(cursor).missing_before(previous).tolist() == [missing]


def test_entry_is_the_same_after_it_was_moved_to_another_file() -> None:
    assert is_same_entry(cursor_of(7), cursor_of(7).replace(f"s={SOURCE};i=7;", f"s={BOOT};i=1;"))
    assert not is_same_entry(cursor_of(7), cursor_of(8))
    assert is_same_entry("opaque", "opaque")


@pytest.mark.parametrize("size", [1000, 1 << 16, 1 << 24])
def test_long_fields_are_cut_and_counted(size: int) -> None:
    long = b"m" * (MAX_MESSAGE_BYTES + 1)
    unread = field("COREDUMP", b"=" * MAX_LINE_BYTES * 2) + field("COREDUMP", b"\n" * MAX_LINE_BYTES * 2)
    data = b"".join(
        field("__CURSOR", b"c%d" % number) + unread + field("MESSAGE", message) + field("_PID", b"1" * 2000) + b"\n"
        for number, message in enumerate([long, long + b"\n", long[1:]])
    )
    reader, rows = ExportReader(), 0
    for begin in range(0, len(data), size):
        reader.feed(data[begin : begin + size])
        if (entries := reader.drain()) is not None:
            rows += len(entries)
            assert set(entries.payloads.to_pylist()) == {long[1:]}
            assert max(len(str(text)) for text in entries.texts.to_pylist()) == MAX_TEXT_BYTES
    assert (rows, reader.cut_fields) == (3, 5)


def test_memory_of_an_entry_is_bounded_and_the_next_one_is_read() -> None:
    reader, chunk = ExportReader(), field("MESSAGE", b"m" * (1 << 20)) + field("MESSAGE", b"\n" * (1 << 20))
    reader.feed(field("__CURSOR", b"c"))
    for _ in range(MAX_ENTRY_BYTES // len(chunk) + 3):
        reader.feed(chunk)
    reader.feed(b"\n" + export_of(2, b"next"))
    assert reader.ready_bytes < MAX_ENTRY_BYTES + len(chunk)
    entries = reader.drain()
    assert entries is not None
    assert entries.payloads.to_pylist()[1:] == [b"next"]
    assert reader.cut_fields > 0
    assert max(len(str(text)) for text in entries.texts.to_pylist()) == MAX_TEXT_BYTES


def test_entry_without_its_end_and_the_line_of_an_empty_journal_are_no_entries() -> None:
    assert read(RECORDED[:-1]) == ([], [])
    assert read(b"-- No entries --\n") == ([], [])


@pytest.mark.parametrize(
    "data",
    [
        b"MESSAGE=no cursor\n\n",
        b"__CURSOR=a\n__CURSOR=b\n\n",
        b"__CURSOR=a\nno field\n\n",
        b"MESSAGE\n\x01\0\0\0\0\0\0\0ab\n",
        b"x" * (MAX_LINE_BYTES + 1),
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadExport):
        read(data)


NAMES = st.sampled_from(["MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "_PID", "X", "__REALTIME_TIMESTAMP"])
ENTRIES = st.lists(st.lists(st.tuples(NAMES, st.binary(max_size=40)), max_size=6), max_size=5)


@given(ENTRIES, st.integers(1, 200))
def test_entries_are_the_same_however_they_arrive(entries: list[list[tuple[str, bytes]]], size: int) -> None:
    data = b"".join(
        field("__CURSOR", cursor_of(number).encode()) + b"".join(field(*each) for each in fields) + b"\n"
        for number, fields in enumerate(entries)
    )
    messages = [[content for name, content in fields if name == "MESSAGE"] for fields in entries]
    payloads, annotations = read(data, size)
    assert payloads == [contents[-1] if contents else b"" for contents in messages]
    assert (payloads, annotations) == read(data)


BROKEN = st.sampled_from([b"MESSAGE\n", b"\n", b"=", b"\x03\0\0\0\0\0\0\0", b"\xff" * 8, b"__CURSOR=a\n", RECORDED])


@given(st.lists(BROKEN | st.binary(max_size=20), max_size=12), st.integers(1, 60))
def test_any_bytes_are_entries_or_bad(parts: list[bytes], size: int) -> None:
    try:
        payloads, annotations = read(b"".join(parts), size)
    except BadExport:
        return
    assert len(payloads) == len(annotations)
