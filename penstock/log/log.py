"""All topics of a directory."""

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
from penstock.log.errors import (
    InvalidTopicName,
    LogClosed,
    LogError,
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
from penstock.log.transactions.transactions import Limits, Transactions

LOCK = "LOCK"
RESERVE = "RESERVE"
"""Files beside the topics; no topic can have these names."""
RETAIN = "retain_bytes"
"""The setting that makes room."""
_LOGGER = logging.getLogger(__name__)
_NAME = re.compile(r"[a-z0-9_\-.]+")
_NO_OVERRIDES: Mapping[str, TopicSettings] = MappingProxyType({})
_NO_CHANGES: Mapping[str, object] = MappingProxyType({})
Observer = Callable[[str, StoredBatch], None]


class Log:
    """The topics in ``directory``, open for writing: one Log at a time, in one process. Raises LogLocked.

    ``committers`` threads write for all topics; ``max_bytes`` 0 is no limit. All methods may be called from any
    thread.
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
        committers: int = 4,
    ) -> None:
        self.directory = directory
        self._defaults = defaults or TopicSettings()
        self._overrides = overrides
        self._max_topics = max_topics
        self._fs = fs
        self._lock = threading.RLock()
        self._topics: dict[str, Topic] = {}
        self._observers: list[Observer] = []
        self._sweep_observers: list[Callable[[list[Swept]], None]] = []
        self._closed = False
        self._told: set[str] = set()
        limits = transactions or Limits()
        fs.make_directory(directory)
        try:
            self._unlock = fs.lock(directory / LOCK)
        except Locked as error:
            raise LogLocked(str(error)) from None
        try:
            self._barrier = CommitBarrier(fs, directory)
            self.transactions = Transactions(self, fs, clock, self._barrier, limits)
            self.transactions.recover()
            self._own = dict(self._find())
            self._names = set(self._own)
            self.clock = PlausibleClock(
                clock, fs, directory / CLOCK, lambda: newest_stored(fs, directory, sorted(self._names))
            )
            threads = Committers(committers)
            reserve = Reserve(fs, directory / RESERVE)
            self._shared = SharedResources(
                fs, self.clock, threads, reserve, Budget(max_bytes), OpenFiles(), limits.producer_memory
            )
            reserve.restore()
            self._measure()
            if self._barrier.died:
                self._open_all()
                self._barrier.free()
        except BaseException:
            self._unlock()
            raise

    @property
    def committers(self) -> Committers:
        """The threads that write for all topics."""
        return self._shared.committers

    def _find(self) -> Iterator[tuple[str, Mapping[str, object]]]:
        """The topics there are, with the settings changed for each; what is left of deleted ones is removed."""
        with os.scandir(self.directory) as entries:
            folders = [entry.name for entry in entries if _NAME.fullmatch(entry.name) and entry.is_dir()]
        for name in folders:
            if (own := topic_state.load_or_clear(self._fs, self.directory / name)) is not None:
                yield name, own

    def _measure(self) -> None:
        """Add up the bytes of all topics on the disk, where they are limited."""
        if self._shared.budget.limit:
            size = sum(_size(self.directory / name) for name in self.names(internal=True))
            room = sum(topic.writer.room for topic in list(self._topics.values()))
            self._shared.budget.measured(max(0, size - room))

    def _open_all(self) -> None:
        """Bring all topics in order; one whose format is not known is left alone."""
        for name in self.names(internal=True):
            with contextlib.suppress(UnknownFormat):
                self.topic(name, internal=True)

    def settings(self, name: str) -> TopicSettings:
        """The settings of a topic, whether it exists or not."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic.settings
        own = self._own.get(name)
        return self._configured(name).changed(own) if own else self._configured(name)

    def _configured(self, name: str) -> TopicSettings:
        """As the configuration has it. Internal topics are kept for ever, unless it names them."""
        settings = self._overrides.get(name)
        if settings is None and name.startswith("_"):
            return replace(self._defaults, stale_after=math.inf, retain_bytes=0)
        return settings or self._defaults

    def topic(self, name: str, *, create: bool = False, internal: bool = False) -> Topic:
        """The topic ``name``, recovered when it is opened for the first time.

        Raises InvalidTopicName (it must match [a-z0-9_\\-.]+, and begin with "_" only with ``internal``),
        UnknownTopic, TooManyTopics, UnknownFormat, LogFull and LogClosed.
        """
        known = self._topics.get(name)
        if known is not None and (internal or not name.startswith("_")):
            return known
        _check_name(name, internal)
        with self._lock:
            self._check_open()
            if name not in self._names:
                if not create:
                    raise UnknownTopic(f"there is no topic {name!r}")
                self._make(name, {})
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
        """A new topic, with settings of its own.

        Raises TopicExists, InvalidTopicName, TooManyTopics, InvalidSetting, LogFull, WriteFailed and LogClosed.
        """
        _check_name(name, internal=False)
        with self._lock:
            self._check_open()
            if name in self._names:
                raise TopicExists(f"there is a topic {name!r} already")
            self._configured(name).changed(changes)
            self._make(name, changes)
            return self._open(name)

    def _make(self, name: str, changes: Mapping[str, object]) -> None:
        """Make the topic's folder, or take that of a deleted one again."""
        self.check_writable(name, internal=True)
        path = self.directory / name
        try:
            self._fs.make_directory(path)
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
        """Raises InvalidTopicName, and TooManyTopics where it does not exist and cannot be made."""
        _check_name(name, internal)
        if name not in self._names and not name.startswith("_") and len(self.names()) >= self._max_topics:
            raise TooManyTopics(f"log.max_topics: there are {self._max_topics} topics already")

    def configure(self, name: str, changes: Mapping[str, object]) -> TopicSettings:
        """Change settings of a topic: kept with it, in force at once. The settings then.

        On a full disk ``retain_bytes`` makes room at once. Raises UnknownTopic, InvalidTopicName, InvalidSetting,
        LogFull and WriteFailed.
        """
        topic = self.topic(name)
        with self._lock:
            settings = topic.settings.changed(changes)
            changed = {**topic_state.read_changes(self._fs, topic.path), **validate_settings(changes)}
            full = self._keep(topic, changed, RETAIN in changes)
            topic.writer.settings = settings
        if full:
            topic.sweep()
            self._shared.reserve.restore()
        return settings

    def _keep(self, topic: Topic, changed: Mapping[str, object], makes_room: bool) -> bool:
        """Write the changed settings down; whether the reserve had to be given up for that. Raises LogError."""
        tried = 0

        def write() -> None:
            nonlocal tried
            tried += 1
            try:
                topic_state.write_changes(self._fs, topic.path, changed)
            except OSError as error:
                raise write_error(error) from error

        if makes_room:
            self._shared.reserve.for_making_room(write)
        else:
            write()
        return tried > 1

    def reconfigure(
        self,
        defaults: TopicSettings,
        overrides: Mapping[str, TopicSettings],
        max_topics: int,
        max_bytes: int,
        transactions: Limits,
    ) -> None:
        """Go on with another configuration; what was changed for a topic by ``configure`` stays changed.

        ``transactions.producer_memory`` is that of topics opened from now on.
        """
        with self._lock:
            self._defaults, self._overrides, self._max_topics = defaults, overrides, max_topics
            self._shared.budget.limit, self._shared.producer_memory = max_bytes, transactions.producer_memory
            self.transactions.limits = transactions
            self._measure()
            for name, topic in self._topics.items():
                with contextlib.suppress(UnknownFormat):
                    topic.writer.settings = self._configured(name).changed(
                        topic_state.read_changes(self._fs, topic.path)
                    )

    def delete(self, name: str) -> None:
        """Delete a topic: its offsets become a gap ``deleted`` with its counts, then its data goes.

        When the name comes back, its offsets go on. Raises UnknownTopic, InvalidTopicName, LogFull and WriteFailed.
        """
        topic = self.topic(name)
        topic.close(UnknownTopic(f"there is no topic {name!r}"))
        topic.settle()
        try:
            topic.remove()
        except LogError:
            topic.reopen()
            raise
        with self._lock:
            self._topics.pop(name, None)
            self._own.pop(name, None)
            self._names.discard(name)

    def sweep(self) -> list[Swept]:
        """Drop what retention allows, close segments that are old; what went. What fails is tried again next time."""
        self.transactions.expire()
        swept: list[Swept] = []
        for name in self.names(internal=True):
            with contextlib.suppress(UnknownTopic), self._telling():
                swept += self.topic(name, internal=True).sweep()
        self._shared.reserve.restore()
        self._measure()
        self.clock.keep()
        for observer in self._sweep_observers:
            observer(swept)
        return swept

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Go on where the format of a topic is not known; that is told once."""
        try:
            yield
        except UnknownFormat as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                _LOGGER.error("%s", error)

    def names(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted; those of internal ones with ``internal``."""
        with self._lock:
            names = sorted(self._names)
        return names if internal else [name for name in names if not name.startswith("_")]

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` (name, batch) for every synced batch of every topic; never block in it."""
        with self._lock:
            self._observers.append(observer)
            for name, topic in self._topics.items():
                topic.subscribe(_observed(name, observer))

    def observe_recoveries(self, observer: Callable[[str, int], None]) -> None:
        """Call ``observer`` (name, end) when a topic was brought in order: rows and gaps may be new; never block in it.

        That is when it is opened, or later, where there was no room for it.
        """
        self._shared.recovered.append(observer)

    def observe_sweeps(self, observer: Callable[[list[Swept]], None]) -> None:
        """Call ``observer`` after every sweep with what went."""
        self._sweep_observers.append(observer)

    def no_room(self, within: float) -> str:
        """Why something was not stored for want of room within the last seconds; empty where all was."""
        at, why = self._shared.refused
        return why if self.clock.monotonic() - at < within else ""

    def close(self) -> None:
        """Commit what was appended, then close all files. Appends from now on fail with LogClosed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            topics = list(self._topics.values())
        self.transactions.close()
        for topic in topics:
            topic.close()
        for topic in topics:
            topic.settle()
        self._shared.committers.close()
        for topic in topics:
            topic.release()
        self.clock.keep()
        self._barrier.close()
        self._unlock()


def _size(folder: Path) -> int:
    """Bytes of the files in a topic's folder, also while they come and go."""
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
