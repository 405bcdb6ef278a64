"""So that a transaction over several topics shows itself at once: a word beside the topics that readers look at.

It holds a number that grows with each transaction, times four, and a phase: the writer is about to decide, or it
publishes in all topics, which takes microseconds. Since 0.2 the word checks itself (``files.checked_word``). A reader
takes a topic's synced length only when nothing was published in between. A phase that does not end is that of a writer
that died: readers go on with what they knew already, and the next writer brings all topics in order before it lets them
through.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.files.checked_word import MAX_WORD, decode_word, encode_word
from penstock.files.file_system import FileSystem, SharedIntegers, replace_durably

FILE_NAME = "BARRIER"
"""Beside the topics; no topic can have this name."""
FREE, DECIDING, PUBLISHING, STEP = 0, 1, 2, 4
SIZE = 8
PATIENCE = 0.05
"""Seconds a reader waits while something is published."""
_LOGGER = logging.getLogger(__name__)


class CommitBarrier:
    """The writer's side. One thread at a time."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._path = directory / FILE_NAME
        self._words: SharedIntegers | None = None
        self._free = 0
        self.died = False
        """Whether the last writer died in a transaction: all topics are to be opened before ``free``."""
        if self._path.exists() and fs.size(self._path) == SIZE:
            value = _whole(int.from_bytes(fs.read(self._path), "little"))
            if value is None:
                _LOGGER.warning("%s is damaged: all topics are opened before anything is read", self._path)
                value = PUBLISHING
            self._free = value - value % STEP
            self.died = value % STEP != FREE
        if self.died:
            self._store(PUBLISHING)

    def _store(self, phase: int) -> None:
        if self._words is None:
            if not self._path.exists() or self._fs.size(self._path) != SIZE:
                replace_durably(self._fs, self._path, bytes(SIZE))
            self._words = self._fs.words(self._path)
        self._words.store(encode_word(self._free + phase))

    @contextlib.contextmanager
    def deciding(self) -> Iterator[Callable[[], None]]:
        """While it is decided; the function given begins the publishing. Readers are let through at the end.

        Raises OSError.
        """
        self._store(DECIDING)
        try:
            yield lambda: self._store(PUBLISHING)
        finally:
            self.free()

    def free(self) -> None:
        """Let readers through."""
        self._free += STEP
        self._store(FREE)

    def close(self) -> None:
        if self._words is not None:
            self._words.close()


def _whole(word: int) -> int | None:
    """Return the number and phase in the file's word; None where it is damaged. 0: nothing was written yet."""
    return decode_word(word) if word else 0


class ReaderGate:
    """The readers' side, for the topics in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._path = str(directory / FILE_NAME)
        self._map: mmap.mmap | None = None

    def _word(self) -> int:
        if self._map is None:
            try:
                descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                with os.fdopen(descriptor, "rb") as file:
                    self._map = mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ)
            except (OSError, ValueError):
                return FREE  # no transaction yet, or a topic's folder by itself
        return int.from_bytes(self._map[:SIZE], "little") & MAX_WORD

    def _pass(self) -> int | None:
        """The number of the last transaction; None when one does not end."""
        end = 0.0
        while (word := self._word()) % STEP == PUBLISHING:
            end = end or time.monotonic() + PATIENCE
            if time.monotonic() > end:
                return None
            time.sleep(0.0002)
        return word // STEP

    def take(self, read: Callable[[], int], known: int) -> int:
        """What ``read`` gives while nothing is published; ``known``, unless it is 0, while that does not end."""
        while (before := self._pass()) is not None:
            value = read()
            word = self._word()
            if word % STEP != PUBLISHING and word // STEP == before:
                return value
        return known or read()
