"""The commit barrier: a transaction over several topics becomes visible in all of them at once.

A mapped word in the folder of the topics holds a transaction number, times four, plus a phase: free, deciding, or
publishing, which takes microseconds. The word has its own checksum (``files.checked_word``).

Invariant: a reader accepts a topic's synced length only if no transaction published during the read. Crash: a phase
that does not end belongs to a dead writer; readers keep the lengths they have, and the next writer recovers all topics
before it frees the barrier.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.files import memory_order
from penstock.files.checked_word import MAX_WORD, decode_word, encode_word
from penstock.files.file_system import FileSystem, SharedIntegers, replace_durably

FILE_NAME = "BARRIER"
"""File in the folder of the topics; its capitals are not allowed in the name of a topic."""
FREE, DECIDING, PUBLISHING, STEP = 0, 1, 2, 4
WORD_BYTES = 8
MAX_PUBLISHING_S = 0.05
"""Longest wait of a reader for a publication, which takes microseconds; then its writer is taken for dead."""
_LOGGER = logging.getLogger(__name__)


class CommitBarrier:
    """The writer's side of the barrier. One thread at a time."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._path = directory / FILE_NAME
        self._words: SharedIntegers | None = None
        self._free_word = 0
        self.writer_died = False
        """Whether the last writer died in a transaction; then all topics must be recovered before ``free``."""
        if self._path.exists() and fs.size(self._path) == WORD_BYTES:
            word = _decode(int.from_bytes(fs.read(self._path), "little"))
            if word is None:
                _LOGGER.warning("%s is damaged: readers wait until all topics are recovered", self._path)
                word = PUBLISHING
            self._free_word = word - word % STEP
            self.writer_died = word % STEP != FREE
        # Readers stay out, also those of a writer that died while deciding: its topics may be published in part.
        if self.writer_died:
            self._store(PUBLISHING)

    def _store(self, phase: int) -> None:
        if self._words is None:
            if not self._path.exists() or self._fs.size(self._path) != WORD_BYTES:
                replace_durably(self._fs, self._path, bytes(WORD_BYTES))
            self._words = self._fs.words(self._path)
        self._words.store(encode_word(self._free_word + phase))

    @contextlib.contextmanager
    def deciding(self) -> Iterator[Callable[[], None]]:
        """Hold the barrier during a decision; the yielded function starts the publication. Free on exit.

        Raises OSError.
        """
        self._store(DECIDING)
        try:
            yield lambda: self._store(PUBLISHING)
        finally:
            self.free()

    def free(self) -> None:
        """Let readers pass. The number grows, so that a reader that overlapped the publication reads again."""
        self._free_word += STEP
        self._store(FREE)

    def close(self) -> None:
        if self._words is not None:
            self._words.close()


def _decode(word: int) -> int | None:
    """Return the number and phase in the file's word; None if damaged, 0 if nothing was written yet."""
    return decode_word(word) if word else 0


class ReaderGate:
    """The readers' side of the barrier, for the topics in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._path = str(directory / FILE_NAME)
        self._words: memoryview | None = None

    def _word(self) -> int:
        if self._words is None:
            try:
                descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                with os.fdopen(descriptor, "rb") as file:
                    self._words = memoryview(mmap.mmap(file.fileno(), WORD_BYTES, prot=mmap.PROT_READ)).cast("q")
            except (OSError, ValueError):
                return FREE  # no transaction yet, or a topic's folder without the others
        return self._words[0] & MAX_WORD

    def _wait_until_free(self) -> int | None:
        """Return the number of the last transaction; None if its publication does not end."""
        deadline = 0.0
        while (word := self._word()) % STEP == PUBLISHING:
            deadline = deadline or time.monotonic() + MAX_PUBLISHING_S
            if time.monotonic() > deadline:
                return None
            time.sleep(0.0002)
        return word // STEP

    def read(self, read: Callable[[], int], previous: int) -> int:
        """Return ``read()`` from a moment without publication; ``previous``, unless 0, if a publication does not
        end.
        """
        while (before := self._wait_until_free()) is not None:
            # Same idea as a seqlock: the number before and after must agree, or a publication may have changed only
            # some topics. Order: each of the three loads takes effect before the next one.
            memory_order.barrier()
            length = read()
            memory_order.barrier()
            word = self._word()
            if word % STEP != PUBLISHING and word // STEP == before:
                return length
        return previous or read()
