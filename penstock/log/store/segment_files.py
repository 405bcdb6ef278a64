"""The files of one segment: their names, its synced length, and the state at its start.

Invariant: each file names its topic and first offset, so that the file of another segment is never believed.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from crc32c import crc32c

from penstock.files.file_system import FileSystem, replace_durably
from penstock.log.documents import decode, encode
from penstock.log.errors import UnknownFormat

SUFFIX = ".arrows"
PRODUCERS = ("producers", "unsure", "silent")
"""Keys of the producers in a .state file."""
OFFSET_DIGITS = 20
_SYNCED_WORDS = struct.Struct("<qqq")


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The paths of the segment whose first offset is ``first``."""

    directory: Path
    first: int

    @property
    def topic(self) -> str:
        """Return the name of the topic."""
        return self.directory.name

    @property
    def fingerprint(self) -> int:
        """Return a number that identifies the topic and the first offset.

        The index, the synced length and the copies contain it, so that a file of another segment, copied or restored
        to this path by mistake, is not believed.
        """
        return _fingerprint(self.topic, self.first)

    @property
    def data(self) -> Path:
        return self._path(SUFFIX)

    @property
    def index(self) -> Path:
        return self._path(".index")

    @property
    def synced(self) -> Path:
        return self._path(".synced")

    @property
    def start_state(self) -> Path:
        return self._path(".state")

    @property
    def copies(self) -> Path:
        return self._path(".copies")

    @property
    def is_internal(self) -> bool:
        """Report whether the topic is internal."""
        return self.topic.startswith("_")

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return all paths, the data file first.

        Order: removal takes this order. Without the data file the others are leftovers that recovery removes; a data
        file without the others would look like damage.
        """
        return self.data, self.index, self.synced, self.start_state, self.copies

    def _path(self, suffix: str) -> Path:
        return self.directory / f"{self.first:0{OFFSET_DIGITS}}{suffix}"


@lru_cache(1024)
def _fingerprint(topic: str, first: int) -> int:
    return crc32c(f"{topic}/{first}".encode()) or 1


def first_offsets(names: Iterable[str]) -> list[int]:
    """Return the first offsets of the segments among the file names of a folder, ascending."""
    stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == OFFSET_DIGITS and stem.isascii() and stem.isdigit())


def stored_bytes(directory: Path) -> int:
    """Return the bytes of a topic's segments, preallocated bytes included and indices excluded.

    Raises FileNotFoundError if the topic does not exist.
    """
    total = 0
    for entry in os.scandir(directory):
        if entry.name.endswith(SUFFIX):
            with contextlib.suppress(FileNotFoundError):  # retention removes segments at any time
                total += entry.stat().st_size
    return total


def is_companion_file(name: str) -> bool:
    """Report whether a file belongs to a segment and is not its data file."""
    stem, _, suffix = name.partition(".")
    return (
        suffix in ("index", "synced", "state", "copies")
        and len(stem) == OFFSET_DIGITS
        and stem.isascii()
        and stem.isdigit()
    )


# The file .synced, three int64: how many bytes of the segment are synced (all that readers look at), the offset after
# them, and the file's format version above a checksum of all three that begins with the segment's fingerprint.
SYNCED_FORMAT = 1


def synced_words(length: int, end: int, fingerprint: int, version: int = SYNCED_FORMAT) -> tuple[int, int, int]:
    """Return the words of the .synced file of the segment with this fingerprint."""
    return length, end, version << 32 | crc32c(struct.pack("<qqi", length, end, version), fingerprint)


def read_synced(fs: FileSystem, files: SegmentFiles) -> tuple[int, int] | None:
    """Return the length and end offset in the .synced file; None if it is missing, damaged or another segment's.

    Raises UnknownFormat.
    """
    try:
        return unpack_synced(fs.read(files.synced), files)
    except FileNotFoundError:
        return None


def read_synced_bytes(path: str) -> bytes:
    """Return the bytes of a .synced file, b"" if it is missing. Fast path: without a Path and a file object."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.read(descriptor, _SYNCED_WORDS.size)
    finally:
        os.close(descriptor)


def unpack_synced(data: bytes, files: SegmentFiles) -> tuple[int, int] | None:
    """Return the length and end offset in the bytes of a .synced file; None if damaged. Raises UnknownFormat."""
    try:
        length, end, check = _SYNCED_WORDS.unpack(data)
        version = check >> 32
        if (length, end, check) != synced_words(length, end, files.fingerprint, version):
            return None
    except struct.error:
        return None
    if version != SYNCED_FORMAT:
        raise UnknownFormat(f"{files.synced.name} has format {version}, this version of Penstock reads {SYNCED_FORMAT}")
    return length, end


def recover_synced(data: bytes, files: SegmentFiles, ends: Iterable[tuple[int, int]]) -> int | None:
    """Return the length that a damaged or half-written .synced file had; None if that is not certain.

    ``ends`` are length and end offset after each batch in the index. They are certain if two of the three words in
    ``data`` agree with them: a flipped bit changes one word, and a writer that dies stores the checksum first.
    """
    if len(data) != _SYNCED_WORDS.size:
        return None
    words = _SYNCED_WORDS.unpack(data)
    for length, end in ends:
        expected = synced_words(length, end, files.fingerprint)
        if sum(word == other for word, other in zip(words, expected, strict=True)) >= 2:
            return length
    return None


def write_synced(fs: FileSystem, files: SegmentFiles, length: int, end: int) -> None:
    """Create or repair a .synced file durably."""
    replace_durably(fs, files.synced, _SYNCED_WORDS.pack(*synced_words(length, end, files.fingerprint)))


# The file .state is a snapshot from the start of the segment: recovery reads it and the segment's batches, and
# therefore never has to read earlier segments.


@dataclass(slots=True)
class StartState:
    """Stored positions of log buffers, and the producers as ``Producers.document`` returns them."""

    positions: dict[str, int] = field(default_factory=dict)
    producers: dict[str, Any] = field(default_factory=dict)


def write_start_state(fs: FileSystem, files: SegmentFiles, start_state: StartState) -> None:
    """Write the .state file of a new segment. Raises OSError."""
    header = {"topic": files.topic, "first": files.first, "positions": start_state.positions}
    replace_durably(fs, files.start_state, encode({**header, **start_state.producers}))


def read_start_state(fs: FileSystem, files: SegmentFiles) -> StartState | None:
    """Return the state at the start of the segment; None if the file is missing, damaged or another segment's.

    Raises UnknownFormat.
    """
    try:
        document = decode(fs.read(files.start_state), files.start_state) or {}
        if (document["topic"], document["first"]) != (files.topic, files.first):
            return None
        positions = {str(buffer): int(position) for buffer, position in document["positions"].items()}
        return StartState(positions, {name: document[name] for name in PRODUCERS if name in document})
    except (FileNotFoundError, ValueError, TypeError, AttributeError, KeyError):
        return None


def remove(fs: FileSystem, files: SegmentFiles) -> None:
    """Remove the files of a segment; files that cannot be removed stay."""
    for path in files.paths:
        with contextlib.suppress(OSError):
            fs.remove(path)
