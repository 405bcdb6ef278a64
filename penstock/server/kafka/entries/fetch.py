"""Fetch, ListOffsets and OffsetForLeaderEpoch: rows of topics as record batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.log import Topic
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.rights import Principal
from penstock.server.kafka.calls import Call, Later, code_of
from penstock.server.kafka.entries.fetch_sessions import Asked, Session, Sessions
from penstock.server.kafka.entries.pages import Pages, seen
from penstock.server.kafka.schema.messages import Values, by_topic, partitions_of

LARGEST = 16 << 20
"""Bytes of an answer, at most; a larger message comes alone."""
LONGEST_WAIT = 60.0
LATEST, EARLIEST, NEWEST = -1, -2, -3
"""Timestamps that ask for the end, the beginning, and the newest record."""


class Fetching:
    """Answers consumers."""

    def __init__(self, api: EntriesApi) -> None:
        self._api, self._pages, self._sessions = api, Pages(api), Sessions()

    def fetch(self, call: Call) -> Values | Later:
        """What is new in the topics that a consumer names, or named before.

        Read when the answers before it are on their way, so that one connection holds one answer.
        """
        session = self._sessions.session(call.message)
        if isinstance(session, ErrorCode):
            return {"error_code": session, "responses": ()}
        asked = partitions_of(call.message.topics, "topic") if session is None else session.asked

        def ready() -> Values | None:
            found = self._ready(call, asked)
            return _told(session, found) if found and _enough(found, call.message.min_bytes) else None

        async def values() -> Values:
            return _told(session, await self._waited(call, asked))

        return Later(values, ready)

    async def _waited(self, call: Call, asked: list[Asked]) -> list[tuple[str, Values]]:
        """At once where there is enough; else when it has come, or the client's time is over."""
        loop, message = asyncio.get_running_loop(), call.message
        until = loop.time() + min(max(message.max_wait.total_seconds(), 0), LONGEST_WAIT)
        found = await self._api.run(lambda: self._found(call, asked))
        if not asked or loop.time() >= until or _enough(found, message.min_bytes):
            return found
        topics = await self._api.run(lambda: self._readable(call.caller, {name for name, _ in asked}))
        with self._api.waking(topics) as wake:
            while True:
                wake.clear()
                found = await self._api.run(lambda: self._found(call, asked))
                if loop.time() >= until or _enough(found, message.min_bytes) or self._api.closed:
                    return found
                await wake.wait_until(until)

    def _readable(self, caller: Principal, names: Iterable[str]) -> list[Topic]:
        found = []
        for name in names:
            with contextlib.suppress(PenstockError):
                found.append(self._api.topics.readable(name, caller))
        return found

    def _found(self, call: Call, asked: Iterable[Asked]) -> list[tuple[str, Values]]:
        return self._gathered(call, asked, self._part)

    def _ready(self, call: Call, asked: Iterable[Asked]) -> list[tuple[str, Values]]:
        """What ``_found`` gives, where all of it was read ahead: without the disk, and so without a thread."""
        return self._gathered(call, asked, self._page_ready)

    def _gathered(
        self, call: Call, asked: Iterable[Asked], read: Callable[[Principal, str, Any, int], Values | None]
    ) -> list[tuple[str, Values]]:
        """What ``read`` gives of each partition, in the room that those before it left; nothing where one has none."""
        room = min(max(call.message.max_bytes, 1), LARGEST)
        found: list[tuple[str, Values]] = []
        for name, part in asked:
            values = read(call.caller, name, part, min(room, part.partition_max_bytes))
            if values is None:
                return []
            room -= len(values.get("records") or b"")
            found.append((name, values))
        return found

    def _page_ready(self, caller: Principal, name: str, part: Any, room: int) -> Values | None:
        if part.partition != 0 or not self._api.topics.known(name):
            return None
        try:
            ready = self._pages.ready(self._api.topics.readable(name, caller), part.fetch_offset, room)
        except PenstockError:
            return None
        return None if ready is None else {"partition_index": 0, **_known(ready[0].start, ready[1], ready[0].records)}

    def _part(self, caller: Principal, name: str, part: Any, room: int) -> Values:
        asked = {"partition_index": part.partition, "high_watermark": -1}

        def found() -> Values:
            return self._read(self._api.topics.readable(name, caller), part.fetch_offset, room)

        return _only_partition(part.partition, asked, found)

    def _read(self, topic: Topic, offset: int, room: int) -> Values:
        with self._api.topics.reader(topic) as reader:
            start, end, gaps = seen(topic, reader)
            if not start <= offset <= end:
                return {**_known(start, end), "error_code": ErrorCode.offset_out_of_range}
            if offset == end or room <= 0:
                return _known(start, end)
            return _known(start, end, self._pages.page(topic, reader, (start, end, gaps), offset, room).records)

    async def list_offsets(self, call: Call) -> Values:
        """The offsets of timestamps."""
        asked = partitions_of(call.message.topics)
        found = await self._api.run(lambda: [(name, self._offset(call.caller, name, part)) for name, part in asked])
        return {"topics": by_topic(found, "name", "partitions")}

    def _offset(self, caller: Principal, name: str, part: Any) -> Values:
        def found() -> Values:
            with self._api.topics.reader(self._api.topics.readable(name, caller)) as reader:
                offset, millis = _at(reader, part.timestamp)
            return {"offset": offset, "timestamp": millis, "leader_epoch": 0}

        return _only_partition(part.partition_index, {"partition_index": part.partition_index}, found)

    async def offset_for_leader_epoch(self, call: Call) -> Values:
        """There is one epoch, which ends where the topic ends."""
        asked = partitions_of(call.message.topics, "topic")
        found = await self._api.run(lambda: [(name, self._end(call.caller, name, part)) for name, part in asked])
        return {"topics": by_topic(found, "topic", "partitions")}

    def _end(self, caller: Principal, name: str, part: Any) -> Values:
        def found() -> Values:
            return {"leader_epoch": 0, "end_offset": self._api.topics.readable(name, caller).end}

        return _only_partition(part.partition, {"partition": part.partition}, found)


def _told(session: Session | None, found: list[tuple[str, Values]]) -> Values:
    if session is None:
        return {"responses": by_topic(found, "topic", "partitions")}
    return {"session_id": session.number, "responses": by_topic(session.news(found), "topic", "partitions")}


def _known(start: int, end: int, records: bytes | memoryview = b"") -> Values:
    return {"high_watermark": end, "last_stable_offset": end, "log_start_offset": start, "records": records}


def _only_partition(index: int, asked: Values, found: Callable[[], Values]) -> Values:
    """``asked`` and what is ``found`` of the one partition that a topic has, or the code of why it is not."""
    if index != 0:
        return {**asked, "error_code": ErrorCode.unknown_topic_or_partition}
    try:
        return {**asked, **found()}
    except PenstockError as error:
        return {**asked, "error_code": code_of(error)}


def _at(reader: Any, timestamp: int) -> tuple[int, int]:
    """The offset that a timestamp (milliseconds) asks for, and the time of its record; -1 where there is none."""
    end = reader.end
    if timestamp == LATEST:
        return end, -1
    if timestamp == EARLIEST:
        return reader.start, -1
    offset = max(end - 1, 0) if timestamp == NEWEST else reader.at_timestamp(timestamp * 1000)
    first = next(reader.read(offset, max_rows=1), None)
    return (first.base, first.first // 1000) if first is not None else (-1, -1)


def _enough(found: list[tuple[str, Values]], wanted: int) -> bool:
    size = sum(len(values.get("records") or b"") for _, values in found)
    return size >= wanted or any(values.get("error_code") for _, values in found)
