from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.any_pb2 import Any as ProtobufAny
from google.protobuf.duration_pb2 import Duration

from penstock.client import Entry, Log, NoSuchTopic, Refused, Unavailable
from penstock.client.log import operations
from penstock.client.log.operations import COLUMNS_RETRY_S, Operations
from penstock.client.log.types import StoredAlready
from penstock.counts import Origin
from penstock.records import ANNOTATIONS, BODY, EMPTY_BODY, body
from penstock.slogd.columns import decode
from penstock.slogd.columns.decode import MAX_LOOP_ENTRIES
from tests.server.running import Running


@pytest.fixture
def log(running: Running) -> Iterator[Log]:
    with Log(running.bound.grpc, retry_for=1) as client:
        yield client


def test_appended_entries_are_read(log: Log) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    assert log.append("t", [b"bytes", "text", None], {"userid": "5"}) == [0, 1, 2]
    entries = log.read("t")
    assert [(e.offset, e.payload, e.annotations) for e in entries] == [
        (0, b"bytes", {"userid": "5"}),
        (1, b"text", {"userid": "5"}),
        (2, None, {"userid": "5"}),
    ]
    assert before < entries[0].timestamp < entries[1].timestamp < before + timedelta(minutes=1)


RELAYED: dict[str, Any] = {"origin": Origin("host/udp", 120, 121_000_000, 122_000_000, "plog")}


def relayed_rows(count: int) -> pa.RecordBatch:
    pairs = [[("userid", "5"), ("host", "h")], None, []]
    annotations = pa.array([pairs[number % 3] for number in range(count)], ANNOTATIONS)
    return body([b"%d" % number if number % 3 else None for number in range(count)], annotations=annotations)


def test_relayed_rows_are_stored_once_from_columns(log: Log, running: Running) -> None:
    rows = relayed_rows(MAX_LOOP_ENTRIES + 1)
    for _ in range(2):
        assert log.append_batch("t", rows, ("p", 1), **RELAYED) == list(range(rows.num_rows))
    (batch,) = running.log.topic("t").reader().read(0)
    assert batch.batch.select(BODY.names).equals(rows)
    assert [(entry.payload, entry.annotations) for entry in log.read("t")][:3] == [
        (None, {"userid": "5", "host": "h"}),
        (b"1", {}),
        (b"2", {}),
    ]


@pytest.mark.parametrize("count", [1, MAX_LOOP_ENTRIES + 1])
def test_relayed_batches_are_stored_in_order_up_to_one_that_is_refused(log: Log, running: Running, count: int) -> None:
    sources = ["host/a", "host/b", "host/a"]
    rows = relayed_rows(count)
    batches = [(rows, ("p", n), replace(RELAYED["origin"], source=source)) for n, source in enumerate(sources, 1)]
    stored = [[*range(begin, begin + count)] for begin in (0, count, 2 * count)]
    assert log.append_batches("t", batches) == stored
    # Behind a batch that was stored before, the server may expect any number.
    assert log.append_batches("t", batches) == stored[:1]
    assert log.append_batches("t", batches[2:]) == stored[2:]
    assert [batch.origin.source for batch in running.log.topic("t").reader().read(0)] == sources
    skipped = [(rows, ("p", number), RELAYED["origin"]) for number in (4, 9, 10)]
    assert log.append_batches("t", skipped) == [[*range(3 * count, 4 * count)]]


def test_relayed_batches_without_any_answer_raise(log: Log, running: Running) -> None:
    running.stop()
    with pytest.raises(Unavailable):
        log.append_batches("t", [(relayed_rows(1), ("p", 1), RELAYED["origin"])] * 2)


@pytest.mark.parametrize("count", [1, MAX_LOOP_ENTRIES + 1, 500])
def test_rows_that_an_earlier_relay_sent_as_entries_are_stored_once(
    log: Log, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier relay was killed before its position was stored."""
    rows, offsets = relayed_rows(count), list(range(count))
    with monkeypatch.context() as patched:
        patched.setattr(Operations, "_columns_from", math.inf)
        assert log.append_batch("t", rows, ("p", 1), **RELAYED) == offsets
    assert log.append_batch("t", rows, ("p", 1), **RELAYED) == offsets
    assert len(log.read("t", max_messages=2 * count)) == count
    with pytest.raises(StoredAlready):
        log.append_batch("t", relayed_rows(count + 1).slice(1), ("p", 1), **RELAYED)


def test_relayed_rows_reach_a_server_that_ignores_columns_until_it_is_upgraded(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, sent_as_columns = relayed_rows(MAX_LOOP_ENTRIES + 1), []
    decoded = decode._decode_columns

    def append(number: int) -> None:
        begin = number * rows.num_rows
        assert log.append_batch("t", rows, ("p", number), **RELAYED) == list(range(begin, begin + rows.num_rows))

    def ignored(message: bytes) -> pa.RecordBatch:
        # A server of an earlier version passes over the unknown field, as protobuf does.
        sent_as_columns.append("ignored")
        return EMPTY_BODY

    def understood(message: bytes) -> pa.RecordBatch:
        sent_as_columns.append("understood")
        return decoded(message)

    log.append("t", [])  # the first append to a topic that does not exist is parsed twice
    monkeypatch.setattr(decode, "_decode_columns", ignored)
    append(0)
    append(1)
    assert sent_as_columns == ["ignored"]
    monkeypatch.setattr(decode, "_decode_columns", understood)
    due_at = time.monotonic() + COLUMNS_RETRY_S
    monkeypatch.setattr(operations, "time", SimpleNamespace(monotonic=lambda: due_at))
    append(2)
    assert sent_as_columns == ["ignored", "understood"]
    assert len(log.read("t")) == 3 * rows.num_rows


def test_protobuf_messages_are_sent_as_any(log: Log) -> None:
    log.append("t", [Duration(seconds=2), ProtobufAny(type_url="x/acme.Own", value=b"v")])
    any_entry, custom_entry = log.read("t")
    assert (any_entry.type_url, Duration.FromString(any_entry.payload or b"").seconds) == (
        "type.googleapis.com/google.protobuf.Duration",
        2,
    )
    assert (custom_entry.type_url, custom_entry.payload) == ("x/acme.Own", b"v")


def test_reading_starts_at_the_requested_position(log: Log) -> None:
    log.append("t", [b"%d" % i for i in range(5)])
    entries = log.read("t")

    def payloads(*arguments: object) -> list[bytes | None]:
        return [entry.payload for entry in log.read("t", *arguments)]  # type: ignore[arg-type]

    assert payloads(3) == [b"3", b"4"]
    assert payloads("earliest", 2) == [b"0", b"1"]
    assert payloads("latest", 2) == [b"3", b"4"]
    assert payloads(entries[2].timestamp) == [b"2", b"3", b"4"]
    assert payloads(5) == payloads(99) == payloads("earliest", 0) == []


def test_long_read_spans_many_answers(log: Log) -> None:
    for _ in range(12):
        log.append("t", [b"x" * 5_000_000])
    assert [entry.offset for entry in log.read("t", max_messages=100)] == list(range(12))


def test_following_returns_later_appends(log: Log) -> None:
    log.append("t", [b"old"])
    received: list[Entry] = []
    follower = threading.Thread(target=lambda: received.extend(islice(log.follow("t", "earliest"), 3)))
    follower.start()
    log.append("t", [b"new"])
    log.append("t", [b"newer"])
    follower.join(20)
    assert [entry.payload for entry in received] == [b"old", b"new", b"newer"]


def test_topics_are_listed(log: Log) -> None:
    assert log.topics() == []
    for topic in ("b", "a"):
        log.append(topic, [])
    assert log.topics() == ["a", "b"]


def test_errors_are_typed(log: Log) -> None:
    with pytest.raises(NoSuchTopic, match="Topic does not exist: nope"):
        log.read("nope")
    with pytest.raises(NoSuchTopic):
        next(log.follow("nope"))
    with pytest.raises(Refused, match="must conform"):
        log.append("NOPE", [b"x"])
    with pytest.raises(Refused, match="internal"):
        log.append("_ledger", [b"x"])
    with pytest.raises(TypeError):
        log.append("t", b"not several")
    with pytest.raises(ValueError, match="newest"):
        log.read("t", "newest")  # type: ignore[arg-type]


def test_stopped_server_is_unavailable(running: Running) -> None:
    with Log(running.bound.grpc, retry_for=0.2) as log:
        log.append("t", [b"x"])
        entries = log.follow("t", "earliest")
        assert next(entries).payload == b"x"
        running.stop()
        with pytest.raises(Unavailable):
            next(entries)
        with pytest.raises(Unavailable):
            log.append("t", [b"x"])
