"""Keys of events with their places, as columns."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.rows.key_hashes import key_hashes
from penstock.landing.table_schema import FILE_SCHEMA
from tests.landing.duplicates.events import One, events_of, seen


def told(events: EventsSeen) -> list[One]:
    columns = (events.high, events.low, events.micros, events.partition, events.offset, events.topic)
    return [
        One((high, low), micros, partition, offset, events.topics[topic])
        for high, low, micros, partition, offset, topic in zip(*(one.tolist() for one in columns), strict=True)
    ]


def test_rows_of_the_table_are_known_by_topic_and_uuid() -> None:
    at = datetime.fromtimestamp(5, UTC)
    base = {"offset": 3, "timestamp": at, "uuid": "u"}
    rows = [{**base, "topic": "a"}, {**base, "topic": "b", "partition": 2}, {**base, "topic": "b", "partition": 0}]
    found = told(EventsSeen.of(pa.RecordBatch.from_pylist(rows, schema=FILE_SCHEMA)))
    assert [(one.topic, one.partition, one.offset, one.micros) for one in found] == [
        ("a", -1, 3, 5_000_000),
        ("b", 2, 3, 5_000_000),
        ("b", 0, 3, 5_000_000),
    ]
    assert found[0].key != found[1].key == found[2].key, "of Kafka a topic is one, whatever the partition"
    high, low = key_hashes(pa.array(["a"]), pa.array(["u"]))
    assert found[0].key == (int(high[0]), int(low[0]))


@given(st.lists(events_of(most=6), max_size=4), st.lists(st.sampled_from("abc"), min_size=4, max_size=4))
def test_parts_with_topics_of_their_own_are_joined(parts: list[list[One]], topics: list[str]) -> None:
    named = [
        [One(e.key, e.micros, e.partition, e.offset, topic + str(e.offset % 2)) for e in part]
        for part, topic in zip(parts, topics, strict=False)
    ]
    joined = EventsSeen.concat([seen(part) for part in named])
    assert told(joined) == [one for part in named for one in part]
    assert len(set(joined.topics)) == len(joined.topics)


@given(events_of())
def test_some_are_taken_by_number_or_by_mask(events: list[One]) -> None:
    even = np.arange(0, len(events), 2)
    mask = np.arange(len(events)) % 2 == 0
    assert told(seen(events).take(even)) == told(seen(events).take(mask)) == events[::2]


def test_each_topic_and_partition_has_its_newest_time_and_one_without_events_has_none() -> None:
    events = [One((1, 1), 5, topic="a"), One((1, 1), -7, topic="b"), One((1, 1), 3, topic="a")]
    partitions = [One((1, 1), 9, 0, topic="k"), One((1, 1), 2, 12, topic="k"), One((1, 1), 1, 12, topic="k")]
    everything = seen(events + partitions)
    assert everything.newest() == {"a": 5, "b": -7, "k/0": 9, "k/12": 2}
    assert everything.take(np.array([1])).newest() == {"b": -7}
    assert seen([]).newest() == {}
    names, place = everything.places()
    assert [names[number] for number in place.tolist()] == ["a", "b", "a", "k/0", "k/12", "k/12"]
