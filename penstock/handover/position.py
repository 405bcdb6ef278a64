"""The position of one reader, kept in a small mapped file that outlives it."""

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

from penstock.files.checked_word import MAX_WORD, decode_word, encode_word
from penstock.files.file_system import create_once
from penstock.logbuffer.descriptor import FRAME_ALIGNMENT
from penstock.logbuffer.errors import LogBufferError
from penstock.logbuffer.mapped import require_x86_64

UNKNOWN: Final = -1
"""The mark of a reader that cannot know how many messages there were before."""
_LENGTH: Final = 4096
_MAGIC: Final = b"PNSTKPO2"
_BEFORE: Final = b"PNSTKPOS"
"""The first word of files of before 0.2: plain words, without a check, in the places 1 to 6."""
_FIRST: Final = 64
_SECOND: Final = 128
"""Where the two copies of the words begin, in words."""
_POSITION, _FLOOR, _MARK, _CLAIM, _FLOOR_MARK, _NEWEST, _TOTAL = range(1, 8)
_WORDS: Final = range(_POSITION, _TOTAL + 1)
_LOGGER = logging.getLogger(__name__)


class NotAReaderPosition(LogBufferError, ValueError):
    """The file does not hold a reader's position."""


class ReaderPosition:
    """How far a reader has come: bytes of the stream, a multiple of 32.

    Each number is one aligned 8-byte word that checks itself, so that other processes never see half of it, and
    stands there twice, so that one that is damaged is told by the other; one store after the other, of which a kill
    may leave the second out. Whoever moves the position holds the lock; the kernel releases that when its holder dies.
    A new file begins at ``start``, with ``mark``. Raises NotAReaderPosition for another file, and for one in which
    both copies of a number are damaged.
    """

    def __init__(self, path: Path | str, start: int = 0, mark: int = 0) -> None:
        require_x86_64()
        self.path = Path(path)
        _check(start)
        if not self.path.exists():
            make_position(self.path, start, mark=mark)
        self._file = open(self.path, "r+b")  # noqa: SIM115
        self._mutex = threading.Lock()
        try:
            self._map = self._mapped()
        except BaseException:
            self._file.close()
            raise
        self._words = memoryview(self._map).cast("q")
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _mapped(self) -> mmap.mmap:
        if os.fstat(self._file.fileno()).st_size != _LENGTH:
            raise NotAReaderPosition(f"{self.path} is not a reader's position: its size is wrong")
        return mmap.mmap(self._file.fileno(), _LENGTH)

    def _open(self) -> None:
        """Looks at all words; those of before 0.2 are brought into the form of now."""
        if self._map[:8] == _BEFORE:
            with self.lock():
                if self._map[:8] == _BEFORE:
                    self._convert()
        for word in _WORDS:
            self._load(word)

    def _convert(self) -> None:
        """The old words stay as they are, and the first word, in one store, says which ones are meant."""
        found = struct.unpack_from("<6q", self._map, 8)
        places = [found[word - 1] for word in (_POSITION, _FLOOR, _CLAIM, _NEWEST)]
        if any(place < 0 or place % FRAME_ALIGNMENT for place in places):
            raise NotAReaderPosition(f"{self.path} is not a reader's position: its content is garbage")
        try:
            packed = _packed(*found)
        except ValueError as error:
            raise NotAReaderPosition(f"{self.path} is not a reader's position: {error}") from None
        self._map[8 * _FIRST :] = packed[8 * _FIRST :]
        self._words[0] = int.from_bytes(_MAGIC, "little")

    def _load(self, word: int) -> int:
        """A number, by whichever of its copies is whole."""
        value = decode_word(self._words[_FIRST + word])
        if value is None:
            value = decode_word(self._words[_SECOND + word])
        if value is not None:
            return value
        raise NotAReaderPosition(f"{self.path} is not a reader's position: its content is garbage")

    def _store(self, word: int, value: int) -> None:
        self._words[_FIRST + word] = self._words[_SECOND + word] = encode_word(value)

    def mend(self) -> None:
        """Write anew what one copy has to tell for the other; for the writer, before it uses the file."""
        wrong = [w for w in _WORDS for copy in (_FIRST, _SECOND) if decode_word(self._words[copy + w]) is None]
        if wrong or self._map[:8] != _MAGIC:
            _LOGGER.warning("%s was damaged: nothing is lost, as all in it stands there twice", self.path)
        for word in _WORDS:
            self._store(word, self._load(word))
        self._words[0] = int.from_bytes(_MAGIC, "little")

    def _place(self, word: int) -> int:
        return self._load(word) * FRAME_ALIGNMENT

    def _set_place(self, word: int, value: int) -> None:
        _check(value)
        self._store(word, value // FRAME_ALIGNMENT)

    def _count(self, word: int) -> int:
        value = self._load(word)
        return UNKNOWN if value == MAX_WORD else value

    def _set_count(self, word: int, value: int) -> None:
        self._store(word, MAX_WORD if value < 0 else value)

    @property
    def position(self) -> int:
        """Where the reader goes on: what it stored, or the floor where that is further."""
        return max(self._place(_POSITION), self._place(_FLOOR))

    @position.setter
    def position(self, value: int) -> None:
        self._set_place(_POSITION, value)

    @property
    def stored(self) -> int:
        """What the reader stored, wherever it was moved on to since."""
        return self._place(_POSITION)

    @property
    def floor(self) -> int:
        """Where the writer has moved the reader on to: what lies before it is not read any more."""
        return self._place(_FLOOR)

    @floor.setter
    def floor(self, value: int) -> None:
        self._set_place(_FLOOR, value)

    @property
    def claim(self) -> int:
        """Up to where the reader is using frames, or was when it died; beyond its position only then."""
        return self._place(_CLAIM)

    @claim.setter
    def claim(self, value: int) -> None:
        self._set_place(_CLAIM, value)

    @property
    def moved_on(self) -> bool:
        """Whether the writer has moved the reader on since it last stored its position."""
        return self._place(_FLOOR) > self._place(_POSITION)

    @property
    def mark(self) -> int:
        """The total of messages before the position, as the reader counts; UNKNOWN where it cannot know."""
        return self._count(_MARK)

    @mark.setter
    def mark(self, value: int) -> None:
        self._set_count(_MARK, value)

    @property
    def reached_mark(self) -> int:
        """The total of messages where the reader goes on; UNKNOWN where it cannot know."""
        return max(self.mark, self.floor_mark) if self.moved_on and self.mark != UNKNOWN else self.mark

    @property
    def floor_mark(self) -> int:
        """The total of messages before the floor, as the writer counts."""
        return self._count(_FLOOR_MARK)

    @floor_mark.setter
    def floor_mark(self, value: int) -> None:
        self._set_count(_FLOOR_MARK, value)

    @property
    def newest(self) -> int:
        """Where the newest frame begins, as the writer says; meaningless before there is one."""
        return self._place(_NEWEST)

    @newest.setter
    def newest(self, value: int) -> None:
        self._set_place(_NEWEST, value)

    @property
    def total(self) -> int:
        """The total of messages with the newest frame, as the writer says: also where that frame is damaged."""
        return self._load(_TOTAL)

    @total.setter
    def total(self, value: int) -> None:
        self._store(_TOTAL, value)

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


def make_position(
    path: Path, position: int, floor: int = 0, mark: int = 0, claim: int = 0, floor_mark: int = 0
) -> None:
    """A reader's position in a new file, where there is none. Raises OSError and ValueError."""
    create_once(path, _packed(position, floor, mark, claim, floor_mark))


def _check(position: int) -> None:
    if position < 0 or position % FRAME_ALIGNMENT:
        raise ValueError(f"no frame begins at position {position}")


def _packed(
    position: int = 0, floor: int = 0, mark: int = 0, claim: int = 0, floor_mark: int = 0, newest: int = 0
) -> bytes:
    """A file's bytes. Raises ValueError."""
    places = {_POSITION: position, _FLOOR: floor, _CLAIM: claim, _NEWEST: newest}
    counts = {_MARK: mark, _FLOOR_MARK: floor_mark, _TOTAL: 0}
    values = {word: place // FRAME_ALIGNMENT for word, place in places.items()}
    values |= {word: MAX_WORD if count < 0 else count for word, count in counts.items()}
    packed = bytearray(_LENGTH)
    packed[:8] = _MAGIC
    for word, value in values.items():
        for copy in (_FIRST, _SECOND):
            struct.pack_into("<q", packed, 8 * (copy + word), encode_word(value))
    return bytes(packed)
