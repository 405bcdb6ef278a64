"""Producers' times as an annotation, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from penstock.records import ANNOTATIONS, body
from penstock.server.kafka.errors import InvalidTimestamp
from penstock.server.kafka.records.creation_times import (
    CREATION_TIME,
    add_creation_times,
    shown_times,
    split_creation_times,
)
from penstock.server.kafka.records.decode import decode
from penstock.server.kafka.records.encode import encode
from tests.server.kafka.produced import in_topic, records_of

NOW = 1_700_000_000_000
Pairs = list[tuple[str, str]] | None


def batch_at(*times: int, headers: list[tuple[str, bytes]] | None = None) -> bytes:
    """Return a producer's batch with one record at each time."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for number, time in enumerate(times):
        assert builder.append(number, time, None, b"%d" % number, headers or [])
    return bytes(builder.build())


def decoded(data: bytes, latest: int = NOW) -> pa.RecordBatch:
    rows = decode(data, latest_time=latest).rows
    assert isinstance(rows, pa.RecordBatch)
    return rows


def test_times_are_stored_as_annotations_and_consumed_as_create_times() -> None:
    times = [NOW, NOW - 5_000, NOW - 5_000, NOW - 10 * 365 * 86_400_000]
    rows = decoded(batch_at(*times, headers=[("h", b"v")]))
    assert rows.column("annotations").to_pylist() == [[(CREATION_TIME, str(time)), ("h", "v")] for time in times]
    records = records_of(encode(in_topic(rows)))
    assert [(record.timestamp, record.timestamp_type) for record in records] == [(time, 0) for time in times]
    assert [list(record.headers) for record in records] == [[("h", b"v")]] * 4


def test_rows_with_and_without_a_time_keep_their_own_type() -> None:
    annotations = pa.array(
        [None, [(CREATION_TIME, str(NOW - 7))], [("h", "v")], [(CREATION_TIME, "soon")]], ANNOTATIONS
    )
    records = records_of(encode(in_topic(body([b"a", b"b", b"c", b"d"], annotations=annotations), micros=NOW * 1000)))
    assert [(record.offset, record.timestamp, record.timestamp_type) for record in records] == [
        (0, NOW, 1),
        (1, NOW - 7, 0),
        (2, NOW, 1),
        (3, NOW, 1),
    ]
    assert [list(record.headers) for record in records] == [[], [], [("h", b"v")], [(CREATION_TIME, b"soon")]]


def test_a_header_with_the_name_of_the_annotation_is_restored() -> None:
    rows = decoded(batch_at(NOW - 1, headers=[(CREATION_TIME, b"12")]))
    (record,) = records_of(encode(in_topic(rows)))
    assert (record.timestamp, list(record.headers)) == (NOW - 1, [(CREATION_TIME, b"12")])


@pytest.mark.parametrize("times", [[NOW + 1], [NOW, NOW + 1]])
def test_times_ahead_of_the_limit_are_refused(times: list[int]) -> None:
    with pytest.raises(InvalidTimestamp, match="ahead"):
        decode(batch_at(*times), latest_time=NOW)
    assert decode(batch_at(*times)).rows is not None, "ignored without create times"


def test_a_producer_without_times_gets_those_of_the_log() -> None:
    rows = decode(batch_at(-1, -1), latest_time=NOW).rows
    assert [row[2] for row in rows] == [None, None]


@given(
    st.lists(
        st.tuples(
            st.one_of(st.just(-1), st.integers(0, 10**14)),
            st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=3)),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 3),
)
def test_added_times_are_split_off_again(rows: list[tuple[int, Pairs]], skipped: int) -> None:
    annotations = pa.array([pairs for _, pairs in rows], ANNOTATIONS).slice(min(skipped, len(rows) - 1))
    times = np.array([time for time, _ in rows], np.int64)[min(skipped, len(rows) - 1) :]
    rest, millis = split_creation_times(add_creation_times(annotations, times))
    assert [pairs or None for pairs in rest.to_pylist()] == [pairs or None for pairs in annotations.to_pylist()]
    assert (millis.tolist() if millis is not None else [-1] * len(times)) == times.tolist()


def test_shown_times_are_the_producers_else_the_logs() -> None:
    annotations = pa.array([None, [(CREATION_TIME, "5")]], ANNOTATIONS)
    batch = in_topic(body([b"a", b"b"], annotations=annotations), micros=NOW * 1000)
    assert shown_times(batch).tolist() == [NOW, 5]
