"""A small mapped file in which a process leaves texts for others, and for its successor.

Each text has two places that are written in turn (sequence number, length, CRC32C, bytes), so that a
process killed while writing leaves the text before it, and a reader in another process never sees half.
The checksum covers number and length too; before 0.2 it covered the bytes alone.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import struct
from pathlib import Path
from typing import Any

import crc32c

HALF_HEADER = struct.Struct("<QII")  # sequence number, length, CRC32C
CAPACITY = 64 << 10
"""Bytes of one text at most, its head included."""
SKIPPED = 0
"""Number of the text with the counts of missed frames (``skipped.SkippedFrames``)."""
STATISTICS = 1
"""Number of the text with the listener's statistics."""
EPOCH = 2
"""Number of the text that says since when positions in the log buffer go on without a break."""
TOPIC_BY_POSITION = 3
"""Number of the text that says which topic the frames from which position on are for."""
TOPIC_REQUESTS = 4
"""Number of the text with the requests for topics that the log daemon could not grant in the group it stores."""
TEXTS = 5
_LOGGER = logging.getLogger(__name__)


class StatePage:
    """Texts by number in one mapped file. Raises ValueError for a text that does not fit."""

    def __init__(self, path: Path, texts: int = TEXTS) -> None:
        size = texts * 2 * CAPACITY
        self._path = path
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _has_all_its_blocks(os.fstat(descriptor), size):
                os.posix_fallocate(descriptor, 0, size)  # a sparse map on a full disk would be a SIGBUS
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)

    def write(self, text: int, document: Any) -> None:
        """Leave ``document`` (anything JSON takes) as text number ``text``."""
        data = json.dumps(document, separators=(",", ":")).encode()
        if len(data) > CAPACITY - HALF_HEADER.size:
            raise ValueError(f"a text of {len(data)} bytes does not fit")
        sequence = self._newest(text)[0] + 1
        at = self._place(text, sequence & 1)
        self._map[at : at + HALF_HEADER.size] = bytes(HALF_HEADER.size)
        self._map[at + HALF_HEADER.size : at + HALF_HEADER.size + len(data)] = data
        self._map[at : at + HALF_HEADER.size] = HALF_HEADER.pack(sequence, len(data), _checksum(sequence, data))

    def read(self, text: int) -> Any:
        """The newest whole document of text number ``text``; None when there is none."""
        data = self._newest(text)[1]
        return json.loads(data) if data else None

    def tell_damage(self) -> None:
        """For the owner, before it uses the page: tells which texts are damaged; what was said before them stands."""
        for place in range(len(self._map) // CAPACITY):
            at = place * CAPACITY
            if any(self._map[at : at + HALF_HEADER.size]) and not self._whole(at)[0]:
                _LOGGER.warning("%s: text %d is damaged; the one written before it stands", self._path, place // 2)

    def close(self) -> None:
        """Unmap."""
        self._map.close()

    def _place(self, text: int, which: int) -> int:
        return (2 * text + which) * CAPACITY

    def _newest(self, text: int) -> tuple[int, bytes]:
        return max(self._whole(self._place(text, which)) for which in (0, 1))

    def _whole(self, at: int) -> tuple[int, bytes]:
        sequence, length, crc = HALF_HEADER.unpack_from(self._map, at)
        if not sequence or length > CAPACITY - HALF_HEADER.size:
            return 0, b""
        data = bytes(self._map[at + HALF_HEADER.size : at + HALF_HEADER.size + length])
        return (sequence, data) if crc in (_checksum(sequence, data), crc32c.crc32c(data)) else (0, b"")


def _checksum(sequence: int, data: bytes) -> int:
    return crc32c.crc32c(data, crc32c.crc32c(struct.pack("<QI", sequence, len(data))))


def _has_all_its_blocks(found: os.stat_result, size: int) -> bool:
    return found.st_size >= size and found.st_blocks * 512 >= size
