"""Administration: topics and their settings, transactions, cursors, maintenance. Blocking; raises ApiError only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import ValidationError

from penstock.config import TopicConfig
from penstock.config.complaints import in_words
from penstock.config.sources import IGNORED
from penstock.files.json_values import parse_json
from penstock.log import Cursors, Gap, LogError, Topic, TopicSettings
from penstock.log.store.segment import first_offsets
from penstock.server.auth.permitted_topics import PermittedTopics, api_error, check_name
from penstock.server.auth.rights import Principal
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.errors import BadRequest, NotAllowed

T = TypeVar("T")
Post = Callable[[Any], dict[str, Any]]
"""Enters a post in the ledger."""
SETTINGS = tuple(field.name for field in pb.TopicSettings.DESCRIPTOR.fields)
"""The names of a topic's settings; in ``penstock.log.TopicSettings`` they are the same."""


class AdminApi:
    """Operations behind the calls that slogd does not have."""

    def __init__(self, topics: PermittedTopics, post: Post | None = None) -> None:
        self._topics, self._log, self._post = topics, topics.log, post

    def create(self, topic: str, changes: Mapping[str, object], caller: Principal) -> pb.TopicDescription:
        """Create a topic with its settings. Raises AlreadyExists, BadRequest, Exhausted, NotAllowed."""
        self._check(topic, caller)
        settings = parse_settings(changes)
        return self._describe(_translate_errors(lambda: self._log.create(topic, settings), topic))

    def configure(self, topic: str, changes: Mapping[str, object], caller: Principal) -> pb.TopicDescription:
        """Change settings, in force at once. Raises NoSuchTopic, BadRequest, NotAllowed."""
        self._check(topic, caller)
        settings = parse_settings(changes)
        _translate_errors(lambda: self._log.configure(topic, settings), topic)
        return self._describe(self._log.topic(topic))

    def delete(self, topic: str, caller: Principal) -> None:
        """Delete a topic with all of its entries. Raises NoSuchTopic, NotAllowed."""
        self._check(topic, caller)
        _translate_errors(lambda: self._log.delete(topic), topic)
        # Order: forget last. A request before the deletion might cache the topic again.
        self._topics.forget(topic)

    def _check(self, topic: str, caller: Principal) -> None:
        caller.check_admin()
        check_name(topic)

    def describe(self, names: Iterable[str], caller: Principal) -> list[pb.TopicDescription]:
        """Describe the named topics, else all readable topics that can be opened. Raises NoSuchTopic and others."""
        topics = [self._topics.readable(name, caller) for name in names] or self._topics.all_readable(caller)
        return [_translate_errors(partial(self._describe, topic), topic.name) for topic in topics]

    def _describe(self, topic: Topic) -> pb.TopicDescription:
        described = pb.TopicDescription(name=topic.name)
        _extent(described, topic)
        described.cursors.extend(self._cursors(topic))
        described.settings.CopyFrom(settings_message(topic.settings))
        return described

    def begin(self, timeout: Duration | None, caller: Principal) -> str:
        """Begin a transaction of the caller; return its id. Raises NotAllowed, Exhausted, BadRequest for a bad
        timeout.
        """
        caller.check_transactions()
        seconds = None if timeout is None else timeout.seconds + timeout.nanos / 1e9
        if seconds is not None and seconds <= 0:
            raise BadRequest("timeout must be more than 0")
        return _translate_errors(lambda: self._log.transactions.begin(seconds, caller.name))

    def commit(self, transaction_id: str, caller: Principal) -> list[pb.Committed]:
        """Commit; return the offsets of all staged entries by topic. Raises NotFound, NotAllowed, Aborted,
        Exhausted.
        """
        appended = _translate_errors(lambda: self._log.transactions.commit(transaction_id, caller.name))
        return [
            pb.Committed(topic=topic, offsets=[o for part in parts for o in range(part.first, part.first + part.count)])
            for topic, parts in appended.items()
        ]

    def abort(self, transaction_id: str, caller: Principal) -> None:
        """Drop the staged entries. Raises NotFound, NotAllowed."""
        _translate_errors(lambda: self._log.transactions.abort(transaction_id, caller.name))

    def commit_cursor(self, topic: str, name: str, offset: int, caller: Principal, note: str = "") -> None:
        """Set a cursor, durably. Raises BadRequest, NoSuchTopic, NotAllowed, Exhausted."""
        cursors = self._movable(topic, name, caller)
        try:
            _translate_errors(lambda: cursors.commit(name, offset, note), topic)
        except ValueError as error:
            raise BadRequest(str(error)) from None

    def remove_cursor(self, topic: str, name: str, caller: Principal) -> None:
        """Remove a cursor if it exists. Raises NoSuchTopic, NotAllowed."""
        cursors = self._movable(topic, name, caller)
        _translate_errors(lambda: cursors.remove(name), topic)

    def _movable(self, topic: str, cursor: str, caller: Principal) -> Cursors:
        # Order: the right to read first, so that a caller without it cannot probe which topics exist.
        cursors = self._topics.readable(topic, caller).cursors
        caller.check_cursor(topic, cursor)
        return cursors

    def cursors(self, topic: str, caller: Principal) -> list[pb.Cursor]:
        """Return the cursors of a topic, or of all readable topics. Raises NoSuchTopic, NotAllowed."""
        topics = [self._topics.readable(topic, caller)] if topic else self._topics.all_readable(caller)
        return [cursor for each in topics for cursor in self._cursors(each)]

    def _cursors(self, topic: Topic) -> list[pb.Cursor]:
        cursors, offsets, lags = [], topic.cursors.offsets(), topic.read_repaired(topic.lags)
        # Cursors that were set or removed between the two reads are left out.
        for name in (name for name in offsets if name in lags):
            cursor, lag = pb.Cursor(topic=topic.name, name=name, offset=offsets[name]), lags[name]
            cursor.lag_entries, cursor.lag_bytes, cursor.lag_seconds = lag.entries, lag.bytes, lag.seconds
            cursors.append(cursor)
        return cursors

    def verify(self, topic: str, begin: int, end: int, caller: Principal) -> list[pb.Gap]:
        """Verify offsets [begin, end) (0: the end of the topic); return the gaps made. Raises NoSuchTopic,
        NotAllowed, Exhausted.
        """
        readable = self._topics.readable(topic, caller)
        return list(map(_gap, _translate_errors(lambda: readable.verify(begin, end or readable.end), topic)))

    def compact(self, topic: str, caller: Principal) -> tuple[int, int]:
        """Rewrite sealed segments; return their bytes before and after. Raises NoSuchTopic, NotAllowed, Exhausted."""
        caller.check_admin()
        return _translate_errors(self._topics.readable(topic, caller).compact, topic)

    def cleanup(self, caller: Principal) -> list[pb.Swept]:
        """Apply retention now; return the dropped ranges. Raises NotAllowed, Exhausted."""
        caller.check_admin()
        swept = _translate_errors(self._log.sweep)
        return [pb.Swept(topic=s.topic, begin=s.begin, end=s.end, bytes=s.bytes, reason=s.reason) for s in swept]

    def post_ledger(self, document: str, caller: Principal) -> bool:
        """Post counts to the ledger; return whether they were new. Raises BadRequest, NotAllowed, Exhausted."""
        caller.check_ledger()
        if self._post is None:
            raise NotAllowed("This server keeps no ledger")
        try:
            return bool(self._post(parse_json(document))["new"])
        except ValueError as error:
            raise BadRequest(f"document: not JSON: {error}") from None


def _extent(described: pb.TopicDescription, topic: Topic) -> None:
    """Fill in start, end, gaps, size and times of a topic."""
    extent = topic.read_repaired(topic.reader().extent)
    described.start, described.end = extent.start, extent.end
    described.gaps.extend(map(_gap, extent.gaps))
    # One listing of the folder tells number and size of the segments, without opening them.
    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(topic.path) if entry.is_file()}
    described.bytes = sum(sizes.values())
    described.segments = len(first_offsets(sizes))
    for field, micros in ((described.oldest, extent.oldest), (described.newest, extent.newest)):
        if micros is not None:
            field.CopyFrom(stamp(micros))


def _translate_errors(call: Callable[[], T], topic: str = "") -> T:
    """Run ``call`` and translate errors of the log into errors of the API."""
    try:
        return call()
    except LogError as error:
        raise api_error(error, topic) from error


def _gap(gap: Gap) -> pb.Gap:
    return pb.Gap(begin=gap.begin, end=gap.end, reason=gap.reason)


def stamp(micros: int) -> Timestamp:
    """Return the Timestamp of microseconds since the epoch."""
    seconds, rest = divmod(micros, 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def parse_settings(changes: Mapping[str, object]) -> dict[str, object]:
    """Parse settings; sizes and times may be written as in the configuration (``"16MiB"``, ``"6h"``). Raises
    BadRequest.
    """
    # As in the configuration file, settings of slogd without a meaning here are accepted without effect.
    changes = {name: setting for name, setting in changes.items() if f"topic.*.{name}" not in IGNORED}
    try:
        config = TopicConfig.model_validate(changes)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise BadRequest(f"{key}: {in_words(dict(first), SETTINGS)}") from None
    return {name: getattr(config, name) for name in changes}


def changes_of(settings: pb.TopicSettings) -> dict[str, Any]:
    """Return the settings that the message has, as ``Log.configure`` takes them."""
    changes: dict[str, Any] = {field.name: value for field, value in settings.ListFields()}
    return {name: tuple(value) if name in ("readers", "writers") else value for name, value in changes.items()}


def settings_message(settings: TopicSettings) -> pb.TopicSettings:
    """Return all settings of a topic as a message."""
    return pb.TopicSettings(**{name: getattr(settings, name) for name in SETTINGS})
