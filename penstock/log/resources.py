"""Resources that all topics of a log share: open files, the byte budget, the disk reserve, clock and threads."""

from __future__ import annotations

import contextlib
import math
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

from penstock.files.file_system import FileSystem
from penstock.log.commit.committer_threads import Committers
from penstock.log.errors import LOG_PART, LogFull
from penstock.log.plausible_clock import PlausibleClock
from penstock.process.kernel import file_shortage

T = TypeVar("T")
MAX_OPEN_TOPICS = 1024
"""Limit for the topics whose files stay open. To open and close the files costs twice as much as a small append."""
FILES_PER_TOPIC = 4
"""Descriptors of a topic that is open for writing."""
PRODUCER_MEMORY_S = 86_400.0
RESERVE_BYTES = 256 << 10
"""Space for some gaps with many counts and for a new segment, which deletions need on a full disk."""


class FileHolder(Protocol):
    """An owner of open files."""

    lock: threading.Lock

    def release(self) -> None:
        """Close the files. The caller holds ``lock``."""


class OpenFiles:
    """The owners of open files, most recent last; at most ``limit`` keep them open. From any thread."""

    def __init__(self, limit: int = 0) -> None:
        """``limit`` 0 is derived from the limit of open files."""
        # Limit: a quarter of all descriptors, because connections, sockets and readers need the others.
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4 // FILES_PER_TOPIC
        self._limit = limit or max(1, min(MAX_OPEN_TOPICS, allowed))
        self._lock = threading.Lock()
        self._holders: OrderedDict[int, FileHolder] = OrderedDict()

    def touch(self, holder: FileHolder) -> None:
        """Record that ``holder``, whose lock the caller has, has open files; close the files of the least recent
        holders.
        """
        with self._lock:
            self._holders[id(holder)] = holder
            self._holders.move_to_end(id(holder))
            extra = list(islice(self._holders.values(), max(0, len(self._holders) - self._limit)))
        self._release(extra)

    def retry_with_room(self, holder: FileHolder, action: Callable[[], T]) -> T:
        """Return ``action()``; if no descriptor is free, close the files of all other holders and call it again.

        Raises the exceptions of ``action``, which must be repeatable.
        """
        try:
            return action()
        except OSError as error:
            if not file_shortage(error):
                raise
            with self._lock:
                others = [other for other in self._holders.values() if other is not holder]
            if not self._release(others):
                raise
            return action()

    def _release(self, holders: Iterable[FileHolder]) -> bool:
        """Close the files of idle holders; report whether there was one."""
        has_released = False
        for holder in holders:
            # Never wait: two writers that wait for each other's lock would deadlock. A busy holder keeps its files.
            if holder.lock.acquire(blocking=False):
                try:
                    holder.release()
                    # Order: within the lock. Behind it the holder may open its files again, and would not be counted.
                    self.forget(holder)
                finally:
                    holder.lock.release()
                has_released = True
        return has_released

    def forget(self, holder: FileHolder) -> None:
        """Record that ``holder`` has no open files."""
        with self._lock:
            self._holders.pop(id(holder), None)


class Budget:
    """The bytes of all topics together; ``limit`` 0 means no limit. From any thread."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self._used = 0
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        return self._used

    def add(self, size: int) -> None:
        """Add written bytes, or negative removed ones."""
        with self._lock:
            self._used += size

    def measured(self, size: int) -> None:
        """Replace the running total by a measured one, which corrects drift from files that others remove."""
        with self._lock:
            self._used = size

    def check(self, size: int) -> None:
        """Raise LogFull if ``size`` more bytes exceed the limit."""
        if self.limit and self._used + size > self.limit:
            raise LogFull(
                f"log.max_bytes: {self._used} of {self.limit} bytes are used, {size} more do not fit", LOG_PART
            )


class Reserve:
    """A file that is removed when the disk is full, so that a deletion can record its gaps first. From any thread."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self._path = path
        self._lock = threading.Lock()
        self._in_use = False

    def for_making_room(self, free_space: Callable[[], T]) -> T:
        """Return ``free_space()``; if the disk is full, remove the reserve and call it again.

        Appends are refused during the second call, or they would take the space. Raises the exceptions of
        ``free_space``.
        """
        try:
            return free_space()
        except LogFull:
            with self._lock:
                if not self.free():
                    raise
                self._in_use = True
                try:
                    return free_space()
                finally:
                    self._in_use = False
                    self.restore()

    def check(self) -> None:
        """Raise LogFull while a deletion uses the reserve: appends must not take its space."""
        if self._in_use:
            raise LogFull("no space left on the disk: rows are being dropped, try again")

    def free(self) -> bool:
        """Remove the reserve; return False if it does not exist."""
        try:
            self._fs.remove(self._path)
        except OSError:
            return False
        return True

    def restore(self) -> None:
        """Create the reserve again if there is space."""
        if self._path.exists() and self._fs.size(self._path) == RESERVE_BYTES:
            return
        try:
            with contextlib.closing(self._fs.open(self._path, create=True)) as file:
                file.write([bytes(RESERVE_BYTES)], 0)
        except OSError:
            self.free()


@dataclass(slots=True)
class SharedResources:
    """Resources shared by the topics of one log. ``producer_memory`` in seconds."""

    fs: FileSystem
    clock: PlausibleClock
    committers: Committers
    reserve: Reserve
    budget: Budget = field(default_factory=Budget)
    handles: OpenFiles = field(default_factory=OpenFiles)
    producer_memory: float = PRODUCER_MEMORY_S
    refused: tuple[float, LogFull | None] = (-math.inf, None)
    """Monotonic time and error of the last append that was refused for lack of space."""
    recovered: list[Callable[[str, int], None]] = field(default_factory=list)
    """Called with name and end of a recovered topic, before anything is appended to it."""
