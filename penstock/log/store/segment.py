"""A topic's segment: its files, and the writer of the active one."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from crc32c import crc32c

from penstock.files.file_system import Bytes, File, FileSystem, replace_durably
from penstock.log.documents import decode, encode
from penstock.log.errors import UnknownFormat
from penstock.log.store import index
from penstock.log.store.batch_format import PREAMBLE

SUFFIX = ".arrows"
PRODUCERS = ("producers", "checksums", "unsure")
"""Of a .state file: what producers were known."""
DIGITS = 20
MAX_PREALLOCATED_BYTES = 256 << 10
"""Bytes of zeros behind what is written, at most."""
SMALL = MAX_PREALLOCATED_BYTES // 16
"""Bytes of an append for which room is made, at most."""
_CLAIM = struct.Struct("<qqq")


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The paths of the segment whose first offset is ``first``."""

    directory: Path
    first: int

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.directory.name

    @property
    def fingerprint(self) -> int:
        """Of topic and first offset: in the files beside the data, so that another segment's are not believed."""
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
        """Whether it is a segment of an internal topic."""
        return self.topic.startswith("_")

    @property
    def all(self) -> tuple[Path, ...]:
        """The data file first: without it, the others mean nothing."""
        return self.data, self.index, self.synced, self.start_state, self.copies

    def _path(self, suffix: str) -> Path:
        return self.directory / f"{self.first:0{DIGITS}}{suffix}"


@lru_cache(1024)
def _fingerprint(topic: str, first: int) -> int:
    return crc32c(f"{topic}/{first}".encode()) or 1


def first_offsets(names: Iterable[str]) -> list[int]:
    """The first offsets of the segments among a folder's file names, ascending."""
    stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == DIGITS and stem.isascii() and stem.isdigit())


def stored_bytes(directory: Path) -> int:
    """The bytes of a topic's segments (and of their room), indices not counted.

    Raises FileNotFoundError where there is no such topic.
    """
    total = 0
    for entry in os.scandir(directory):
        if entry.name.endswith(SUFFIX):
            with contextlib.suppress(FileNotFoundError):  # retention removes segments at any time
                total += entry.stat().st_size
    return total


def is_companion_file(name: str) -> bool:
    """Whether a file belongs to a segment, beside its data."""
    stem, _, suffix = name.partition(".")
    return (
        suffix in ("index", "synced", "state", "copies") and len(stem) == DIGITS and stem.isascii() and stem.isdigit()
    )


# The file .synced, three int64: how many bytes of the segment are synced (all that readers look at), the offset after
# them, and the file's format version above a checksum of all three that begins with the segment's mark (with 0 in files
# of before).
SYNCED_FORMAT = 1


def synced_words(length: int, end: int, version: int = SYNCED_FORMAT, fingerprint: int = 0) -> tuple[int, int, int]:
    """The words of the .synced file of the segment with this mark."""
    return length, end, version << 32 | crc32c(struct.pack("<qqi", length, end, version), fingerprint)


def read_synced(fs: FileSystem, files: SegmentFiles) -> tuple[int, int] | None:
    """Synced length and end offset that the .synced file claims; None when it is missing, damaged, or another's.

    Raises UnknownFormat.
    """
    try:
        length, end, check = _CLAIM.unpack(fs.read(files.synced))
        version = check >> 32
        if not any(
            (length, end, check) == synced_words(length, end, version, fingerprint)
            for fingerprint in (files.fingerprint, 0)
        ):
            return None
    except (FileNotFoundError, struct.error):
        return None
    if version != SYNCED_FORMAT:
        raise UnknownFormat(f"{files.synced.name} has format {version}, this version of Penstock reads {SYNCED_FORMAT}")
    return length, end


def write_synced(fs: FileSystem, files: SegmentFiles, length: int, end: int) -> None:
    """Create or repair a .synced file."""
    replace_durably(fs, files.synced, _CLAIM.pack(*synced_words(length, end, fingerprint=files.fingerprint)))


# The file .state: what was known when the segment began: up to which position each log buffer was stored, and the
# producers.


@dataclass(slots=True)
class StartState:
    """What a topic remembers beside its rows: positions of log buffers, and ``Producers.document``."""

    positions: dict[str, int] = field(default_factory=dict)
    producers: dict[str, Any] = field(default_factory=dict)


def write_start_state(fs: FileSystem, files: SegmentFiles, known: StartState) -> None:
    """Write the .state file of a new segment."""
    told = {"topic": files.topic, "first": files.first, "positions": known.positions}
    replace_durably(fs, files.start_state, encode({**told, **known.producers}))


def read_start_state(fs: FileSystem, files: SegmentFiles) -> StartState | None:
    """What was known when the segment began; None when the file is missing, damaged or of another segment.

    Raises UnknownFormat.
    """
    try:
        document = decode(fs.read(files.start_state), files.start_state) or {}
        if (document.get("topic", files.topic), document.get("first", files.first)) != (files.topic, files.first):
            return None
        positions = {str(buffer): int(position) for buffer, position in document["positions"].items()}
        return StartState(positions, {name: document[name] for name in PRODUCERS if name in document})
    except (FileNotFoundError, ValueError, TypeError, AttributeError, KeyError):
        return None


@dataclass(slots=True)
class SegmentState:
    """How far a segment goes: ``length`` bytes, offsets up to ``end``, ``batches`` index records.

    ``oldest`` and ``last`` are timestamps in microseconds (``oldest`` 0 while it is empty), ``copied`` the bytes of
    its journal of copies.
    """

    length: int
    end: int
    batches: int
    oldest: int
    last: int
    copied: int = 0

    def copy(self) -> SegmentState:
        """The same, to be kept."""
        return SegmentState(self.length, self.end, self.batches, self.oldest, self.last, self.copied)


class Segment:
    """The active segment of a topic, open for writing. One thread at a time.

    What is appended is written, then synced, then published: readers see it from then on. The index and the copies
    follow the synced data: after a power cut, what they mention was there. Files are opened when they are needed;
    ``release`` closes them.

    The system drops pages that it could not bring to the disk, and says so once: so what is not synced stays in memory,
    and is written again after a sync that failed.

    Where appends are small, the data file has room behind them: zeros, which Arrow takes for the end of a stream. To
    sync what is written in their place takes three quarters of the time of a sync that has to bring a new length to the
    disk, too. Room that is left is cut off at the end, or by recovery.
    """

    def __init__(self, fs: FileSystem, files: SegmentFiles, state: SegmentState) -> None:
        self._fs = fs
        self.files = files
        self.state = state
        self.published = state.copy()
        self._dirty = False
        self._room_end = 0
        self._unindexed: list[tuple[int, bytes]] = []
        self._uncopied: list[tuple[int, bytes]] = []
        self._unsynced: list[tuple[int, Sequence[Bytes]]] = []
        self._dropped = False
        self._open: contextlib.ExitStack | None = None

    def _opened(self) -> None:
        if self._open is not None:
            return
        with contextlib.ExitStack() as stack:
            self._data: File = stack.enter_context(contextlib.closing(self._fs.open(self.files.data)))
            self._index: File = stack.enter_context(contextlib.closing(self._fs.open(self.files.index)))
            copies = self._fs.open(self.files.copies, create=True)
            self._copies: File = stack.enter_context(contextlib.closing(copies))
            self._words = stack.enter_context(contextlib.closing(self._fs.words(self.files.synced)))
            self._open = stack.pop_all()

    def append(self, parts: Sequence[Bytes], records: Sequence[index.Record], copies: bytes = b"") -> None:
        """Write whole messages, their ``records`` and ``copies``. Raises OSError, and then nothing of them stays."""
        try:
            self.undo_failure()
            if self._dropped:  # else memory would fill with what the disk does not take
                self.sync()
            self._dirty = True
            written = self._data.write(parts, self.state.length)
            self._dirty = False
            self._make_room(written)
        except OSError:
            with contextlib.suppress(OSError):
                self.undo_failure()
            raise
        first, last = records[0], records[-1]
        self._unindexed.append((first.base, b"".join([record.packed() for record in records])))
        self._uncopied.append((first.base, copies))
        state = self.state
        self._unsynced.append((state.length, parts))
        state.length += written
        state.end = last.base + last.rows
        state.batches += len(records)
        state.copied += len(copies)
        state.oldest = state.oldest or first.first
        state.last = last.last

    def _make_room(self, written: int) -> None:
        """Behind an append, where the last room is used up: half of what there is, so that small topics stay small."""
        end = self.state.length + written
        room = min(MAX_PREALLOCATED_BYTES, end // 2) if written <= SMALL else 0
        if end <= self._room_end or room < written:
            return
        self._room_end = end + room  # also where there is none: it is not tried again soon
        try:
            self._data.write([bytes(room)], end)
        except OSError:
            with contextlib.suppress(OSError):  # the disk may be full: others need what is left of it
                self._data.truncate(end)

    def _cut_room(self) -> None:
        """Raises OSError; then again later. Nothing needs to be synced but where no recovery looks at the end again."""
        if self.room:
            self._data.truncate(self.state.length)
        self._room_end = 0

    @property
    def room(self) -> int:
        """Bytes of zeros behind what is written."""
        return max(0, self._room_end - self.state.length)

    def sync(self) -> None:
        """Bring what is written to the disk. Raises OSError: what is not synced stays unseen."""
        self.undo_failure()
        if self._unindexed:
            self._write_again()
            self._sync_data()
            self._unsynced, self._dropped = [], False
            added = b"".join([packed for _, packed in self._unindexed])
            self._index.write([added], self._index_length - len(added))
            copies = b"".join(text for _, text in self._uncopied)
            self._copies.write([copies], self.state.copied - len(copies))
            self._unindexed, self._uncopied = [], []

    def _sync_data(self) -> None:
        try:
            self._data.sync()
        except OSError:
            self._dropped = bool(self._unsynced)
            with contextlib.suppress(
                OSError
            ):  # at once: whoever opens the file after a kill must not believe its pages
                self._write_again()
            raise

    def _write_again(self) -> None:
        if self._dropped:
            for position, parts in self._unsynced:
                self._data.write(parts, position)

    def publish(self) -> None:
        """Let readers see what is synced."""
        state = self.state
        if state.length != self.published.length:
            self._opened()
            self._words.store(*synced_words(state.length, state.end, fingerprint=self.files.fingerprint))
            self.published = state.copy()

    def roll_back(self, state: SegmentState) -> None:
        """Take back what was written behind ``state`` and is not published. Raises OSError; then again before all."""
        self._dirty = self._dirty or state.length != self.state.length
        self.state = state.copy()
        self._unindexed = [records for records in self._unindexed if records[0] < state.end]
        self._uncopied = [copy for copy in self._uncopied if copy[0] < state.end]
        self._unsynced = [part for part in self._unsynced if part[0] < state.length]
        self._dropped = self._dropped and bool(self._unsynced)
        self.undo_failure()

    def undo_failure(self) -> None:
        """Cut off what a failed append left behind: it must never be read as stored. Raises OSError."""
        self._opened()
        if self._dirty:
            self._room_end = 0
            self._data.truncate(self.state.length)
            self._sync_data()
            self._index.truncate(self._index_length - sum(len(packed) for _, packed in self._unindexed))
            self._copies.truncate(self.state.copied - sum(len(text) for _, text in self._uncopied))
            self._dirty = False

    @property
    def _index_length(self) -> int:
        return index.HEADER_SIZE + self.state.batches * index.RECORD.itemsize

    @property
    def clean(self) -> bool:
        """Whether all that was written is published."""
        return not self._dirty and self.state.length == self.published.length

    def seal(self) -> None:
        """Bring everything to the disk, the index included, and publish it."""
        self.sync()
        self._cut_room()
        self._data.sync()
        self._index.sync()
        self._copies.sync()
        self.publish()

    def release(self) -> None:
        """Close the files; they are opened again when they are needed."""
        if self._open is not None:
            with contextlib.suppress(OSError):
                self._cut_room()
            self._open.close()
            self._open = None


def create(fs: FileSystem, directory: Path, first: int, known: StartState, last: int) -> Segment:
    """Start an empty segment at offset ``first``; ``last`` is the topic's last timestamp.

    Raises OSError, and then nothing of it is left. The data file comes last: where it is, the others are.
    """
    files = SegmentFiles(directory, first)
    state = SegmentState(PREAMBLE.size, first, 0, 0, last)
    try:
        write_start_state(fs, files, known)
        replace_durably(fs, files.index, index.header(fingerprint=files.fingerprint))
        write_synced(fs, files, state.length, state.end)
        replace_durably(fs, files.data, PREAMBLE)
        return Segment(fs, files, state)
    except OSError:
        remove(fs, files)
        raise


def remove(fs: FileSystem, files: SegmentFiles) -> None:
    """Remove the files of a segment, as far as that is possible."""
    for path in files.all:
        with contextlib.suppress(OSError):
            fs.remove(path)
