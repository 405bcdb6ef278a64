"""Claimed frames of a stopped log daemon, saved so that the writer may overwrite them; its successor stores them.

A stopped or dead daemon therefore costs the listener's other handlers nothing. Order: the file is replaced atomically
and synced before the writer continues. Layout, little-endian: the total of messages after the frames and its CRC32C;
then for each frame its begin, its end, the length of its payload and the CRC32C of the payload, then the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import crc32c

from penstock.files.file_system import OS, replace_durably
from penstock.handover.position import UNKNOWN
from penstock.logbuffer import Frame

TOTAL = struct.Struct("<qI")
HEAD = struct.Struct("<qqII")


def write_held_frames(path: Path, frames: Sequence[Frame], total: int) -> None:
    """Replace the content of the file by ``frames``. Raises OSError."""
    number = total.to_bytes(8, "little", signed=True)
    parts: list[bytes | memoryview] = [number, crc32c.crc32c(number).to_bytes(4, "little")]
    for frame in frames:
        parts += [HEAD.pack(frame.begin, frame.end, len(frame.data), crc32c.crc32c(frame.data)), frame.data]
    replace_durably(OS, path, b"".join(parts))


def remove_held_frames(path: Path) -> None:
    """Remove the file durably. Raises OSError.

    Crash: the writer takes the file as a proof that no frames behind the saved ones are stored. Order: a removal that
    a power failure may take back is therefore synced before the log daemon reads such frames.
    """
    OS.remove(path)
    OS.sync_directory(path.parent)


def read_held_frames(path: Path) -> tuple[list[Frame], int]:
    """Return the intact frames before the first damaged one, and the total after all frames (or UNKNOWN)."""
    data = memoryview(OS.read(path)) if path.exists() else memoryview(b"")
    if len(data) < TOTAL.size:
        return [], UNKNOWN
    total, checksum = TOTAL.unpack(data[: TOTAL.size])
    return list(_frames(data[TOTAL.size :])), total if crc32c.crc32c(data[:8]) == checksum else UNKNOWN


def _frames(data: memoryview) -> Iterator[Frame]:
    while len(data) >= HEAD.size:
        begin, end, length, checksum = HEAD.unpack(data[: HEAD.size])
        payload, data = data[HEAD.size : HEAD.size + length], data[HEAD.size + length :]
        # Frames after a damaged one have no reliable start, so reading ends here.
        if len(payload) < length or crc32c.crc32c(payload) != checksum:
            return
        yield Frame(payload, begin, end, 0)
