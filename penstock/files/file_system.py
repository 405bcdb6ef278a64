"""Files and time, as protocols with the real ones, so that tests own crashes, full disks and the clock."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.files.errors import Locked

if TYPE_CHECKING:
    import pyarrow as pa

Bytes = Any
"""Any object with the buffer protocol."""
_PASSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
FILE_MODE = 0o640
"""What is in the data directory is for owner and group alone."""
MAX_PARTS = 1024
"""IOV_MAX of Linux: buffers that one system call takes."""


class Clock(Protocol):
    """Where the log takes its time from."""

    def micros(self) -> int:
        """Wall clock in microseconds since the epoch; may jump."""

    def monotonic(self) -> float:
        """Seconds that passed since some moment, also while the machine slept."""


class File(Protocol):
    """A file open for writing, always at explicit positions."""

    def write(self, parts: Sequence[Bytes], position: int) -> int:
        """Write all ``parts`` one after the other at ``position``; the number of bytes. Raises OSError."""

    def truncate(self, length: int) -> None: ...

    def sync(self) -> None:
        """Bring data and length to the disk."""

    def close(self) -> None: ...


class SharedIntegers(Protocol):
    """A mapped file of 64-bit integers, shared with other processes."""

    def store(self, *values: int) -> None:
        """Store ``values`` from the last to the first, each as one aligned 8-byte store."""

    def close(self) -> None: ...


class FileSystem(Protocol):
    """What the log does to files. Every method raises OSError as the operating system does."""

    def names(self, directory: Path) -> list[str]: ...

    def size(self, path: Path) -> int: ...

    def read(self, path: Path) -> bytes: ...

    def map(self, path: Path) -> pa.Buffer:
        """The whole file, mapped for reading."""

    def open(self, path: Path, *, create: bool = False) -> File: ...

    def words(self, path: Path) -> SharedIntegers: ...

    def rename(self, old: Path, new: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def make_directory(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None: ...

    def lock(self, path: Path) -> Callable[[], None]:
        """Lock ``path`` until the returned function is called or the process ends. Raises Locked."""


def replace_durably(fs: FileSystem, path: Path, data: Bytes, *, draft: str = "", synced: bool = True) -> None:
    """Make ``path`` hold ``data``, durably and atomically: a crash leaves the old content or the new.

    ``draft`` names the temporary file where several processes may write ``path`` at once. ``synced`` is False for what
    nobody needs after a power cut. Raises OSError, and then ``path`` is as before or has the new content.
    """
    temporary = path.with_name(draft or f"{path.name}.tmp")
    try:
        _write(fs, temporary, data, synced)
        fs.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            fs.remove(temporary)
        raise
    if synced:
        fs.sync_directory(path.parent)


def create_once(path: Path, data: Bytes, mode: int = FILE_MODE) -> None:
    """Have ``path`` made with ``data``, durably and whole; where another process was first, its file stands.

    Raises OSError.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    OS.sync_directory(path.parent)


def _write(fs: FileSystem, path: Path, data: Bytes, synced: bool) -> None:
    file = fs.open(path, create=True)
    try:
        file.truncate(0)
        file.write([data], 0)
        if synced:
            file.sync()
    finally:
        file.close()


def sync_written(paths: Iterable[Path]) -> None:
    """Bring files that a library wrote to the disk, with their names. Raises OSError."""
    folders = set()
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        folders.add(path.parent)
    for folder in sorted(folders):
        OS.sync_directory(folder)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, durably. Raises OSError."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        OS.sync_directory(folder.parent)


class SystemClock:
    """The machine's clock."""

    def micros(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.clock_gettime(_PASSED)


class SystemFile:
    """A file of the operating system."""

    def __init__(self, path: Path, create: bool) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), FILE_MODE)

    def write(self, parts: Sequence[Bytes], position: int) -> int:
        views = [memoryview(part) for part in parts]
        size = sum([view.nbytes for view in views])
        total = os.pwritev(self._fd, views[:MAX_PARTS], position) if size else 0
        if total < size:
            rest = _after([view.cast("B") for view in views], total)
            while rest:
                done = os.pwritev(self._fd, rest[:MAX_PARTS], position + total)
                total += done
                rest = _after(rest, done)
        return total

    def truncate(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _after(parts: list[memoryview], done: int) -> list[memoryview]:
    """What is left of ``parts`` when ``done`` bytes of them are written."""
    for index, part in enumerate(parts):
        if done < len(part):
            return [part[done:], *parts[index + 1 :]]
        done -= len(part)
    return []


class MappedIntegers:
    """64-bit integers in a mapped file."""

    def __init__(self, path: Path) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._words = memoryview(self._map).cast("q")

    def store(self, *values: int) -> None:
        for index in reversed(range(len(values))):
            self._words[index] = values[index]

    def close(self) -> None:
        self._words.release()
        self._map.close()


class SystemFiles:
    """The operating system's files."""

    def names(self, directory: Path) -> list[str]:
        return os.listdir(directory)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def map(self, path: Path) -> pa.Buffer:
        return map_file(path, self.size(path))

    def open(self, path: Path, *, create: bool = False) -> File:
        return SystemFile(path, create)

    def words(self, path: Path) -> SharedIntegers:
        return MappedIntegers(path)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: Path) -> Callable[[], None]:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise Locked(f"{path.parent} is open in another process") from None
        return lambda: os.close(fd)


def map_file(path: Path, length: int) -> pa.Buffer:
    """The first ``length`` bytes of a file, mapped for reading.

    The map lives as long as anything that uses it, and holds no file descriptor. Raises OSError.
    """
    import pyarrow as pa  # here: the supervisor does without

    if not length:
        return pa.py_buffer(b"")
    with pa.memory_map(str(path)) as file:
        return file.read_buffer(length)


OS: FileSystem = SystemFiles()
SYSTEM_CLOCK: Clock = SystemClock()
