"""The file system and the clock as protocols, so that tests control crashes, full disks and time."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import mmap
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.files import memory_order
from penstock.files.errors import Locked

if TYPE_CHECKING:
    import pyarrow as pa

Bytes = Any
"""Any object with the buffer protocol."""
_MONOTONIC_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
FILE_MODE = 0o640
"""Owner and group only: the data directory holds messages and secrets."""
MAX_PARTS = 1024
"""IOV_MAX of Linux: the most buffers of one system call."""
DRAFT_AGE_S = 3600.0
"""Age in seconds from which the draft of a process that does not run here is removed."""


class Clock(Protocol):
    """The clock of the log."""

    def micros(self) -> int:
        """Return the wall clock in microseconds since the epoch; it may jump."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment, including time the machine was suspended."""


class File(Protocol):
    """A file open for writing at explicit positions."""

    def write(self, parts: Sequence[Bytes], position: int) -> int:
        """Write all ``parts`` in sequence at ``position``; return the number of bytes. Raises OSError."""

    def truncate(self, length: int) -> None: ...

    def sync(self) -> None:
        """Flush data and length to the disk."""

    def close(self) -> None: ...


class SharedIntegers(Protocol):
    """A mapped file of 64-bit integers, shared with other processes."""

    def store(self, *values: int) -> None:
        """Store ``values`` from the last to the first, each as one aligned 8-byte store."""

    def close(self) -> None: ...


class FileSystem(Protocol):
    """Operations of the log on files. Every method raises OSError as the operating system does."""

    def names(self, directory: Path) -> list[str]: ...

    def size(self, path: Path) -> int: ...

    def read(self, path: Path) -> bytes: ...

    def map(self, path: Path) -> pa.Buffer:
        """Map the whole file for reading."""

    def open(self, path: Path, *, create: bool = False) -> File: ...

    def words(self, path: Path) -> SharedIntegers: ...

    def rename(self, old: Path, new: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def make_directory(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None: ...

    def lock(self, path: Path) -> Callable[[], None]:
        """Lock ``path`` until the returned function is called or the process ends. Raises Locked."""


def replace_durably(fs: FileSystem, path: Path, data: Bytes, *, draft: str = "", synced: bool = True) -> None:
    """Replace the content of ``path`` durably and atomically: a crash leaves the old content or the new.

    ``draft`` names the temporary file; several processes that write the same ``path`` need different drafts. ``synced``
    is False for content that is useless after a power failure. Raises OSError; then ``path`` has the old or the new
    content.
    """
    replace_in_parts(fs, path, [[data]], draft=draft, synced=synced)


def replace_in_parts(
    fs: FileSystem, path: Path, writes: Iterable[Sequence[Bytes]], *, draft: str = "", synced: bool = True
) -> None:
    """Replace the content of ``path`` as ``replace_durably``, by ``writes`` that need not fit into memory together."""
    temporary = path.with_name(draft or f"{path.name}.tmp")
    try:
        # Order: content and its sync, then the rename, then the sync of the directory. A rename before the sync could
        # leave an empty file after a power failure.
        _write(fs, temporary, writes, synced)
        fs.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            fs.remove(temporary)
        raise
    if synced:
        fs.sync_directory(path.parent)


@contextlib.contextmanager
def replacing_draft(path: Path) -> Iterator[Path]:
    """Yield the path of a file to write, which replaces ``path`` durably when the block ends without an error.

    Use it for content that a library writes in parts. A device or pipe, such as /dev/stdout, is written itself. Raises
    OSError. Crash: ``path`` keeps its content, and the draft stays, ``.NAME.PID.tmp``, until another
    is made an hour later.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    # A link keeps naming its file.
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    remove_dead_drafts(target.parent, target.name)
    try:
        yield draft
        # Order: the content and its sync, then the rename, as in ``replace_durably``.
        sync_written([draft])
        OS.rename(draft, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            OS.remove(draft)
    OS.sync_directory(target.parent)


def remove_dead_drafts(folder: Path, name: str = "") -> None:
    """Remove drafts that processes left when they were killed: ``.NAME.PID.tmp``.

    Without ``name``, drafts of all files of a folder that only Penstock writes to, and their other forms:
    ``NAME.PID.tmp`` and ``NAME.PID.new``. Drafts of running processes stay.
    """
    forms = rf"\.{re.escape(name)}\.(\d{{1,9}})\.tmp" if name else r".+\.(\d{1,9})\.(?:tmp|new)"
    draft_name = re.compile(forms, re.DOTALL)
    # Limit: another container may write to the folder, whose processes are not visible here.
    newest = time.time() - DRAFT_AGE_S
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            if (match := draft_name.fullmatch(entry)) and not _is_running(int(match[1])):
                with contextlib.suppress(OSError):
                    if os.stat(folder / entry).st_mtime < newest:
                        os.unlink(folder / entry)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        return True
    return True


def set_aside(path: Path, fs: FileSystem) -> Path:
    """Rename a damaged file and return its new name, with a number behind it if there are earlier ones.

    Crash: a rename that a power failure undoes is repeated by the next reading. Raises OSError.
    """
    # A file that was damaged before may hold the only copy of its counts, so it is not replaced.
    earlier = set(fs.names(path.parent))
    names = (f"{path.stem}.damaged{number}" for number in itertools.chain([""], itertools.count(2)))
    renamed = path.with_name(next(name for name in names if name not in earlier))
    fs.rename(path, renamed)
    return renamed


def create_like(path: Path, model: Path, flags: int, mode: int = FILE_MODE) -> int:
    """Create a file and return its descriptor; root gives it the owner and group of ``model``, a file or folder.

    Otherwise the account of a data directory could not use what a command of root creates there. Raises OSError;
    FileExistsError also for a link, so that this account cannot direct root to another file.
    """
    descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        if os.geteuid() == 0:
            status = model.stat()
            os.fchown(descriptor, status.st_uid, status.st_gid)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def create_once(path: Path, data: Bytes, mode: int = FILE_MODE) -> None:
    """Create ``path`` with ``data``, durably and atomically; an existing file stays unchanged.

    Root gives it the owner and group of its folder. Raises OSError.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.unlink(missing_ok=True)  # a killed process with this id may have left it
    try:
        descriptor = create_like(draft, path.parent, os.O_WRONLY, mode)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # A link, unlike a rename, fails when another process was first: its file may be in use already.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    OS.sync_directory(path.parent)


def _write(fs: FileSystem, path: Path, writes: Iterable[Sequence[Bytes]], synced: bool) -> None:
    file = fs.open(path, create=True)
    try:
        file.truncate(0)
        position = 0
        for parts in writes:
            position += file.write(parts, position)
        if synced:
            file.sync()
    finally:
        file.close()


def sync_written(paths: Iterable[Path]) -> None:
    """Flush files that a library wrote to the disk, and their directory entries. Raises OSError."""
    folders = set()
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        folders.add(path.parent)
    # Order: contents before directory entries, so that no name refers to a file that is not on the disk.
    for folder in sorted(folders):
        OS.sync_directory(folder)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents durably. Raises OSError."""
    if not folder.is_dir():
        make_folder(folder.parent)
        # The parent exists durably before its child is created; another process may create the same folder.
        folder.mkdir(exist_ok=True)
        OS.sync_directory(folder.parent)


class SystemClock:
    """The clock of the machine."""

    def micros(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.clock_gettime(_MONOTONIC_CLOCK)


class SystemFile:
    """A file of the operating system."""

    def __init__(self, path: Path, create: bool) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), FILE_MODE)

    def write(self, parts: Sequence[Bytes], position: int) -> int:
        views = [memoryview(part) for part in parts]
        size = sum([view.nbytes for view in views])
        # Fast path: one system call without slicing. A short write (full disk, signal) continues below.
        total = os.pwritev(self._fd, views[:MAX_PARTS], position) if size else 0
        if total < size:
            rest = _unwritten([view.cast("B") for view in views], total)
            while rest:
                done = os.pwritev(self._fd, rest[:MAX_PARTS], position + total)
                total += done
                rest = _unwritten(rest, done)
        return total

    def truncate(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def sync(self) -> None:
        # fdatasync also flushes the length, which is all the metadata that readers need.
        os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _unwritten(parts: list[memoryview], written: int) -> list[memoryview]:
    """Return the part of ``parts`` after the first ``written`` bytes."""
    for index, part in enumerate(parts):
        if written < len(part):
            return [part[written:], *parts[index + 1 :]]
        written -= len(part)
    return []


class MappedIntegers:
    """64-bit integers in a mapped file."""

    def __init__(self, path: Path) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._words = memoryview(self._map).cast("q")

    def store(self, *values: int) -> None:
        # Order: readers test the first integer, so it is stored last. Each store is one aligned 8-byte write, visible
        # after all earlier writes to this file and others.
        for index in reversed(range(len(values))):
            memory_order.barrier()
            self._words[index] = values[index]

    def close(self) -> None:
        self._words.release()
        self._map.close()


class SystemFiles:
    """The files of the operating system."""

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
            # flock belongs to the open file: the kernel releases it when the process dies, even by SIGKILL.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise Locked(f"{path.parent} is open in another process") from None
        return lambda: os.close(fd)


def map_file(path: Path, length: int) -> pa.Buffer:
    """Map the first ``length`` bytes of a file for reading.

    The map lives as long as its last user and holds no file descriptor. Raises OSError.
    """
    import pyarrow as pa  # here, because the supervisor runs without Arrow

    if not length:
        return pa.py_buffer(b"")
    with pa.memory_map(str(path)) as file:
        return file.read_buffer(length)


OS: FileSystem = SystemFiles()
SYSTEM_CLOCK: Clock = SystemClock()
