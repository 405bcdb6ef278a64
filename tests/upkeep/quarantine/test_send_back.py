"""Sending messages back from quarantine: each message once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.landing.table_paths import Layout
from penstock.upkeep.quarantine.send_back import (
    Row,
    SendBack,
    SendingBack,
    count_sent_back,
    hold_send_lock,
    rows_sent_back,
    sent_before,
)

ROWS = [
    ("a", 0, "bad_json", b"{x"),
    ("a", 4, "bad_json", b"{y"),
    ("b", 1, "missing_uuid", b"{}"),
    ("a", 9, "bad_uuid", b"{z"),
]


class Killed(BaseException):
    """The process ends here."""


class Log:
    """Takes each sequence number of a producer once, as the log does."""

    def __init__(self) -> None:
        self.stored: dict[str, list[tuple[bytes, dict[str, str]]]] = {}
        self._next: dict[tuple[str, str], int] = {}
        self.dies = ""

    def append_batch(self, topic: str, body: pa.RecordBatch, producer: tuple[str, int] | None = None) -> list[int]:
        assert producer is not None
        expected = self._next.get((topic, producer[0]), 0)
        assert producer[1] <= expected, "a gap in the sequence"
        if self.dies == "before":
            raise Killed
        if producer[1] == expected:
            self._next[topic, producer[0]] = expected + 1
            for row in body.to_pylist():
                self.stored.setdefault(topic, []).append((row["payload"], dict(row["annotations"])))
        if self.dies == "after":
            raise Killed
        return list(range(body.num_rows))


FOUND = [
    Row(topic, None, offset, datetime(2026, 1, 1, tzinfo=UTC), "udp", reason, payload, None, [])
    for topic, offset, reason, payload in ROWS
]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.for_tables(tmp_path)


def rows(_: Layout, reason: str = "", topic: str = "") -> list[Row]:
    return [row for row in FOUND if reason in ("", row.reason) and topic in ("", row.topic)]


def test_each_row_is_sent_once_with_its_origin(layout: Layout) -> None:
    log = Log()
    assert SendBack(layout, log).run(rows(layout, reason="bad_json")) == (2, 0)
    assert SendBack(layout, log).run(rows(layout)) == (2, 0)
    assert SendBack(layout, log).run(rows(layout)) == (0, 0)
    assert log.stored["a"] == [
        (b"{x", {"replay_of": "a:0"}),
        (b"{y", {"replay_of": "a:4"}),
        (b"{z", {"replay_of": "a:9"}),
    ]
    assert log.stored["b"] == [(b"{}", {"replay_of": "b:1"})]
    assert not list(layout.tables.rglob("*.arrow")), "copies of the rows are removed"


def test_fix_changes_payloads_and_skips_some(layout: Layout) -> None:
    log = Log()
    fixed = SendBack(layout, log, lambda payload: payload + b"}" if payload != b"{}" else None)
    assert fixed.run(rows(layout)) == (3, 1)
    assert [payload for payload, _ in log.stored["a"]] == [b"{x}", b"{y}", b"{z}"]
    assert SendBack(layout, log).run(rows(layout)) == (1, 0), "what was left can still be sent"


@pytest.mark.parametrize("dies", ["before", "after"])
def test_killed_sending_resumes_without_repeats(layout: Layout, dies: str) -> None:
    log = Log()
    log.dies = dies
    with pytest.raises(Killed):
        SendBack(layout, log, bytes.upper).run(rows(layout, topic="a"))
    log.dies = ""
    SendBack(layout, log).run(rows(layout))
    assert [payload for payload, _ in log.stored["a"]] == [b"{X", b"{Y", b"{Z"]
    assert [payload for payload, _ in log.stored["b"]] == [b"{}"]


def test_rows_from_kafka_are_not_sent(layout: Layout) -> None:
    log = Log()
    assert SendBack(layout, log).run([replace(FOUND[0], partition=0)]) == (0, 0)
    assert log.stored == {}


def test_sent_rows_are_recorded(layout: Layout) -> None:
    assert sent_before(layout) == frozenset()
    SendBack(layout, Log()).run(rows(layout, topic="a"))
    assert sent_before(layout) == {("a", 0), ("a", 4), ("a", 9)}


def test_sent_rows_are_counted_by_topic_and_fate(layout: Layout) -> None:
    assert count_sent_back(layout) == {}
    SendBack(layout, Log()).run(rows(layout))
    assert count_sent_back(layout) == {
        "a": {"quarantined.bad_json": 2, "quarantined.bad_uuid": 1},
        "b": {"quarantined.missing_uuid": 1},
    }


def test_second_sender_is_refused(layout: Layout) -> None:
    with hold_send_lock(layout), pytest.raises(SendingBack, match="another process is sending"), hold_send_lock(layout):
        pass
    with hold_send_lock(layout):
        assert sent_before(layout) == frozenset()


def test_successors_and_fixes_of_sent_rows_are_recorded(layout: Layout) -> None:
    log = Log()
    SendBack(layout, log, fix_text="unchanged").run(rows(layout, topic="a"))
    log.dies = "after"
    with pytest.raises(Killed):
        SendBack(layout, log, bytes.upper, "f" * 1000).run(rows(layout))
    sent = [(row.topic, row.key, row.successor, row.fix) for row in rows_sent_back(layout)]
    first = [("a", 0, 0, "unchanged"), ("a", 4, 1, "unchanged"), ("a", 9, 2, "unchanged")]
    assert sent == [*first, ("b", 1, None, "f" * 200)], "the last one is not known to have arrived"
    log.dies = ""
    SendBack(layout, log)
    assert [row.successor for row in rows_sent_back(layout)] == [0, 1, 2, 0]
