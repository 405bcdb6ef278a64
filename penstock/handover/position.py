"""The position of one reader, kept in a small mapped file that outlives it."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.logbuffer.descriptor import FRAME_ALIGNMENT
from penstock.logbuffer.errors import LogBufferError
from penstock.logbuffer.mapped import require_x86_64, sync_folder

UNKNOWN: Final = -1
"""The mark of a reader that cannot know how many messages there were before."""
_LENGTH: Final = 4096
_MAGIC: Final = b"PNSTKPOS"


class NotAReaderPosition(LogBufferError, ValueError):
    """The file does not hold a reader's position."""


class ReaderPosition:
    """How far a reader has come: bytes of the stream, a multiple of 32.

    The position is loaded and stored as one aligned 8-byte word, so that other processes never see half
    of it. Whoever moves it holds the lock; the kernel releases that when its holder dies. A new file
    begins at ``start``, with ``mark``. Raises NotAReaderPosition for another file.
    """

    def __init__(self, path: Path | str, start: int = 0, mark: int = 0) -> None:
        require_x86_64()
        self.path = Path(path)
        _check(start)
        if not self.path.exists():
            _create(self.path, start, mark)
        self._file = open(self.path, "r+b")  # noqa: SIM115
        try:
            self._map = self._mapped()
        except BaseException:
            self._file.close()
            raise
        self._words = memoryview(self._map).cast("q")
        self._mutex = threading.Lock()

    def _mapped(self) -> mmap.mmap:
        if os.fstat(self._file.fileno()).st_size != _LENGTH:
            raise NotAReaderPosition(f"{self.path} is not a reader's position: its size is wrong")
        mapped = mmap.mmap(self._file.fileno(), _LENGTH)
        magic, *positions = struct.unpack_from("<8sqq", mapped)
        if magic != _MAGIC or any(position < 0 or position % FRAME_ALIGNMENT for position in positions):
            mapped.close()
            raise NotAReaderPosition(f"{self.path} is not a reader's position: its content is garbage")
        return mapped

    @property
    def position(self) -> int:
        """Where the reader goes on: what it stored, or the floor where that is further."""
        return max(self._words[1], self._words[2])

    @position.setter
    def position(self, value: int) -> None:
        _check(value)
        self._words[1] = value

    @property
    def stored(self) -> int:
        """What the reader stored, wherever it was moved on to since."""
        return self._words[1]

    @property
    def floor(self) -> int:
        """Where the writer has moved the reader on to: what lies before it is not read any more."""
        return self._words[2]

    @floor.setter
    def floor(self, value: int) -> None:
        _check(value)
        self._words[2] = value

    @property
    def claim(self) -> int:
        """Up to where the reader is using frames, or was when it died; beyond its position only then."""
        return self._words[4]

    @claim.setter
    def claim(self, value: int) -> None:
        _check(value)
        self._words[4] = value

    @property
    def moved_on(self) -> bool:
        """Whether the writer has moved the reader on since it last stored its position."""
        return self._words[2] > self._words[1]

    @property
    def mark(self) -> int:
        """The total of messages before the position, as the reader counts; UNKNOWN where it cannot know."""
        return self._words[3]

    @mark.setter
    def mark(self, value: int) -> None:
        self._words[3] = value

    @property
    def floor_mark(self) -> int:
        """The total of messages before the floor, as the writer counts."""
        return self._words[5]

    @floor_mark.setter
    def floor_mark(self, value: int) -> None:
        self._words[5] = value

    @property
    def newest(self) -> int:
        """Where the newest frame begins, as the writer says; meaningless before there is one."""
        return self._words[6]

    @newest.setter
    def newest(self, value: int) -> None:
        self._words[6] = value

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Waits for the lock, among threads and processes, and holds it."""
        with self._mutex:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def try_lock(self) -> Iterator[bool]:
        """Gives True and holds the lock, or False at once when another one holds it."""
        held = self._mutex.acquire(blocking=False)
        try:
            taken = held and self._try_flock()
            try:
                yield taken
            finally:
                if taken:
                    fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            if held:
                self._mutex.release()

    def _try_flock(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._words.release()
        self._map.close()
        self._file.close()

    def __enter__(self) -> ReaderPosition:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check(position: int) -> None:
    if position < 0 or position % FRAME_ALIGNMENT:
        raise ValueError(f"no frame begins at position {position}")


def _create(path: Path, start: int, mark: int) -> None:
    """Under another name first, so that no crash leaves half a file."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
    with open(unfinished, "wb", opener=lambda path, flags: os.open(path, flags, 0o640)) as file:
        file.write(struct.pack("<8sqqq", _MAGIC, start, 0, mark).ljust(_LENGTH, b"\0"))
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):  # another process was first: its file stands
        os.link(unfinished, path)
    unfinished.unlink()
    sync_folder(path.parent)
