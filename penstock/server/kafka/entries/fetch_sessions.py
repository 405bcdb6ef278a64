"""Sessions of fetches (KIP-227): a consumer names what it wants once, then only what changes, and is told only that.

A session is kept until its client ends it, or others need its place: the one that was used longest ago goes. Its client
is told so, and begins another one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.server.kafka.schema.messages import Values, partitions_of

MOST_SESSIONS = 1000
MOST_PARTITIONS = 20_000
"""Of all sessions together; whoever wants more has no session, and says in each fetch what it wants."""
NEW, NONE = 0, -1
"""Epochs of who begins a session, and of who wants none."""
EPOCHS = (1 << 31) - 1
Key = tuple[str, int]
Asked = tuple[str, Any]


class Session:
    """What one consumer wants, in the order in which it is looked for, and what it was told last."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.epoch = 1
        self._wanted: dict[Key, Any] = {}
        self._told: dict[Key, tuple[Any, Any]] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def asked(self) -> list[Asked]:
        """All partitions that are wanted."""
        return [(name, part) for (name, _), part in self._wanted.items()]

    def want(self, asked: list[Asked]) -> None:
        """Partitions are wanted from now on, or from another offset on."""
        for name, part in asked:
            self._wanted[name, part.partition] = part

    def forget(self, keys: list[Key]) -> None:
        """Partitions are wanted no more."""
        for key in keys:
            self._wanted.pop(key, None)
            self._told.pop(key, None)

    def news(self, found: list[tuple[str, Values]]) -> list[tuple[str, Values]]:
        """What of ``found`` is new to the consumer. Where there were records, others have their turn first."""
        return [(name, values) for name, values in found if self._is_new((name, values["partition_index"]), values)]

    def _is_new(self, key: Key, values: Values) -> bool:
        now = values.get("high_watermark"), values.get("log_start_offset")
        is_new = bool(values.get("error_code")) or self._told.get(key) != now
        if key in self._wanted:
            self._told[key] = (None, None) if values.get("error_code") else now
        if values.get("records") and key in self._wanted:
            self._wanted[key] = self._wanted.pop(key)
        return is_new or bool(values.get("records"))


class Sessions:
    """The sessions of all consumers."""

    def __init__(self, numbers: Callable[[], int] = lambda: secrets.randbelow(EPOCHS) + 1) -> None:
        self._numbers = numbers
        self._open: dict[int, Session] = {}
        """The one that was used last is at the end."""

    def session(self, message: Any) -> Session | ErrorCode | None:
        """The session that a fetch belongs to, with what it changes; None where it has none, or why it has none."""
        number, epoch = getattr(message, "session_id", 0), getattr(message, "session_epoch", NONE)
        asked = partitions_of(message.topics, "topic")
        if epoch in (NEW, NONE):
            self._open.pop(number, None)
            return self._begun(asked) if epoch == NEW and asked else None
        session = self._open.pop(number, None)
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        self._open[number] = session
        if epoch != session.epoch:
            return ErrorCode.invalid_fetch_session_epoch
        session.epoch = epoch % EPOCHS + 1
        forgotten, before = message.forgotten_topics_data, len(session)
        session.forget([(topic.topic, index) for topic in forgotten for index in topic.partitions])
        session.want(asked)
        if len(session) > before:
            self._make_room()
        return session

    def _begun(self, asked: list[Asked]) -> Session | None:
        if len(asked) > MOST_PARTITIONS:
            return None
        number = next(number for number in iter(self._numbers, 0) if number not in self._open)
        self._open[number] = session = Session(number)
        session.want(asked)
        self._make_room()
        return session

    def _make_room(self) -> None:
        """The oldest ones go; also the last one, where it alone is too large."""
        while len(self._open) > MOST_SESSIONS or sum(map(len, self._open.values())) > MOST_PARTITIONS:
            del self._open[next(iter(self._open))]
