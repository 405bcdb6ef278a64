"""The topics of a directory: opening, creating, configuring and deleting them, and their shared resources."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from penstock.files.errors import Locked
from penstock.files.file_system import OS, SYSTEM_CLOCK, Clock, FileSystem
from penstock.log import topic_state
from penstock.log.commit.committer_threads import Committers
from penstock.log.cursors import Cursors
from penstock.log.errors import (
    InvalidTopicName,
    LogClosed,
    LogError,
    LogFull,
    LogLocked,
    TooManyTopics,
    TopicExists,
    UnknownFormat,
    UnknownTopic,
    write_error,
)
from penstock.log.plausible_clock import FILE_NAME as CLOCK
from penstock.log.plausible_clock import PlausibleClock, newest_stored
from penstock.log.read.segment_view import StoredBatch
from penstock.log.resources import Budget, OpenFiles, Reserve, SharedResources
from penstock.log.retention.dropping import Swept
from penstock.log.settings import MAX_NAME_BYTES, TopicSettings, validate_settings
from penstock.log.store.visibility import CommitBarrier
from penstock.log.topic import Topic
from penstock.log.topic_summary import TopicSummaries
from penstock.log.transactions.transactions import Limits, Transactions, new_id

LOCK = "LOCK"
RESERVE = "RESERVE"
"""Files in the folder of the topics; their capitals are not allowed in the name of a topic."""
RETENTION_SETTING = "retain_bytes"
"""The setting whose change may free space, and may therefore use the reserve."""
_LOGGER = logging.getLogger(__name__)
_NAME = re.compile(r"[a-z0-9_\-.]+")
_NO_OVERRIDES: Mapping[str, TopicSettings] = MappingProxyType({})
_NO_CHANGES: Mapping[str, object] = MappingProxyType({})
Observer = Callable[[str, StoredBatch], None]


class Log:
    """The topics in ``directory``, open for writing: one Log at a time, in one process. Raises LogLocked.

    ``committers`` are the threads that write for all topics, or their number; ``max_bytes`` 0 means no limit. All
    methods may be called from any thread. Locks: ``_lock`` guards the tables of topics; a topic's own locks guard its
    files.
    """

    def __init__(
        self,
        directory: Path,
        defaults: TopicSettings | None = None,
        *,
        overrides: Mapping[str, TopicSettings] = _NO_OVERRIDES,
        max_topics: int = 1000,
        max_bytes: int = 0,
        transactions: Limits | None = None,
        clock: Clock = SYSTEM_CLOCK,
        fs: FileSystem = OS,
        committers: int | Committers = 4,
        new_transaction_id: Callable[[], str] = new_id,
    ) -> None:
        self.directory = directory
        self._defaults = defaults or TopicSettings()
        self._overrides = overrides
        self._max_topics = max_topics
        self._fs = fs
        self._lock = threading.RLock()
        self._topics: dict[str, Topic] = {}
        self.summaries = TopicSummaries(directory, self._cursors)
        self._observers: list[Observer] = []
        self._sweep_observers: list[Callable[[list[Swept]], None]] = []
        self._refused_at_s: dict[str, float] = {}
        self._closed = False
        self._reported_formats: set[str] = set()
        limits = transactions or Limits()
        fs.make_directory(directory)
        try:
            self._unlock = fs.lock(directory / LOCK)
        except Locked as error:
            raise LogLocked(str(error)) from None
        try:
            self._barrier = CommitBarrier(fs, directory)
            self.transactions = Transactions(self, fs, clock, self._barrier, limits, new_transaction_id)
            # Order: interrupted transactions first, before a recovery of single topics could accept half of one.
            self.transactions.recover()
            self._own_settings = dict(self._find_topics())
            self._names = set(self._own_settings)
            self.clock = PlausibleClock(
                clock, fs, directory / CLOCK, lambda: newest_stored(fs, directory, sorted(self._names))
            )
            threads = Committers(committers) if isinstance(committers, int) else committers
            reserve = Reserve(fs, directory / RESERVE)
            self._shared = SharedResources(
                fs, self.clock, threads, reserve, Budget(max_bytes), OpenFiles(), limits.producer_memory
            )
            reserve.restore()
            self._measure_usage()
            if self._barrier.writer_died:
                self._open_all()
                self._barrier.free()
        except BaseException:
            self._unlock()
            raise

    @property
    def committers(self) -> Committers:
        """Return the threads that write for all topics."""
        return self._shared.committers

    def _find_topics(self) -> Iterator[tuple[str, Mapping[str, object]]]:
        """Yield the existing topics with their changed settings; remove the remains of deleted ones."""
        with os.scandir(self.directory) as entries:
            folders = [entry.name for entry in entries if _NAME.fullmatch(entry.name) and entry.is_dir()]
        for name in folders:
            if (own := topic_state.load_or_clear(self._fs, self.directory / name)) is not None:
                yield name, own

    def _measure_usage(self) -> None:
        """Add up the bytes of all topics on the disk, if they are limited."""
        if self._shared.budget.limit:
            size = sum(_size(self.directory / name) for name in self.names(internal=True))
            room = sum(topic.writer.room for topic in list(self._topics.values()))
            self._shared.budget.measured(max(0, size - room))

    def _open_all(self) -> None:
        """Recover all topics of a known format."""
        for name in self.names(internal=True):
            with contextlib.suppress(UnknownFormat):
                self.topic(name, internal=True)

    def settings(self, name: str) -> TopicSettings:
        """Return the settings of a topic, whether it exists or not."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic.settings
        own = self._own_settings.get(name)
        return self._configured(name).changed(own) if own else self._configured(name)

    def _configured(self, name: str) -> TopicSettings:
        """Return the configured settings. Internal topics are kept forever unless the configuration names them."""
        settings = self._overrides.get(name)
        if settings is None and name.startswith("_"):
            return replace(self._defaults, stale_after=math.inf, retain_bytes=0)
        return settings or self._defaults

    def topic(self, name: str, *, create: bool = False, internal: bool = False) -> Topic:
        r"""Return the topic ``name``, recovered when it is opened for the first time.

        Raises InvalidTopicName (it must match [a-z0-9_\-.]+, and may start with "_" only with ``internal``),
        UnknownTopic, TooManyTopics, UnknownFormat, LogFull and LogClosed.
        """
        # Fast path without the lock: the table only grows, except for a deletion, whose topic refuses appends itself.
        open_topic = self._topics.get(name)
        if open_topic is not None and (internal or not name.startswith("_")):
            return open_topic
        _check_name(name, internal)
        with self._lock:
            self._check_open()
            if name not in self._names:
                if not create:
                    raise UnknownTopic(f"there is no topic {name!r}")
                self._make_folder(name, {})
            return self._topics.get(name) or self._open(name)

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed")

    def _open(self, name: str) -> Topic:
        path = self.directory / name
        try:
            settings = self._configured(name).changed(topic_state.read_changes(self._fs, path))
            topic = Topic(path, settings, self._shared)
        except UnknownFormat as error:
            raise UnknownFormat(f"topic {name!r} is not opened: {error}") from error
        for observer in self._observers:
            topic.subscribe(_observed(name, observer))
        self._topics[name] = topic
        return topic

    def create(self, name: str, changes: Mapping[str, object] = _NO_CHANGES) -> Topic:
        """Create a topic with settings of its own.

        Raises TopicExists, InvalidTopicName, TooManyTopics, InvalidSetting, LogFull, WriteFailed and LogClosed.
        """
        _check_name(name, internal=False)
        with self._lock:
            self._check_open()
            if name in self._names:
                raise TopicExists(f"there is a topic {name!r} already")
            self._configured(name).changed(changes)
            self._make_folder(name, changes)
            return self._open(name)

    def _make_folder(self, name: str, changes: Mapping[str, object]) -> None:
        """Create the topic's folder, or revive that of a deleted topic."""
        self.check_writable(name, internal=True)
        path = self.directory / name
        try:
            self._fs.make_directory(path)
            # Order: old files go first, then the new settings, then the mark of the deletion. Crash: in between the
            # topic stays deleted, and no old row or setting comes back.
            if deleted := topic_state.is_deleted(path):
                topic_state.clear(self._fs, path)
            if changes:
                topic_state.write_changes(self._fs, path, validate_settings(changes))
            if deleted:
                topic_state.revive(self._fs, path)
            self._fs.sync_directory(self.directory)
        except OSError as error:
            raise write_error(error) from error
        self._names.add(name)

    def check_writable(self, name: str, *, internal: bool = False) -> None:
        """Raise InvalidTopicName, or TooManyTopics if the topic does not exist and cannot be created."""
        _check_name(name, internal)
        if name not in self._names and not name.startswith("_") and len(self.names()) >= self._max_topics:
            raise TooManyTopics(
                f"log.max_topics: {self._max_topics} topics exist already: delete topics or raise the limit"
            )

    def configure(self, name: str, changes: Mapping[str, object]) -> TopicSettings:
        """Change settings of a topic, durably and at once; return its settings.

        On a full disk a change of ``retain_bytes`` frees space at once. Raises UnknownTopic, InvalidTopicName,
        InvalidSetting, LogFull and WriteFailed.
        """
        topic = self.topic(name)
        with self._lock:
            settings = topic.settings.changed(changes)
            changed = {**topic_state.read_changes(self._fs, topic.path), **validate_settings(changes)}
            full = self._write_changes(topic, changed, RETENTION_SETTING in changes)
            topic.writer.settings = settings
        if full:
            topic.sweep()
            self._shared.reserve.restore()
        return settings

    def _write_changes(self, topic: Topic, changed: Mapping[str, object], makes_room: bool) -> bool:
        """Store the changed settings; return whether the reserve was used for it. Raises LogError."""
        attempts = 0

        def write() -> None:
            nonlocal attempts
            attempts += 1
            try:
                topic_state.write_changes(self._fs, topic.path, changed)
            except OSError as error:
                raise write_error(error) from error

        if makes_room:
            self._shared.reserve.for_making_room(write)
        else:
            write()
        return attempts > 1

    def reconfigure(
        self,
        defaults: TopicSettings,
        overrides: Mapping[str, TopicSettings],
        max_topics: int,
        max_bytes: int,
        transactions: Limits,
    ) -> None:
        """Continue with another configuration; changes by ``configure`` stay in force.

        ``transactions.producer_memory`` applies to topics that are opened later.
        """
        with self._lock:
            self._defaults, self._overrides, self._max_topics = defaults, overrides, max_topics
            self._shared.budget.limit, self._shared.producer_memory = max_bytes, transactions.producer_memory
            self.transactions.limits = transactions
            self._measure_usage()
            for name, topic in self._topics.items():
                with contextlib.suppress(UnknownFormat):
                    topic.writer.settings = self._configured(name).changed(
                        topic_state.read_changes(self._fs, topic.path)
                    )

    def delete(self, name: str) -> None:
        """Delete a topic: its offsets become a gap ``deleted`` with its counts, then its data is removed.

        If the name is used again, offsets continue. Raises UnknownTopic, InvalidTopicName, LogFull and WriteFailed.
        """
        topic = self.topic(name)
        topic.close(UnknownTopic(f"there is no topic {name!r}"))
        topic.wait_until_idle()
        try:
            # Order: appends are refused and the queue is empty first, so that no row arrives behind the gap.
            topic.remove()
        except LogError:
            topic.reopen()
            raise
        with self._lock:
            self._topics.pop(name, None)
            self._own_settings.pop(name, None)
            self._names.discard(name)
        self.summaries.forget(name)

    def _cursors(self, name: str) -> Cursors:
        topic = self._topics.get(name)
        return topic.cursors if topic is not None else Cursors(self._fs, self.directory / name)

    def sweep(self) -> list[Swept]:
        """Drop what retention allows and close old segments; return what was dropped. Failures are repeated next
        time.
        """
        self.transactions.expire()
        dropped: list[Swept] = []
        for name in self.names(internal=True):
            with contextlib.suppress(UnknownTopic), self._reporting_unknown_formats():
                dropped += self.topic(name, internal=True).sweep()
        self._shared.reserve.restore()
        self._measure_usage()
        self.clock.store_time()
        for observer in self._sweep_observers:
            observer(dropped)
        return dropped

    @contextlib.contextmanager
    def _reporting_unknown_formats(self) -> Iterator[None]:
        """Skip a topic of an unknown format; log it once."""
        try:
            yield
        except UnknownFormat as error:
            if str(error) not in self._reported_formats:
                self._reported_formats.add(str(error))
                _LOGGER.error("%s", error)

    def names(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted; with ``internal`` also internal ones."""
        with self._lock:
            names = sorted(self._names)
        return names if internal else [name for name in names if not name.startswith("_")]

    def buffer_position(self, topic: str, buffer: str) -> int:
        """Return the position up to which a topic has stored the frames of a log buffer; 0 if it cannot tell."""
        return self._position(topic, lambda found: found.buffer_position(buffer))

    def recovered_position(self, topic: str, buffer: str) -> int:
        """Return ``buffer_position`` as of the topic's last recovery."""
        return self._position(topic, lambda found: found.recovered_position(buffer))

    def _position(self, topic: str, position: Callable[[Topic], int]) -> int:
        try:
            return position(self.topic(topic, internal=True))
        except (LogError, OSError):
            return 0

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` (name, batch) for each synced batch of each topic, on the committing thread: never
        block.
        """
        with self._lock:
            self._observers.append(observer)
            for name, topic in self._topics.items():
                topic.subscribe(_observed(name, observer))

    def observe_recoveries(self, observer: Callable[[str, int], None]) -> None:
        """Call ``observer`` (name, end) after each recovery of a topic, which may add rows and gaps; never block.

        A topic is recovered when it is opened, or later if the disk was full.
        """
        self._shared.recovered.append(observer)

    def observe_sweeps(self, observer: Callable[[list[Swept]], None]) -> None:
        """Call ``observer`` after each sweep with what was dropped."""
        self._sweep_observers.append(observer)

    def recent_space_error(self, within: float) -> LogFull | None:
        """Return the error of an append that was refused for lack of space within the last seconds; None without."""
        time, error = self._shared.refused
        return error if self.clock.monotonic() - time < within else None

    def note_refusal(self, source: str) -> None:
        """Note that messages of ``source``, a listener, were refused for lack of space."""
        self._refused_at_s[source] = self.clock.monotonic()

    def was_refused(self, source: str, within: float) -> bool:
        """Report whether messages of ``source`` were refused for lack of space within the last seconds."""
        return self.clock.monotonic() - self._refused_at_s.get(source, -math.inf) < within

    def close(self) -> None:
        """Commit all appends, then close all files. Later appends fail with LogClosed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            topics = list(self._topics.values())
        self.transactions.close()
        for topic in topics:
            topic.close()
        for topic in topics:
            topic.wait_until_idle()
        # Order: every topic has refused new appends and emptied its queue before the threads end.
        self._shared.committers.close()
        for topic in topics:
            topic.release()
        self.clock.store_time()
        self._barrier.close()
        self._unlock()


def _size(folder: Path) -> int:
    """Return the bytes of the files in a topic's folder; files may come and go during the call."""
    size = 0
    for file in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):
            size += file.stat().st_size
    return size


def _observed(name: str, observer: Observer) -> Callable[[StoredBatch], None]:
    return lambda stored: observer(name, stored)


def _check_name(name: str, internal: bool) -> None:
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidTopicName(r"Topic must conform to pattern [a-z0-9_\-.]+")
    if len(name) > MAX_NAME_BYTES:
        raise InvalidTopicName(f"a topic name has at most {MAX_NAME_BYTES} characters")
    if name.startswith("_") and not internal:
        raise InvalidTopicName(f"topic {name!r}: names that begin with '_' are reserved")
