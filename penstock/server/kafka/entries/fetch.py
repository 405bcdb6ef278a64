"""Fetch, ListOffsets and OffsetForLeaderEpoch: entries of topics as record batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.log import StoredBatch, Topic, TopicReader
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.rights import Principal
from penstock.server.kafka.calls import Call, DeferredAnswer, code_of
from penstock.server.kafka.entries.fetch_sessions import PartitionRequest, Session, Sessions
from penstock.server.kafka.entries.pages import Pages, topic_state
from penstock.server.kafka.records.creation_times import MAX_AHEAD_MS, shown_times
from penstock.server.kafka.schema.messages import Values, by_topic, partitions_of

MAX_ANSWER_BYTES = 16 << 20
"""Limit: bytes of an answer; a larger message is sent alone."""
MAX_WAIT_S = 60.0
CLOCK_SLACK_MS = 60_000
"""Limit: difference between the log's clock, which is corrected slowly, and the clock that limits producers' times."""
LATEST, EARLIEST, NEWEST = -1, -2, -3
"""Special timestamps of ListOffsets: the end, the start, and the newest record."""


class Fetching:
    """Handlers of consumers' requests."""

    def __init__(self, api: EntriesApi) -> None:
        self._api, self._pages, self._sessions = api, Pages(api), Sessions()

    def fetch(self, call: Call) -> Values | DeferredAnswer:
        """Return the new entries of the partitions that the consumer names now, or named before in its session."""
        session = self._sessions.session(call.message)
        if isinstance(session, ErrorCode):
            return {"error_code": session, "responses": ()}
        partitions = partitions_of(call.message.topics, "topic") if session is None else session.partitions

        def ready() -> Values | None:
            answers = self._read_cached(call, partitions)
            return _fetch_answer(session, answers) if answers and _enough(answers, call.message.min_bytes) else None

        async def values() -> Values:
            return _fetch_answer(session, await self._wait_for_entries(call, partitions))

        # Limit: read only when earlier answers are sent, so that one connection holds one answer in memory.
        return DeferredAnswer(values, ready)

    async def _wait_for_entries(self, call: Call, partitions: list[PartitionRequest]) -> list[tuple[str, Values]]:
        """Answer as soon as there are ``min_bytes``, or when the client's waiting time is over."""
        loop, message = asyncio.get_running_loop(), call.message
        deadline = loop.time() + min(max(message.max_wait.total_seconds(), 0), MAX_WAIT_S)
        answers = await self._api.run(lambda: self._read_all(call, partitions))
        if not partitions or loop.time() >= deadline or _enough(answers, message.min_bytes):
            return answers
        topics = await self._api.run(lambda: self._readable_topics(call.caller, {name for name, _ in partitions}))
        with self._api.waking(topics) as wake:
            while True:
                # Order: clear before reading, so that a batch stored during the read wakes again.
                wake.clear()
                answers = await self._api.run(lambda: self._read_all(call, partitions))
                if loop.time() >= deadline or _enough(answers, message.min_bytes) or self._api.closed:
                    return answers
                await wake.wait_until(deadline)

    def _readable_topics(self, caller: Principal, names: Iterable[str]) -> list[Topic]:
        topics = []
        for name in names:
            # Missing or forbidden topics are reported in the answer; here they only cannot wake.
            with contextlib.suppress(PenstockError):
                topics.append(self._api.topics.readable(name, caller))
        return topics

    def _read_all(self, call: Call, partitions: Iterable[PartitionRequest]) -> list[tuple[str, Values]]:
        return self._read_partitions(call, partitions, self._read_partition)

    def _read_cached(self, call: Call, partitions: Iterable[PartitionRequest]) -> list[tuple[str, Values]]:
        """Answer from pages that were read ahead: without the disk, hence on the event loop."""
        return self._read_partitions(call, partitions, self._cached_partition)

    def _read_partitions(
        self,
        call: Call,
        partitions: Iterable[PartitionRequest],
        read: Callable[[Principal, str, Any, int], Values | None],
    ) -> list[tuple[str, Values]]:
        """Read partitions until ``max_bytes`` are used; return no answers if ``read`` has None for one of them."""
        max_bytes = min(max(call.message.max_bytes, 1), MAX_ANSWER_BYTES)
        answers: list[tuple[str, Values]] = []
        for name, partition in partitions:
            values = read(call.caller, name, partition, min(max_bytes, partition.partition_max_bytes))
            if values is None:
                return []
            max_bytes -= len(values.get("records") or b"")
            answers.append((name, values))
        return answers

    def _cached_partition(self, caller: Principal, name: str, partition: Any, max_bytes: int) -> Values | None:
        if partition.partition != 0 or not self._api.topics.is_open(name):
            return None
        try:
            cached = self._pages.cached_page(self._api.topics.readable(name, caller), partition.fetch_offset, max_bytes)
        except PenstockError:
            return None
        if cached is None:
            return None
        page, end = cached
        return {"partition_index": 0, **_partition_fields(page.start, end, page.records)}

    def _read_partition(self, caller: Principal, name: str, partition: Any, max_bytes: int) -> Values:
        # Not null, which librdkafka refuses together with the error, and asks again at once.
        fields = {"partition_index": partition.partition, "high_watermark": -1, "records": b""}

        def read_fields() -> Values:
            return self._read(self._api.topics.readable(name, caller), partition.fetch_offset, max_bytes)

        return _answer_partition(partition.partition, fields, read_fields)

    def _read(self, topic: Topic, offset: int, max_bytes: int) -> Values:
        with self._api.topics.reader(topic) as reader:
            start, end, gaps = topic_state(topic, reader)
            if not start <= offset <= end:
                return {**_partition_fields(start, end), "error_code": ErrorCode.offset_out_of_range}
            if offset == end or max_bytes <= 0:
                return _partition_fields(start, end)
            page = self._pages.page(topic, reader, (start, end, gaps), offset, max_bytes)
            return _partition_fields(start, end, page.records)

    async def list_offsets(self, call: Call) -> Values:
        """Return the offsets of timestamps."""
        partitions = partitions_of(call.message.topics)
        answers = await self._api.run(
            lambda: [(name, self._find_offset(call.caller, name, partition)) for name, partition in partitions]
        )
        return {"topics": by_topic(answers, "name", "partitions")}

    def _find_offset(self, caller: Principal, name: str, partition: Any) -> Values:
        def read_fields() -> Values:
            topic = self._api.topics.readable(name, caller)
            find = _offset_created_at if topic.settings.timestamp_type == "create" else _offset_at
            with self._api.topics.reader(topic) as reader:
                offset, millis = find(reader, partition.timestamp)
            return {"offset": offset, "timestamp": millis, "leader_epoch": 0}

        return _answer_partition(partition.partition_index, {"partition_index": partition.partition_index}, read_fields)

    async def offset_for_leader_epoch(self, call: Call) -> Values:
        """Return the end of the only epoch, which is the end of the topic."""
        partitions = partitions_of(call.message.topics, "topic")
        answers = await self._api.run(
            lambda: [(name, self._epoch_end(call.caller, name, partition)) for name, partition in partitions]
        )
        return {"topics": by_topic(answers, "topic", "partitions")}

    def _epoch_end(self, caller: Principal, name: str, partition: Any) -> Values:
        def read_fields() -> Values:
            return {"leader_epoch": 0, "end_offset": self._api.topics.readable(name, caller).end}

        return _answer_partition(partition.partition, {"partition": partition.partition}, read_fields)


def _fetch_answer(session: Session | None, answers: list[tuple[str, Values]]) -> Values:
    if session is None:
        return {"responses": by_topic(answers, "topic", "partitions")}
    return {"session_id": session.number, "responses": by_topic(session.select_changes(answers), "topic", "partitions")}


def _partition_fields(start: int, end: int, records: bytes | memoryview = b"") -> Values:
    return {"high_watermark": end, "last_stable_offset": end, "log_start_offset": start, "records": records}


def _answer_partition(index: int, fields: Values, read: Callable[[], Values]) -> Values:
    """Return ``fields`` and the fields that ``read`` returns for the topic's one partition, or an error code."""
    if index != 0:
        return {**fields, "error_code": ErrorCode.unknown_topic_or_partition}
    try:
        return {**fields, **read()}
    except PenstockError as error:
        return {**fields, "error_code": code_of(error)}


def _offset_at(reader: TopicReader, timestamp: int) -> tuple[int, int]:
    """Return offset and time (milliseconds) of the first record at or after a timestamp; -1 if there is none."""
    end = reader.end
    if timestamp == LATEST:
        return end, -1
    if timestamp == EARLIEST:
        return reader.start, -1
    if timestamp == NEWEST:
        last = _last_batch(reader)
        return (last.end - 1, last.last // 1000) if last is not None else (-1, -1)
    first = next(reader.read(reader.at_timestamp(timestamp * 1000), max_rows=1), None)
    return (first.base, first.first // 1000) if first is not None else (-1, -1)


def _last_batch(reader: TopicReader) -> StoredBatch | None:
    # The topic may end in a gap, as after damage, so its last record is not always the one before its end.
    return next(reader.read_back(reader.end), None)


def _offset_created_at(reader: TopicReader, timestamp: int) -> tuple[int, int]:
    """Return offset and time as ``_offset_at`` does, by the times that producers set."""
    if timestamp in (LATEST, EARLIEST):
        return _offset_at(reader, timestamp)
    end = reader.end
    if timestamp == NEWEST:
        if (last := _last_batch(reader)) is None:
            return -1, -1
        timestamp = int(shown_times(last.batch)[-1])
        best = (-1, -1)
        for stored in reader.read(_search_start(reader, timestamp), end=end):
            times = shown_times(stored.batch)
            if int(times.max()) > best[1]:
                best = stored.base + int(times.argmax()), int(times.max())
        return best
    for stored in reader.read(_search_start(reader, timestamp), end=end):
        times = shown_times(stored.batch)
        matches = np.flatnonzero(times >= timestamp)
        if len(matches):
            return stored.base + int(matches[0]), int(times[matches[0]])
    return -1, -1


def _search_start(reader: TopicReader, timestamp: int) -> int:
    # Limit: no time is more than MAX_AHEAD_MS after the log's own, so entries from before cannot match.
    return reader.at_timestamp(max(timestamp - MAX_AHEAD_MS - CLOCK_SLACK_MS, 0) * 1000)


def _enough(answers: list[tuple[str, Values]], min_bytes: int) -> bool:
    size = sum(len(values.get("records") or b"") for _, values in answers)
    # An error is answered at once: waiting would not remove it.
    return size >= min_bytes or any(values.get("error_code") for _, values in answers)
