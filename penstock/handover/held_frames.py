"""The frames in the hands of a log daemon that stands still, kept aside: its successor stores those that it had not.

So the writer may go on over them, and a daemon that is stopped or dead costs the listener's other handlers nothing.
The file is put in its place whole and synced before the writer goes on. Layout, little-endian: the total of messages
behind the frames and its CRC32C; then for each frame its begin, its end, the bytes of its payload and their CRC32C,
then the payload.
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


def keep_frames(path: Path, frames: Sequence[Frame], total: int) -> None:
    """Keep ``frames`` in the file ``path``, in the place of those there. Raises OSError."""
    number = total.to_bytes(8, "little", signed=True)
    parts: list[bytes | memoryview] = [number, crc32c.crc32c(number).to_bytes(4, "little")]
    for frame in frames:
        parts += [HEAD.pack(frame.begin, frame.end, len(frame.data), crc32c.crc32c(frame.data)), frame.data]
    replace_durably(OS, path, b"".join(parts))


def kept_frames(path: Path) -> tuple[list[Frame], int]:
    """The frames kept in a file, up to one that is damaged, and the total behind all of them (or UNKNOWN)."""
    data = memoryview(OS.read(path)) if path.exists() else memoryview(b"")
    if len(data) < TOTAL.size:
        return [], UNKNOWN
    total, checksum = TOTAL.unpack(data[: TOTAL.size])
    return list(_frames(data[TOTAL.size :])), total if crc32c.crc32c(data[:8]) == checksum else UNKNOWN


def _frames(data: memoryview) -> Iterator[Frame]:
    while len(data) >= HEAD.size:
        begin, end, length, checksum = HEAD.unpack(data[: HEAD.size])
        payload, data = data[HEAD.size : HEAD.size + length], data[HEAD.size + length :]
        if len(payload) < length or crc32c.crc32c(payload) != checksum:
            return
        yield Frame(payload, begin, end, 0)
