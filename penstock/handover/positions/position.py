"""The position of a reader in a small mapped file that outlives the reader."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.files import memory_order
from penstock.files.checked_word import MAX_WORD, decode_word, encode_word
from penstock.files.file_system import create_once
from penstock.logbuffer.descriptor import FRAME_ALIGNMENT
from penstock.logbuffer.errors import LogBufferError
from penstock.logbuffer.mapped import require_ordered_memory

UNKNOWN: Final = -1
"""The mark of a reader that cannot know the number of earlier messages."""
_LENGTH: Final = 4096
_MAGIC: Final = b"PNSTKPO1"
_FIRST: Final = 64
_SECOND: Final = 128
"""Starts of the two copies, in words; 512 bytes apart, so that one damaged sector spares one copy."""
_POSITION, _FLOOR, _MARK, _CLAIM, _FLOOR_MARK, _NEWEST, _TOTAL = range(1, 8)
_WORDS: Final = range(_POSITION, _TOTAL + 1)
_SHORTAGE: Final = 192
_SHORTAGE_WORDS: Final = {"disk": int.from_bytes(b"FULLDISK", "little"), "log": int.from_bytes(b"FULLTLOG", "little")}
"""Values of one word without a copy or check: one that is damaged, or that an older version left, means no shortage."""
_SHORTAGES: Final = {word: name for name, word in _SHORTAGE_WORDS.items()}
_AWAITED: Final = 193
"""Another word without a copy or check: a damaged one changes only how long frames are gathered."""
_LOGGER = logging.getLogger(__name__)


class NotAReaderPosition(LogBufferError, ValueError):
    """The file does not contain a reader's position."""


class ReaderPosition:
    """The progress of a reader in bytes of the stream, a multiple of 32.

    Each number is one aligned 8-byte word with a check, so that other processes never see a torn number, and is stored
    twice, so that one damaged copy is recovered from the other. Order: a load takes effect before all later accesses,
    and a store after all earlier ones. Crash: a kill between the two stores leaves the older
    second copy. A process that changes the position holds the lock, which the kernel releases when the process dies. A
    new file starts at ``start`` with ``mark``. Raises NotAReaderPosition for another file, and for one with two damaged
    copies of a number.
    """

    def __init__(self, path: Path | str, start: int = 0, mark: int = 0) -> None:
        require_ordered_memory()
        self.path = Path(path)
        _check_aligned(start)
        if not self.path.exists():
            create_position(self.path, start, mark=mark)
        self._file = open(self.path, "r+b")  # noqa: SIM115
        self._mutex = threading.Lock()
        try:
            self._map = self._map_file()
        except BaseException:
            self._file.close()
            raise
        self._words = memoryview(self._map).cast("q")
        try:
            for word in _WORDS:
                self._load(word)
        except BaseException:
            self.close()
            raise

    def _map_file(self) -> mmap.mmap:
        if os.fstat(self._file.fileno()).st_size != _LENGTH:
            raise NotAReaderPosition(f"{self.path} is not a reader's position: its size is wrong")
        return mmap.mmap(self._file.fileno(), _LENGTH)

    def _load(self, word: int) -> int:
        """Return a number from an intact copy."""
        value = decode_word(self._words[_FIRST + word])
        if value is None:
            value = decode_word(self._words[_SECOND + word])
        # Order: the writer cleans frames once it has seen that a reader is past them.
        if memory_order.IS_WEAK:
            memory_order.barrier()
        if value is not None:
            return value
        raise NotAReaderPosition(f"{self.path} is not a reader's position: its content is garbage")

    def _store(self, word: int, value: int) -> None:
        # Order: a reader has copied its frames before it claims them.
        if memory_order.IS_WEAK:
            memory_order.barrier()
        self._words[_FIRST + word] = self._words[_SECOND + word] = encode_word(value)

    def repair(self) -> None:
        """Rewrite damaged copies. Only the writer calls it, before it uses the file."""
        damaged = [w for w in _WORDS for copy in (_FIRST, _SECOND) if decode_word(self._words[copy + w]) is None]
        if damaged or self._map[:8] != _MAGIC:
            _LOGGER.warning("%s was damaged and is repaired from its second copy; nothing is lost", self.path)
        for word in _WORDS:
            self._store(word, self._load(word))
        self._words[0] = int.from_bytes(_MAGIC, "little")

    def _load_position(self, word: int) -> int:
        return self._load(word) * FRAME_ALIGNMENT

    def _store_position(self, word: int, value: int) -> None:
        _check_aligned(value)
        self._store(word, value // FRAME_ALIGNMENT)

    def _load_count(self, word: int) -> int:
        value = self._load(word)
        return UNKNOWN if value == MAX_WORD else value

    def _store_count(self, word: int, value: int) -> None:
        self._store(word, MAX_WORD if value < 0 else value)

    @property
    def position(self) -> int:
        """The position where the reader continues: its own, or the floor if that is larger."""
        return max(self._load_position(_POSITION), self._load_position(_FLOOR))

    @position.setter
    def position(self, value: int) -> None:
        self._store_position(_POSITION, value)

    @property
    def stored(self) -> int:
        """The position that the reader stored itself."""
        return self._load_position(_POSITION)

    @property
    def floor(self) -> int:
        """The position to which the writer has moved the reader; it does not read frames before it."""
        return self._load_position(_FLOOR)

    @floor.setter
    def floor(self, value: int) -> None:
        self._store_position(_FLOOR, value)

    @property
    def claim(self) -> int:
        """The end of the frames that the reader uses, or used when it died; beyond its position only then."""
        return self._load_position(_CLAIM)

    @claim.setter
    def claim(self, value: int) -> None:
        self._store_position(_CLAIM, value)

    @property
    def was_advanced(self) -> bool:
        """The writer has moved the reader since it stored its position."""
        return self._load_position(_FLOOR) > self._load_position(_POSITION)

    @property
    def mark(self) -> int:
        """The total of messages before the position, as the reader counts; UNKNOWN if it cannot know."""
        return self._load_count(_MARK)

    @mark.setter
    def mark(self, value: int) -> None:
        self._store_count(_MARK, value)

    @property
    def reached_mark(self) -> int:
        """The total of messages where the reader continues; UNKNOWN if it cannot know."""
        return max(self.mark, self.floor_mark) if self.was_advanced and self.mark != UNKNOWN else self.mark

    @property
    def least_mark(self) -> int:
        """A lower bound of the listener's total of messages; UNKNOWN if no mark is known."""
        return max(self._least_count(_MARK), self._least_count(_FLOOR_MARK))

    def _least_count(self, word: int) -> int:
        # Of two copies that differ, one may be garbage: random bytes pass the check once in four thousand times.
        copies = [value for copy in (_FIRST, _SECOND) if (value := decode_word(self._words[copy + word])) is not None]
        return UNKNOWN if (least := min(copies, default=MAX_WORD)) == MAX_WORD else least

    @property
    def floor_mark(self) -> int:
        """The total of messages before the floor, as the writer counts."""
        return self._load_count(_FLOOR_MARK)

    @floor_mark.setter
    def floor_mark(self, value: int) -> None:
        self._store_count(_FLOOR_MARK, value)

    @property
    def newest(self) -> int:
        """The start of the newest frame, as the writer stored it; undefined before the first frame."""
        return self._load_position(_NEWEST)

    @newest.setter
    def newest(self, value: int) -> None:
        self._store_position(_NEWEST, value)

    @property
    def total(self) -> int:
        """The total of messages including the newest frame, which may itself be damaged."""
        return self._load(_TOTAL)

    @total.setter
    def total(self, value: int) -> None:
        self._store(_TOTAL, value)

    @property
    def shortage(self) -> str:
        """The full part at the last failure to store frames: ``disk``, ``log`` (its limits), or empty."""
        return _SHORTAGES.get(self._words[_SHORTAGE], "")

    @shortage.setter
    def shortage(self, value: str) -> None:
        self._words[_SHORTAGE] = _SHORTAGE_WORDS.get(value, 0)

    def await_stored(self, end: int) -> None:
        """Note that a sender waits until the frames before ``end`` are stored."""
        self._words[_AWAITED] = end

    def is_awaited(self, begin: int) -> bool:
        """Report whether a sender waits, or waited, for frames at or after ``begin``."""
        return self._words[_AWAITED] > begin

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Wait for the lock among threads and processes, and hold it."""
        with self._mutex:
            # flock does not exclude threads that share a descriptor, hence the mutex as well.
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def try_lock(self) -> Iterator[bool]:
        """Yield True and hold the lock, or False at once when it is held."""
        has_mutex = self._mutex.acquire(blocking=False)
        try:
            locked = has_mutex and self._try_flock()
            try:
                yield locked
            finally:
                if locked:
                    fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            if has_mutex:
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


def create_position(
    path: Path, position: int, floor: int = 0, mark: int = 0, claim: int = 0, floor_mark: int = 0
) -> None:
    """Create a position file, if there is none. Raises OSError and ValueError."""
    create_once(path, _file_content(position, floor, mark, claim, floor_mark))


def _check_aligned(position: int) -> None:
    if position < 0 or position % FRAME_ALIGNMENT:
        raise ValueError(f"position is not frame-aligned: {position}")


def _file_content(
    position: int = 0, floor: int = 0, mark: int = 0, claim: int = 0, floor_mark: int = 0, newest: int = 0
) -> bytes:
    """Return the content of a file. Raises ValueError."""
    positions = {_POSITION: position, _FLOOR: floor, _CLAIM: claim, _NEWEST: newest}
    counts = {_MARK: mark, _FLOOR_MARK: floor_mark, _TOTAL: 0}
    values = {word: position // FRAME_ALIGNMENT for word, position in positions.items()}
    values |= {word: MAX_WORD if count < 0 else count for word, count in counts.items()}
    packed = bytearray(_LENGTH)
    packed[:8] = _MAGIC
    for word, value in values.items():
        for copy in (_FIRST, _SECOND):
            struct.pack_into("<q", packed, 8 * (copy + word), encode_word(value))
    return bytes(packed)
