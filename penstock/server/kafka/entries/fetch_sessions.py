"""Fetch sessions (KIP-227): a consumer names its partitions once, then only changes, and is answered only with
changes.

Sessions live in memory. Over the limits the least recently used one is evicted; its client gets an error and begins
another.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.server.kafka.schema.messages import Values, partitions_of

MAX_SESSIONS = 1000
MAX_PARTITIONS = 20_000
"""Limit: partitions of all sessions. A consumer with more gets no session and names all partitions in each fetch."""
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
"""Epochs of a fetch that begins a session, and of one without a session."""
MAX_EPOCH = (1 << 31) - 1
Key = tuple[str, int]
PartitionRequest = tuple[str, Any]


class Session:
    """Partitions of one consumer in the order in which they are read, and the last answer for each."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.epoch = 1
        self._partitions: dict[Key, Any] = {}
        self._reported: dict[Key, tuple[Any, Any]] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def partitions(self) -> list[PartitionRequest]:
        """All partitions of the session."""
        return [(name, part) for (name, _), part in self._partitions.items()]

    def add(self, partitions: list[PartitionRequest]) -> None:
        """Add partitions, or change their offsets."""
        for name, partition in partitions:
            self._partitions[name, partition.partition] = partition

    def forget(self, keys: list[Key]) -> None:
        """Remove partitions."""
        for key in keys:
            self._partitions.pop(key, None)
            self._reported.pop(key, None)

    def select_changes(self, answers: list[tuple[str, Values]]) -> list[tuple[str, Values]]:
        """Return the answers that are new to the consumer."""
        return [
            (name, values) for name, values in answers if self._note_change((name, values["partition_index"]), values)
        ]

    def _note_change(self, key: Key, values: Values) -> bool:
        """Remember what the consumer is answered; return whether it is new to it."""
        now = values.get("high_watermark"), values.get("log_start_offset")
        is_change = bool(values.get("error_code")) or self._reported.get(key) != now
        if key in self._partitions:
            self._reported[key] = (None, None) if values.get("error_code") else now
        if values.get("records") and key in self._partitions:
            # Order: a partition with records moves to the end, so that others are read first the next time.
            self._partitions[key] = self._partitions.pop(key)
        return is_change or bool(values.get("records"))


class Sessions:
    """Sessions of all consumers. Owned by the event loop."""

    def __init__(self, numbers: Callable[[], int] = lambda: secrets.randbelow(MAX_EPOCH) + 1) -> None:
        self._numbers = numbers
        self._open: dict[int, Session] = {}
        """Sessions in order of use, the most recently used one last."""

    def session(self, message: Any) -> Session | ErrorCode | None:
        """Return the session of a fetch, updated by it; None if the fetch has no session, or an error code."""
        number, epoch = getattr(message, "session_id", 0), getattr(message, "session_epoch", FINAL_EPOCH)
        partitions = partitions_of(message.topics, "topic")
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._open.pop(number, None)
            return self._begin(partitions) if epoch == INITIAL_EPOCH and partitions else None
        session = self._open.pop(number, None)
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        self._open[number] = session
        if epoch != session.epoch:
            return ErrorCode.invalid_fetch_session_epoch
        session.epoch = epoch % MAX_EPOCH + 1
        forgotten, before = message.forgotten_topics_data, len(session)
        session.forget([(topic.topic, index) for topic in forgotten for index in topic.partitions])
        session.add(partitions)
        if len(session) > before:
            self._evict()
        return session

    def _begin(self, partitions: list[PartitionRequest]) -> Session | None:
        if len(partitions) > MAX_PARTITIONS:
            return None
        # Random numbers: a client whose session was evicted must not hit another client's session.
        number = next(number for number in iter(self._numbers, 0) if number not in self._open)
        self._open[number] = session = Session(number)
        session.add(partitions)
        self._evict()
        return session

    def _evict(self) -> None:
        """Remove least recently used sessions over the limits; the newest one as well if it alone exceeds them."""
        while len(self._open) > MAX_SESSIONS or sum(map(len, self._open.values())) > MAX_PARTITIONS:
            del self._open[next(iter(self._open))]
