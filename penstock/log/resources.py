"""What the topics of one log share: files, clock, threads, limits."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from penstock.files.file_system import FileSystem
from penstock.log.commit.committer_threads import Committers
from penstock.log.errors import LogFull
from penstock.log.plausible_clock import PlausibleClock

T = TypeVar("T")
MAX_OPEN_TOPICS = 200
"""Topics whose files are kept open for writing, four each: within the usual limit of 1,024 a process."""
PRODUCER_MEMORY_S = 86_400.0
RESERVE_BYTES = 256 << 10
"""Room for some gaps with many counts, and for a new segment."""


class FileHolder(Protocol):
    """Who holds files open."""

    lock: threading.Lock

    def release(self) -> None:
        """Close the files; under ``lock``."""


class OpenFiles:
    """Keeps the files of the topics open that were written last, those of at most ``limit``."""

    def __init__(self, limit: int = MAX_OPEN_TOPICS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._holders: OrderedDict[int, FileHolder] = OrderedDict()

    def used(self, holder: FileHolder) -> None:
        """Somebody, whose lock the caller has, holds files now."""
        with self._lock:
            self._holders[id(holder)] = holder
            self._holders.move_to_end(id(holder))
            extra = list(self._holders.values())[: max(0, len(self._holders) - self._limit)]
        for other in extra:
            if other.lock.acquire(blocking=False):  # who is just writing keeps them
                try:
                    other.release()
                finally:
                    other.lock.release()
                self.forget(other)

    def forget(self, holder: FileHolder) -> None:
        """It holds none any more."""
        with self._lock:
            self._holders.pop(id(holder), None)


class Budget:
    """How many bytes all topics have together; ``limit`` 0 is no limit."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self._used = 0
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        return self._used

    def add(self, size: int) -> None:
        """Bytes were written, or (negative) removed."""
        with self._lock:
            self._used += size

    def measured(self, size: int) -> None:
        """The bytes there are, counted again."""
        with self._lock:
            self._used = size

    def check(self, size: int) -> None:
        """Raises LogFull where ``size`` more bytes are too many."""
        if self.limit and self._used + size > self.limit:
            raise LogFull(f"log.max_bytes: {self._used} of {self.limit} bytes are used, and {size} are to be written")


class Reserve:
    """A file that is given up when the disk is full, so that what makes room can write down what it does."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self._path = path
        self._lock = threading.Lock()
        self._in_use = False

    def for_making_room(self, call: Callable[[], T]) -> T:
        """What ``call`` gives, which is to make room; called again with the reserve given up where the disk is full.

        Meanwhile nothing is appended. Raises as ``call``.
        """
        try:
            return call()
        except LogFull:
            with self._lock:
                if not self.free():
                    raise
                self._in_use = True
                try:
                    return call()
                finally:
                    self._in_use = False
                    self.restore()

    def check(self) -> None:
        """Raises LogFull while it is needed to make room: who appends must not take what was given up."""
        if self._in_use:
            raise LogFull("no space left: room is being made")

    def free(self) -> bool:
        """Give it up; False when there is none."""
        try:
            self._fs.remove(self._path)
        except OSError:
            return False
        return True

    def restore(self) -> None:
        """Have it again, where there is room."""
        if self._path.exists() and self._fs.size(self._path) == RESERVE_BYTES:
            return
        try:
            with contextlib.closing(self._fs.open(self._path, create=True)) as file:
                file.write([bytes(RESERVE_BYTES)], 0)
        except OSError:
            self.free()


@dataclass(slots=True)
class SharedResources:
    """What the topics of one log share. ``producer_memory`` in seconds."""

    fs: FileSystem
    clock: PlausibleClock
    committers: Committers
    reserve: Reserve
    budget: Budget = field(default_factory=Budget)
    handles: OpenFiles = field(default_factory=OpenFiles)
    producer_memory: float = PRODUCER_MEMORY_S
    refused: tuple[float, str] = (-math.inf, "")
    """When something was not stored for want of room (monotonic), and why."""
    recovered: list[Callable[[str, int], None]] = field(default_factory=list)
    """Called with name and end of a topic that was brought in order, before anything is appended to it."""
