"""A fake clock, and a file system that crashes and fills up.

``CrashingFileSystem`` works on a real folder, so that any program can read the files; it remembers synced content.
``crash()`` leaves a possible state after a power failure: everything synced, and any part of the rest, torn at sector
borders.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from penstock.files.errors import Locked
from penstock.files.file_system import OS, Bytes, File, SharedIntegers

SECTOR = 512
"""The bytes that a disk writes atomically."""


class FakeClock:
    """A clock that moves only on request; seconds."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now
        self._elapsed = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self._elapsed += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; the monotonic clock is not affected."""
        self.now += seconds

    def time(self) -> float:
        """Return the wall clock in seconds since the epoch."""
        return self.now

    def monotonic(self) -> float:
        """Return the elapsed seconds."""
        return self._elapsed

    def micros(self) -> int:
        """Return the wall clock in microseconds since the epoch."""
        return round(self.now * 1_000_000)


class Crashed(OSError):
    """The machine has stopped: nothing is written until ``crash()``."""


Write = tuple[int, bytes]
Change = Write | int
"""Bytes at a position, or a new length."""


@dataclass(slots=True, eq=False)
class _Node:
    """A file's content on the disk, and the changes that are not synced, of which ``claimed`` lying syncs claimed."""

    synced: bytes = b""
    changes: list[Change] = field(default_factory=list)
    claimed: int = 0


Entry = tuple[Path, _Node | None]


class CrashingFileSystem:
    """The file system of the log on a real folder, with power failures (``crash``) and a full disk (``free``).

    ``free`` is the number of bytes that can still be written (None: no limit). ``stop_after`` is the number of
    operations that succeed before all others raise Crashed (None: all succeed). ``failures`` maps an operation (its
    method's name) to the errno it fails with. A failed ``sync`` drops its unsynced pages, as Linux does: the file still
    reads as written, and the next sync does not write them. While ``lies`` is set, syncs succeed and write nothing;
    ``lost_to_lies`` are the files in which the last crash lost something of that. Not thread-safe.
    """

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.root = root
        self.free: int | None = None
        self.stop_after: int | None = None
        self.failures: dict[str, int] = {}
        self.lies = False
        self.lost_to_lies: list[Path] = []
        self.operations = 0
        self._open: list[File] = []
        self._random = random.Random(seed)
        self._load_folder()

    def _load_folder(self) -> None:
        self._stopped = False
        self._era = object()
        self._locks: set[Path] = set()
        self._on_disk = {path: _Node(path.read_bytes()) for path in sorted(self.root.rglob("*")) if path.is_file()}
        self._live = dict(self._on_disk)
        self._entries: list[Entry] = []

    def crash(self) -> None:
        """Cut the power and restart: open files become invalid, and any part of the unsynced changes may be lost."""
        self.close()
        # Directory changes are ordered by the journal of the file system, so a crash keeps a prefix of them.
        entries = dict(self._on_disk)
        for path, node in self._entries[: self._random.randint(0, len(self._entries))]:
            _set_entry(entries, path, node)
        images = {path: self._crash_image(node) for path, node in entries.items()}
        self.lost_to_lies = [
            path for path, node in entries.items() if node.claimed and images[path] != _written_image(node)
        ]
        for path in [path for path in self.root.rglob("*") if path.is_file()]:
            path.unlink()
        for path, image in images.items():
            path.write_bytes(image)
        self.stop_after = None
        self._load_folder()

    def kill(self) -> None:
        """End the process that uses the files: its open files become invalid, what it wrote stays as written."""
        self.close()
        self.stop_after = None
        self._stopped = False
        self._era = object()
        self._locks = set()

    def close(self) -> None:
        """Close the files that are open, as the kernel does when their process ends."""
        for file in self._open:
            file.close()
        self._open.clear()

    def _crash_image(self, node: _Node) -> bytes:
        """Return a possible content of a file after a crash: all, none or some sectors of the unsynced changes."""
        # All and nothing are drawn explicitly: with a uniform chance per sector they would almost never occur.
        chance = self._random.choice([0.0, 1.0, self._random.random()])
        image = bytearray(node.synced)
        for change in node.changes:
            parts = _sectors(change) if isinstance(change, tuple) else [change]
            for part in parts:
                if self._random.random() < chance:
                    _apply(image, part)
        return bytes(image)

    def check(self, era: object, operation: str) -> None:
        """Count an operation. Raises Crashed, or the error of ``failures``."""
        self.operations += 1
        if self.stop_after is not None:
            self._stopped = self._stopped or self.stop_after <= 0
            self.stop_after -= 1
        # A file that was open at the crash belongs to an older era and must not write to the folder any more.
        if self._stopped or era is not self._era:
            raise Crashed(errno.EIO, "the machine has stopped")
        if code := self.failures.get(operation):
            raise OSError(code, os.strerror(code))

    def stops_now(self, era: object) -> bool:
        """Report whether the crash hits the next operation."""
        return not self._stopped and era is self._era and self.stop_after is not None and self.stop_after <= 0

    def use_space(self, size: int) -> None:
        """Reduce the free space by ``size`` bytes, which may be negative."""
        if self.free is not None:
            self.free -= size

    def names(self, directory: Path) -> list[str]:
        return OS.names(directory)

    def size(self, path: Path) -> int:
        return OS.size(path)

    def read(self, path: Path) -> bytes:
        return OS.read(path)

    def map(self, path: Path) -> pa.Buffer:
        return OS.map(path)

    def open(self, path: Path, *, create: bool = False) -> File:
        self.check(self._era, "open")
        if create and path not in self._live:
            node = self._live[path] = _Node()
            self._entries.append((path, node))
        file = OS.open(path, create=create)
        self._open.append(file)
        return _File(self, self._era, self._live_node(path), file, path)

    def words(self, path: Path) -> SharedIntegers:
        self.check(self._era, "words")
        return _Words(self, self._era, self._live_node(path), OS.words(path))

    def _live_node(self, path: Path) -> _Node:
        """Return the node of a file, also of a file that a test wrote directly."""
        if path not in self._live:
            self._live[path] = self._on_disk[path] = _Node(path.read_bytes())
        return self._live[path]

    def rename(self, old: Path, new: Path) -> None:
        self.check(self._era, "rename")
        node = self._live_node(old)
        OS.rename(old, new)
        del self._live[old]
        self._live[new] = node
        self._entries += [(new, node), (old, None)]

    def remove(self, path: Path) -> None:
        self.check(self._era, "remove")
        self.use_space(-OS.size(path))
        OS.remove(path)
        self._live.pop(path, None)
        self._entries.append((path, None))

    def make_directory(self, path: Path) -> None:
        """Create a folder; it survives every crash."""
        self.check(self._era, "make_directory")
        OS.make_directory(path)

    def sync_directory(self, path: Path) -> None:
        self.check(self._era, "sync_directory")
        others: list[Entry] = []
        for changed, node in self._entries:
            # fsync of a folder makes only its own entries durable, not those of its subfolders.
            if changed.parent == path:
                _set_entry(self._on_disk, changed, node)
            else:
                others.append((changed, node))
        self._entries = others

    def lock(self, path: Path) -> Callable[[], None]:
        if path in self._locks:
            raise Locked(f"{path.parent} is open already")
        locks = self._locks
        locks.add(path)
        return lambda: locks.discard(path)


def _set_entry(entries: dict[Path, _Node], path: Path, node: _Node | None) -> None:
    if node is None:
        entries.pop(path, None)
    else:
        entries[path] = node


def _written_image(node: _Node) -> bytes:
    """Return the content of a file with all its changes."""
    image = bytearray(node.synced)
    for change in node.changes:
        _apply(image, change)
    return bytes(image)


def _sectors(write: Write) -> list[Write]:
    """Cut a write at sector borders."""
    position, data = write
    first = min(len(data), SECTOR - position % SECTOR)
    borders = [0, *range(first, len(data), SECTOR), len(data)]
    return [(position + a, data[a:b]) for a, b in pairwise(borders) if b > a]


def _apply(image: bytearray, change: Change) -> None:
    if isinstance(change, int):
        del image[change:]
        image.extend(bytes(change - len(image)))
        return
    position, data = change
    image.extend(bytes(max(0, position + len(data) - len(image))))
    image[position : position + len(data)] = data


class _File:
    """An open file of a CrashingFileSystem."""

    def __init__(self, fs: CrashingFileSystem, era: object, node: _Node, real: File, path: Path) -> None:
        self._fs, self._era, self._node, self._real, self._path = fs, era, node, real, path

    def write(self, parts: Sequence[Bytes], position: int) -> int:
        data = b"".join(bytes(memoryview(part)) for part in parts)
        if self._fs.stops_now(self._era):
            # The crash hits this write: any of its sectors may be on the disk although the caller gets an error.
            self._node.changes.append((position, data))  # the disk may have received it
        self._fs.check(self._era, "write")
        free = self._fs.free
        growth = max(0, position + len(data) - OS.size(self._path))
        is_full = free is not None and growth > free
        written = data[: len(data) - growth + max(0, free or 0)] if is_full else data
        self._real.write([written], position)
        self._node.changes.append((position, written))
        self._fs.use_space(min(growth, free or 0) if is_full else growth)
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(data)

    def truncate(self, length: int) -> None:
        self._fs.check(self._era, "truncate")
        self._fs.use_space(length - OS.size(self._path))
        self._real.truncate(length)
        self._node.changes.append(length)

    def sync(self) -> None:
        try:
            self._fs.check(self._era, "sync")
        except Crashed:
            raise
        except OSError:
            # Linux marks pages clean after a failed writeback: the next fsync succeeds without writing them.
            lengths = [change for change in self._node.changes[self._node.claimed :] if isinstance(change, int)]
            self._node.changes[self._node.claimed :] = lengths
            raise
        if self._fs.lies:
            self._node.claimed = len(self._node.changes)
            return
        self._node.synced = _written_image(self._node)
        self._node.changes.clear()
        self._node.claimed = 0

    def close(self) -> None:
        self._real.close()


class _Words:
    """Mapped words of a CrashingFileSystem: never synced, each store may reach the disk or not."""

    def __init__(self, fs: CrashingFileSystem, era: object, node: _Node, real: SharedIntegers) -> None:
        self._fs, self._era, self._node, self._real = fs, era, node, real

    def store(self, *values: int) -> None:
        self._fs.check(self._era, "store")
        self._real.store(*values)
        changes = [(8 * number, value.to_bytes(8, "little", signed=True)) for number, value in enumerate(values)]
        # A repeated store of the same word is one change: its order among the others is the latest.
        self._node.changes = [change for change in self._node.changes if change not in changes]
        self._node.changes.extend(changes)

    def close(self) -> None:
        self._real.close()
