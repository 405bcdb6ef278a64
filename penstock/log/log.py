"""All topics of a directory."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from penstock.log.committers import Committers
from penstock.log.errors import InvalidTopicName, LogClosed, TooManyTopics, UnknownTopic, write_error
from penstock.log.files import OS, SYSTEM_CLOCK, Clock, FileSystem
from penstock.log.settings import MAX_NAME, TopicSettings
from penstock.log.topic import Topic
from penstock.log.view import Stored

LOCK = "LOCK"
"""The lock's file; no topic can have this name."""
_NAME = re.compile(r"[a-z0-9_\-.]+")
_NO_OVERRIDES: Mapping[str, TopicSettings] = MappingProxyType({})
Observer = Callable[[str, Stored], None]


class Log:
    """The topics in ``directory``, open for writing: one Log at a time, in one process. Raises LogLocked.

    ``committers`` threads write for all topics. All methods may be called from any thread.
    """

    def __init__(
        self,
        directory: Path,
        defaults: TopicSettings | None = None,
        *,
        overrides: Mapping[str, TopicSettings] = _NO_OVERRIDES,
        max_topics: int = 1000,
        clock: Clock = SYSTEM_CLOCK,
        fs: FileSystem = OS,
        committers: int = 4,
    ) -> None:
        self.directory = directory
        self._defaults = defaults or TopicSettings()
        self._overrides = overrides
        self._max_topics = max_topics
        self._clock = clock
        self._fs = fs
        self._lock = threading.RLock()
        self._topics: dict[str, Topic] = {}
        self._observers: list[Observer] = []
        self._closed = False
        fs.make_directory(directory)
        self._unlock = fs.lock(directory / LOCK)
        self._committers = Committers(committers)

    def settings(self, name: str) -> TopicSettings:
        """The settings of a topic, whether it exists or not."""
        return self._overrides.get(name, self._defaults)

    def topic(self, name: str, *, create: bool = False, internal: bool = False) -> Topic:
        """The topic ``name``, recovered when it is opened for the first time.

        Raises InvalidTopicName (it must match [a-z0-9_\\-.]+, and begin with "_" only with ``internal``),
        UnknownTopic, TooManyTopics, LogFull and LogClosed.
        """
        known = self._topics.get(name)
        if known is not None and (internal or not name.startswith("_")):
            return known
        _check_name(name, internal)
        with self._lock:
            if self._closed:
                raise LogClosed("the log is closed")
            return self._topics.get(name) or self._open(name, create)

    def _open(self, name: str, create: bool) -> Topic:
        path = self.directory / name
        if not path.is_dir():
            self._create(path, create)
        settings = self.settings(name)
        topic = Topic(path, settings, clock=self._clock, fs=self._fs, committers=self._committers)
        for observer in self._observers:
            topic.subscribe(_observed(name, observer))
        self._topics[name] = topic
        return topic

    def _create(self, path: Path, create: bool) -> None:
        if not create:
            raise UnknownTopic(f"there is no topic {path.name!r}")
        if not path.name.startswith("_") and len(self.names()) >= self._max_topics:
            raise TooManyTopics(f"there are {self._max_topics} topics already")
        try:
            self._fs.make_directory(path)
            self._fs.sync_directory(self.directory)
        except OSError as error:
            raise write_error(error) from error

    def names(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted; those of internal ones with ``internal``."""
        names = [name for name in self._fs.names(self.directory) if (self.directory / name).is_dir()]
        return sorted(n for n in names if _NAME.fullmatch(n) and (internal or not n.startswith("_")))

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` (name, batch) for every synced batch of every topic; never block in it."""
        with self._lock:
            self._observers.append(observer)
            for name, topic in self._topics.items():
                topic.subscribe(_observed(name, observer))

    def close(self) -> None:
        """Commit what was appended, then close all files. Appends from now on fail with LogClosed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            topics = list(self._topics.values())
        for topic in topics:
            topic.close()
        for topic in topics:
            topic.settle()
        self._committers.close()
        for topic in topics:
            topic.release()
        self._unlock()


def _observed(name: str, observer: Observer) -> Callable[[Stored], None]:
    return lambda stored: observer(name, stored)


def _check_name(name: str, internal: bool) -> None:
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidTopicName(r"Topic must conform to pattern [a-z0-9_\-.]+")
    if len(name) > MAX_NAME:
        raise InvalidTopicName(f"a topic name has at most {MAX_NAME} characters")
    if name.startswith("_") and not internal:
        raise InvalidTopicName(f"topic {name!r}: names that begin with '_' are reserved")
