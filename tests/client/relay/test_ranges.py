"""Ranges of a topic that travel as one append."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.relay.ranges import MAX_BYTES, MIN_BYTES, bytes_for_link, next_ranges, reread_range
from penstock.counts import Origin
from penstock.log import Log, Topic, TopicSettings
from penstock.records import body


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[Topic]:
    log = Log(tmp_path, TopicSettings())
    yield log.topic("t", create=True)
    log.close()


def store(topic: Topic, *payloads: bytes, source: str = "udp", bucket: int = 60, micros: int = 61_000_000) -> None:
    topic.append(body(list(payloads)), Origin(source, bucket, micros, micros, "plog")).result(30)


def test_batches_of_one_source_and_minute_are_joined(topic: Topic) -> None:
    store(topic, b"a", b"b")
    store(topic, b"c", micros=62_000_000)
    store(topic, b"d", bucket=120)
    store(topic, b"e", source="tcp", bucket=120)
    reader, offset, seen = topic.reader(), 0, []
    while batches := next(iter(next_ranges(reader, offset, 1)), None):
        seen.append((batches.begin, batches.end, batches.rows.column("payload").to_pylist(), batches.origin))
        offset = batches.end
    assert seen == [
        (0, 3, [b"a", b"b", b"c"], Origin("udp", 60, 61_000_000, 62_000_000, "plog")),
        (3, 4, [b"d"], Origin("udp", 120, 61_000_000, 61_000_000, "plog")),
        (4, 5, [b"e"], Origin("tcp", 120, 61_000_000, 61_000_000, "plog")),
    ]


def test_ranges_that_follow_each_other_travel_together(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    for source in ("udp", "tcp", "tcp", "udp"):
        store(topic, b"x", source=source)
    reader = topic.reader()
    bounds = [(each.begin, each.end, each.origin.source) for each in next_ranges(reader, 0)]
    assert bounds == [(0, 1, "udp"), (1, 3, "tcp"), (3, 4, "udp")]
    assert [each.end for each in next_ranges(reader, 0, 2)] == [1, 3]
    assert [each.end for each in next_ranges(reader, 2)] == [3, 4]
    assert next_ranges(reader, 4) == []
    store(topic, b"x" * 6000, source="tcp")
    assert [each.end for each in next_ranges(reader, 0, max_bytes=5000)] == [1, 3, 4]
    assert [each.end for each in next_ranges(reader, 4)] == [5]


def test_large_batches_are_cut(topic: Topic) -> None:
    store(topic, *[b"x" * 100] * 8, b"y" * 1000)
    reader, ends, offset = topic.reader(), [], 0
    while batches := next(iter(next_ranges(reader, offset, 1, 500)), None):
        assert batches.rows.num_rows == batches.end - batches.begin
        assert batches.rows.nbytes <= 500 or batches.rows.num_rows == 1
        offset = batches.end
        ends.append(offset)
    assert ends[-1] == 9
    assert len(ends) > 2


def test_slow_link_gets_as_many_bytes_as_it_carries_in_five_seconds() -> None:
    assert bytes_for_link(100_000, 1.0) == 500_000
    assert bytes_for_link(4 << 20, 80.0) == 262_144
    assert bytes_for_link(100, 0.3) == MIN_BYTES
    assert bytes_for_link(1 << 20, 0.01) == bytes_for_link(1 << 20, 0.0) == MAX_BYTES


def test_earlier_range_is_read_again(topic: Topic) -> None:
    store(topic, b"a", b"b")
    store(topic, b"c", b"d")
    batches = reread_range(topic.reader(), 1, 3)
    assert batches is not None
    assert (batches.begin, batches.end, batches.rows.column("payload").to_pylist()) == (1, 3, [b"b", b"c"])
    assert reread_range(topic.reader(), 4, 6) is None
