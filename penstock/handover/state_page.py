"""A small mapped file in which a process leaves texts for other processes and for its successor.

Each text has two halves that are written in turn (sequence number, length, CRC32C, bytes). Crash: a process killed
during a write leaves the previous text, and a reader in another process never sees a torn one. The checksum covers
number and length, too. Order: all of a half is visible before the next write touches the other half, so one of the two
is always intact.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

import crc32c

from penstock.files import memory_order
from penstock.files.file_system import OS

HALF_HEADER = struct.Struct("<QII")  # sequence number, length, CRC32C
CAPACITY = 64 << 10
"""Limit of one text in bytes, with its header."""
SKIPPED = 0
"""Number of the text with the counts of missed frames (``dropped_frames``)."""
STATISTICS = 1
"""Number of the text with the listener's statistics."""
EPOCH = 2
"""Number of the text with the epoch of positions."""
TOPIC_BY_POSITION = 3
"""Number of the text with the topics of frames by position."""
TOPIC_REQUESTS = 4
"""Number of the text with the topic requests that the log daemon refused in its current group."""
TEXTS = 5
RELAY_TEXTS = PIPELINE_TEXTS = 2
"""Texts in the page of a receiver, of a relay, and of the pipeline."""
MAX_ATTEMPTS = 10
"""Limit of reads of one text while its writer changes it; a text is written every half a second."""
CLAIM_ATTEMPTS, CLAIM_PAUSE_S = 5, 0.01
"""A claim is repeated: ``is_claimed`` holds the lock for a moment in a process that asks."""
_LOGGER = logging.getLogger(__name__)


class StatePage:
    """Texts by number in one mapped file. One process writes a text. Raises ValueError for a text that is too long.

    With ``claim`` this process holds the page's lock until it closes the page or ends, unless another one holds it
    (``has_claim``).
    """

    def __init__(self, path: Path, texts: int = TEXTS, *, claim: bool = False) -> None:
        size = texts * 2 * CAPACITY
        self.path = path
        if not path.exists():
            _create(path, size)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _is_allocated(os.fstat(descriptor), size):
                os.posix_fallocate(descriptor, 0, size)  # a store to a hole on a full disk is a SIGBUS
            # Lock: it belongs to the open file, of which the map keeps a descriptor.
            self._map = mmap.mmap(descriptor, size)
            self.has_claim = claim and _claim(descriptor)
        finally:
            os.close(descriptor)

    def write(self, text: int, document: Any) -> None:
        """Store ``document`` (any JSON value) as text number ``text``."""
        data = json.dumps(document, separators=(",", ":")).encode()
        if len(data) > CAPACITY - HALF_HEADER.size:
            raise ValueError(f"a text of {len(data)} bytes is too long")
        sequence = self._newest(text)[0] + 1
        offset = self._half_offset(text, sequence & 1)
        # Order: invalidate the header, write the bytes, then the header with its checksum. The other half stays valid:
        # its last write is before the barriers of `_newest`.
        self._map[offset : offset + HALF_HEADER.size] = bytes(HALF_HEADER.size)
        self._map[offset + HALF_HEADER.size : offset + HALF_HEADER.size + len(data)] = data
        memory_order.barrier()
        self._map[offset : offset + HALF_HEADER.size] = HALF_HEADER.pack(sequence, len(data), _checksum(sequence, data))

    def sync(self) -> None:
        """Write all texts, and the file's entry in its folder, to the disk. Raises OSError."""
        self._map.flush()
        OS.sync_directory(self.path.parent)

    def read(self, text: int) -> Any:
        """Return the newest intact document of text number ``text``, or None."""
        data = self._newest(text)[1]
        return json.loads(data) if data else None

    def version(self, text: int) -> bytes:
        """Return bytes that change whenever text number ``text`` is written."""
        first = self._half_offset(text, 0)
        second = first + CAPACITY
        return self._map[first : first + HALF_HEADER.size] + self._map[second : second + HALF_HEADER.size]

    def log_damage(self) -> None:
        """Log the damaged texts, before the owner uses the page; the previous text of each stays valid."""
        for index in range(len(self._map) // CAPACITY):
            offset = index * CAPACITY
            if any(self._map[offset : offset + HALF_HEADER.size]) and not self._read_half(offset)[0]:
                _LOGGER.warning("%s: text %d is damaged; the previous one is used", self.path, index // 2)

    def close(self) -> None:
        self._map.close()

    def _half_offset(self, text: int, half: int) -> int:
        return (2 * text + half) * CAPACITY

    def _newest(self, text: int) -> tuple[int, bytes]:
        for _ in range(MAX_ATTEMPTS):
            version = self.version(text)
            memory_order.barrier()
            newest = max(self._read_half(self._half_offset(text, half)) for half in (0, 1))
            # A writer that ended one half and began the other during the read leaves neither intact for this reader.
            if newest[0]:
                break
            memory_order.barrier()
            if self.version(text) == version:
                break
        return newest

    def _read_half(self, offset: int) -> tuple[int, bytes]:
        sequence, length, crc = HALF_HEADER.unpack_from(self._map, offset)
        if not sequence or length > CAPACITY - HALF_HEADER.size:
            return 0, b""
        # Order: the header before the bytes. A caller that has seen a new ``version`` must not get the old text.
        memory_order.barrier()
        data = bytes(self._map[offset + HALF_HEADER.size : offset + HALF_HEADER.size + length])
        return (sequence, data) if crc == _checksum(sequence, data) else (0, b"")


def _create(path: Path, size: int) -> None:
    """Create a page with all its blocks, unless another process or thread is first.

    Order: it has its name last. Where a full disk has no room for it there is no page, and a reader of another process
    does not try to make room. If it gets no name here, the caller creates it.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
        # Threads share the draft: the first one gives it the page's name and removes it. Some file systems, such as
        # exFAT, have no second names at all.
        with contextlib.suppress(OSError):
            os.link(draft, path)
    finally:
        os.close(descriptor)
        draft.unlink(missing_ok=True)


def is_claimed(path: Path) -> bool:
    """Report whether a running process has claimed the page. Raises OSError.

    The kernel ends a claim with its process, however it ends. A process id would be found again in a process that has
    got the same one since, and not be found from another container.
    """
    with path.open("rb") as file:
        return not _lock(file.fileno(), fcntl.LOCK_SH)


def _claim(descriptor: int) -> bool:
    for _ in range(CLAIM_ATTEMPTS):
        if _lock(descriptor, fcntl.LOCK_EX):
            return True
        time.sleep(CLAIM_PAUSE_S)
    return False


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _checksum(sequence: int, data: bytes) -> int:
    return crc32c.crc32c(data, crc32c.crc32c(struct.pack("<QI", sequence, len(data))))


def _is_allocated(status: os.stat_result, size: int) -> bool:
    return status.st_size >= size and status.st_blocks * 512 >= size
