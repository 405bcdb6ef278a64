"""Administration: topics and their settings, transactions, cursors, maintenance. Blocking; raises ApiError only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import ValidationError

from penstock.config import TopicConfig
from penstock.config.complaints import in_words
from penstock.config.sources import IGNORED
from penstock.files.change_log import ChangeLog
from penstock.files.json_values import parse_json
from penstock.log import CorruptBatch, Cursors, Gap, LogError, TopicSettings
from penstock.log.topic_summary import TopicSummary
from penstock.server.auth.permitted_topics import PermittedTopics, api_error, check_name
from penstock.server.auth.rights import Principal
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.errors import BadRequest, Damaged, NoSuchTopic, NotAllowed

T = TypeVar("T")
Post = Callable[[Any], dict[str, Any]]
"""Enters a post in the ledger."""
SETTINGS = tuple(field.name for field in pb.TopicSettings.DESCRIPTOR.fields)
"""The names of a topic's settings; in ``penstock.log.TopicSettings`` they are the same."""


class AdminApi:
    """Operations behind the calls that slogd does not have."""

    def __init__(self, topics: PermittedTopics, post: Post | None = None, changes: ChangeLog | None = None) -> None:
        self._topics, self._log, self._post, self._changes = topics, topics.log, post, changes

    def record(self, change: str, caller: Principal, origin: str) -> None:
        """Record a change that a caller made from the address ``origin``."""
        if self._changes:
            self._changes.record(caller.name or "somebody", change, origin)

    def create(self, topic: str, changes: Mapping[str, object], caller: Principal) -> pb.TopicDescription:
        """Create a topic with its settings. Raises AlreadyExists, BadRequest, Exhausted, NotAllowed."""
        self._check(topic, caller)
        settings = parse_settings(changes)
        _translate_errors(lambda: self._log.create(topic, settings), topic)
        return self._describe(topic, caller)

    def configure(self, topic: str, changes: Mapping[str, object], caller: Principal) -> pb.TopicDescription:
        """Change settings, in force at once. Raises NoSuchTopic, BadRequest, NotAllowed."""
        self._check(topic, caller)
        settings = parse_settings(changes)
        _translate_errors(lambda: self._log.configure(topic, settings), topic)
        return self._describe(topic, caller)

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
        if topics := [self._topics.readable(name, caller).name for name in names]:
            return [self._describe(topic, caller) for topic in topics]
        return list(self._for_each_readable(self._describe, caller))

    def _for_each_readable(self, call: Callable[[str, Principal], T], caller: Principal) -> Iterator[T]:
        """Yield ``call`` of all topics that the caller may read, but for topics that cannot be opened."""
        for topic in self._topics.names(caller):
            with contextlib.suppress(Damaged, NoSuchTopic):
                yield call(topic, caller)

    def _describe(self, topic: str, caller: Principal) -> pb.TopicDescription:
        summary = self._summary(topic, caller)
        extent = summary.extent
        described = pb.TopicDescription(
            name=topic,
            start=extent.start,
            end=extent.end,
            gaps=map(_gap, extent.gaps),
            bytes=summary.bytes,
            segments=summary.segments,
            cursors=self._cursors(topic, summary),
            settings=settings_message(self._log.settings(topic)),
        )
        for field, micros in ((described.oldest, extent.oldest), (described.newest, extent.newest)):
            if micros is not None:
                field.CopyFrom(stamp(micros))
        return described

    def _summary(self, topic: str, caller: Principal) -> TopicSummary:
        """Return the summary of a topic, which is opened only if its files are not in order."""
        read = partial(self._log.summaries.read, topic)
        with contextlib.suppress(CorruptBatch, LogError, FileNotFoundError):
            return read()
        opened = self._topics.readable(topic, caller)
        return _translate_errors(partial(opened.read_repaired, read), topic)

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
        """Remove a cursor if it exists. Raises NoSuchTopic, NotAllowed, Exhausted."""
        cursors = self._movable(topic, name, caller)
        _translate_errors(lambda: cursors.remove(name), topic)

    def _movable(self, topic: str, cursor: str, caller: Principal) -> Cursors:
        # Order: the right to read first, so that a caller without it cannot probe which topics exist.
        cursors = self._topics.readable(topic, caller).cursors
        caller.check_cursor(topic, cursor)
        return cursors

    def cursors(self, topic: str, caller: Principal) -> list[pb.Cursor]:
        """Return the cursors of a topic, or of all readable topics. Raises NoSuchTopic, NotAllowed."""
        if topic:
            self._topics.readable(topic, caller)
            return self._cursors(topic, self._summary(topic, caller))
        summaries = self._for_each_readable(lambda name, caller: (name, self._summary(name, caller)), caller)
        return [cursor for name, summary in summaries for cursor in self._cursors(name, summary)]

    def _cursors(self, topic: str, summary: TopicSummary) -> list[pb.Cursor]:
        cursors, now = [], self._log.clock.micros()
        for name, backlog in summary.backlogs.items():
            lag = backlog.lag(now)
            cursor = pb.Cursor(topic=topic, name=name, offset=backlog.offset, lag_seconds=lag.seconds)
            cursor.lag_entries, cursor.lag_bytes = lag.entries, lag.bytes
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
            post = parse_json(document)
        except ValueError as error:
            raise BadRequest(f"document: not JSON: {error}") from None
        caller.check_post(post)
        return bool(self._post(post)["new"])


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
