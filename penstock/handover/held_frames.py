"""Claimed frames of a stopped log daemon, saved so that the writer may overwrite them; its successor stores them.

A stopped or dead daemon therefore costs the listener's other handlers nothing. Order: the file is replaced atomically
and synced before the writer continues. Layout, little-endian: a number and its CRC32C; then for each frame its begin,
its end, the length of its payload and the CRC32C of these and of the payload, then the payload. An entry that ends
where it begins says that the frames before it were passed (``PassedFrames``). The number is the total of messages after
the last frame without all passed ones: the number of saved messages that damage of the file has lost follows from it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import crc32c

from penstock.files.file_system import OS, replace_in_parts
from penstock.handover.positions.position import UNKNOWN
from penstock.logbuffer import Frame

TOTAL = struct.Struct("<qI")
HEAD = struct.Struct("<qqII")
CHECKSUM_BYTES = 4
TOTALS = struct.Struct("<qq?")
UNREADABLE = (1 << 63) - 1
"""A position behind all others: frames are saved again rather than dropped."""


class PassedFrames(NamedTuple):
    """Frames before ``begin`` that were dropped or stored, with the totals before and after them.

    ``is_first``: no frames were saved before them. ``before`` is then where the reader was, and ``after`` is right even
    if a power failure has moved it back.
    """

    begin: int
    before: int
    after: int
    is_first: bool

    @property
    def messages(self) -> int:
        """The number of their messages."""
        return self.after - self.before


def write_held_frames(path: Path, frames: Iterable[Frame | PassedFrames], number: int) -> None:
    """Replace the content of the file by ``frames``, of which one at a time is in memory. Raises OSError.

    ``number`` is the total after them without the messages of passed ones (or UNKNOWN).
    """
    replace_in_parts(OS, path, _parts(frames, number))


def _parts(frames: Iterable[Frame | PassedFrames], number: int) -> Iterator[list[bytes | memoryview]]:
    packed = number.to_bytes(8, "little", signed=True)
    yield [packed, crc32c.crc32c(packed).to_bytes(4, "little")]
    for frame in frames:
        if isinstance(frame, PassedFrames):
            totals = TOTALS.pack(*frame[1:])
            yield [_head(frame.begin, frame.begin, totals), totals]
            continue
        yield [_head(frame.begin, frame.end, frame.data), frame.data]


def _head(begin: int, end: int, payload: bytes | memoryview) -> bytes:
    checksum = _checksum(HEAD.pack(begin, end, len(payload), 0), payload)
    return HEAD.pack(begin, end, len(payload), checksum)


def _checksum(head: bytes, payload: bytes | memoryview) -> int:
    return crc32c.crc32c(payload, crc32c.crc32c(head[:-CHECKSUM_BYTES]))


def remove_held_frames(path: Path) -> None:
    """Remove the file durably. Raises OSError.

    Crash: the writer takes the file as a proof that no frames behind the saved ones are stored. Order: a removal that
    a power failure may take back is therefore synced before the log daemon reads such frames.
    """
    OS.remove(path)
    OS.sync_directory(path.parent)


def read_held_frames(path: Path) -> tuple[Iterator[Frame | PassedFrames], int]:
    """Return the intact entries before the first damaged one, and the number (or UNKNOWN): see ``write_held_frames``.

    Limit: the file may have all frames of a log buffer, so they are read one at a time, from one file even if the
    writer replaces it. Raises OSError.
    """
    if not path.exists():
        return iter(()), UNKNOWN
    file = path.open("rb")
    head = file.read(TOTAL.size)
    total, checksum = TOTAL.unpack(head) if len(head) == TOTAL.size else (UNKNOWN, 0)
    return _read_frames(file), total if crc32c.crc32c(head[:8]) == checksum else UNKNOWN


def saved_end(path: Path) -> int:
    """Return the end of the last intact frame; 0 without any, UNREADABLE if the file cannot be read."""
    try:
        return max((frame.end for frame in read_held_frames(path)[0] if isinstance(frame, Frame)), default=0)
    except FileNotFoundError:  # the log daemon has stored the frames and removed the file
        return 0
    except OSError:
        return UNREADABLE


def _read_frames(file: BinaryIO) -> Iterator[Frame | PassedFrames]:
    with file:
        size = os.fstat(file.fileno()).st_size
        while len(head := file.read(HEAD.size)) == HEAD.size:
            begin, end, length, checksum = HEAD.unpack(head)
            # Limit: no more memory than a frame may have, for a damaged length.
            if length > min(size - file.tell(), end - begin if end > begin else TOTALS.size):
                return
            payload = file.read(length)
            # Frames after a damaged one have no reliable start, so reading ends here.
            # Compatibility: an earlier version had the checksum of the payload alone.
            if checksum not in (_checksum(head, payload), crc32c.crc32c(payload)):
                return
            if end > begin:
                yield Frame(memoryview(payload), begin, end, 0)
            elif end == begin and length == TOTALS.size:
                yield PassedFrames(begin, *TOTALS.unpack(payload))
