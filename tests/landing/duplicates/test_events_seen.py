"""Tests of the keys of events as columns."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import md5

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.duplicates.events_seen import EventsSeen, key_hashes
from penstock.landing.table_schema import FILE_SCHEMA
from tests.landing.duplicates.events import Event, as_seen, draw_events


def to_events(events: EventsSeen) -> list[Event]:
    columns = (events.high, events.low, events.micros, events.partition, events.offset, events.topic)
    return [
        Event((high, low), micros, partition, offset, events.topics[topic])
        for high, low, micros, partition, offset, topic in zip(*(column.tolist() for column in columns), strict=True)
    ]


def test_from_rows_reads_keys_from_topic_and_uuid() -> None:
    timestamp = datetime.fromtimestamp(5, UTC)
    base = {"offset": 3, "timestamp": timestamp, "uuid": "u"}
    rows = [{**base, "topic": "a"}, {**base, "topic": "b", "partition": 2}, {**base, "topic": "b", "partition": 0}]
    events = to_events(EventsSeen.from_rows(pa.RecordBatch.from_pylist(rows, schema=FILE_SCHEMA)))
    assert [(event.topic, event.partition, event.offset, event.micros) for event in events] == [
        ("a", -1, 3, 5_000_000),
        ("b", 2, 3, 5_000_000),
        ("b", 0, 3, 5_000_000),
    ]
    assert events[0].key != events[1].key == events[2].key, "of Kafka a topic is one, whatever the partition"
    high, low = key_hashes(pa.array(["a"]), pa.array(["u"]))
    assert events[0].key == (int(high[0]), int(low[0]))


@given(st.lists(draw_events(most=6), max_size=4), st.lists(st.sampled_from("abc"), min_size=4, max_size=4))
def test_concat_joins_parts_with_different_topics(parts: list[list[Event]], topics: list[str]) -> None:
    parts_with_topics = [
        [Event(e.key, e.micros, e.partition, e.offset, topic + str(e.offset % 2)) for e in part]
        for part, topic in zip(parts, topics, strict=False)
    ]
    joined = EventsSeen.concat([as_seen(part) for part in parts_with_topics])
    assert to_events(joined) == [event for part in parts_with_topics for event in part]
    assert len(set(joined.topics)) == len(joined.topics)


@given(draw_events())
def test_take_accepts_numbers_or_mask(events: list[Event]) -> None:
    even = np.arange(0, len(events), 2)
    mask = np.arange(len(events)) % 2 == 0
    assert to_events(as_seen(events).select_rows(even)) == to_events(as_seen(events).select_rows(mask)) == events[::2]


def test_newest_by_stream_and_streams_separate_topics_and_partitions() -> None:
    events = [Event((1, 1), 5, topic="a"), Event((1, 1), -7, topic="b"), Event((1, 1), 3, topic="a")]
    partitions = [Event((1, 1), 9, 0, topic="k"), Event((1, 1), 2, 12, topic="k"), Event((1, 1), 1, 12, topic="k")]
    all_events = as_seen(events + partitions)
    assert all_events.newest_by_stream() == {"a": 5, "b": -7, "k/0": 9, "k/12": 2}
    assert all_events.select_rows(np.array([1])).newest_by_stream() == {"b": -7}
    assert as_seen([]).newest_by_stream() == {}
    names, stream_index = all_events.streams()
    assert [names[index] for index in stream_index.tolist()] == ["a", "b", "a", "k/0", "k/12", "k/12"]


TEXTS = st.text(max_size=20)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=30))
def test_key_is_md5_of_topic_and_uuid_in_two_halves(rows: list[tuple[str, str]]) -> None:
    topics, uuids = (pa.array([row[index] for row in rows], pa.string()) for index in (0, 1))
    high, low = key_hashes(topics, uuids)
    expected = [int.from_bytes(md5(f"u:{topic}:{uuid}".encode()).digest(), "little") for topic, uuid in rows]
    assert [(int(up) << 64) | int(down) for up, down in zip(high, low, strict=True)] == expected
