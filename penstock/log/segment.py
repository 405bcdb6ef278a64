"""A topic's segment: its files, and the writer of the active one."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from penstock.log import index
from penstock.log.files import Bytes, File, FileSystem, replace
from penstock.log.framing import PREAMBLE

SUFFIX = ".arrows"
DIGITS = 20
_CLAIM = struct.Struct("<qqq")


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of the segment whose first offset is ``first``."""

    directory: Path
    first: int

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
    def positions(self) -> Path:
        return self._path(".positions")

    def _path(self, suffix: str) -> Path:
        return self.directory / f"{self.first:0{DIGITS}}{suffix}"


def first_offsets(names: Iterable[str]) -> list[int]:
    """The first offsets of the segments among a folder's file names, ascending."""
    stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == DIGITS and stem.isascii() and stem.isdigit())


# The file .synced: how many bytes of the segment are synced (all that readers look at), the offset after them and
# a checksum of both, each an int64.


def claim(length: int, end: int) -> tuple[int, int, int]:
    """The words of a .synced file."""
    return length, end, crc32c(struct.pack("<qq", length, end))


def read_claim(fs: FileSystem, files: Files) -> tuple[int, int] | None:
    """Synced length and end offset that the .synced file claims; None when it is missing or damaged."""
    try:
        words = _CLAIM.unpack(fs.read(files.synced))
    except (FileNotFoundError, struct.error):
        return None
    length, end, _ = words
    return (length, end) if words == claim(length, end) else None


def write_claim(fs: FileSystem, files: Files, length: int, end: int) -> None:
    """Create or repair a .synced file."""
    replace(fs, files.synced, _CLAIM.pack(*claim(length, end)))


# The file .positions: up to which position each log buffer was stored when the segment began.


def write_positions(fs: FileSystem, files: Files, positions: Mapping[str, int]) -> None:
    """Write the .positions file of a new segment."""
    text = json.dumps(dict(positions), separators=(",", ":")).encode()
    replace(fs, files.positions, b"%08x" % crc32c(text) + text)


def read_positions(fs: FileSystem, files: Files) -> dict[str, int] | None:
    """The positions when the segment began; None when the file is missing or damaged."""
    try:
        data = fs.read(files.positions)
        if data[:8] != b"%08x" % crc32c(data[8:]):
            return None
        return {str(buffer): int(position) for buffer, position in json.loads(data[8:]).items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return None


@dataclass(slots=True)
class State:
    """How far a segment goes: ``length`` bytes, offsets up to ``end``, ``batches`` index records.

    ``oldest`` and ``last`` are timestamps in microseconds (``oldest`` 0 while it is empty).
    """

    length: int
    end: int
    batches: int
    oldest: int
    last: int


class Segment:
    """The active segment of a topic, open for writing. One thread at a time."""

    def __init__(self, fs: FileSystem, files: Files, state: State) -> None:
        self.files = files
        self.state = state
        self._dirty = False
        with contextlib.ExitStack() as stack:
            self._data: File = stack.enter_context(contextlib.closing(fs.open(files.data)))
            self._index: File = stack.enter_context(contextlib.closing(fs.open(files.index)))
            self._words = stack.enter_context(contextlib.closing(fs.words(files.synced)))
            self._open = stack.pop_all()

    def append(self, parts: Sequence[Bytes], records: index.Records, *, sync: bool) -> None:
        """Write whole messages and their ``records``, bring them to the disk, then publish them.

        Raises OSError, and then nothing of them is visible.
        """
        try:
            self._undo_failure()
            self._dirty = True
            written = self._data.write(parts, self.state.length)
            if sync:
                self._data.sync()
            self._index.write([records.tobytes()], self._index_length)
            self._dirty = False
        except OSError:
            with contextlib.suppress(OSError):
                self._undo_failure()
            raise
        self._publish(written, records)

    def _publish(self, written: int, records: index.Records) -> None:
        state = self.state
        state.length += written
        state.end = int(records["base"][-1] + records["rows"][-1])
        state.batches += len(records)
        state.oldest = state.oldest or int(records["first"][0])
        state.last = int(records["last"][-1])
        self._words.store(*claim(state.length, state.end))

    def _undo_failure(self) -> None:
        """Cut off what a failed append left behind: it must never be read as stored."""
        if self._dirty:
            self._data.truncate(self.state.length)
            self._data.sync()
            self._index.truncate(self._index_length)
            self._dirty = False

    @property
    def _index_length(self) -> int:
        return index.HEADER_SIZE + self.state.batches * index.RECORD.itemsize

    def sync(self) -> None:
        """Bring everything to the disk, the index included."""
        self._undo_failure()
        self._data.sync()
        self._index.sync()

    def close(self) -> None:
        self._open.close()


def create(fs: FileSystem, directory: Path, first: int, positions: Mapping[str, int], last: int) -> Segment:
    """Start an empty segment at offset ``first``; ``last`` is the topic's last timestamp.

    Raises OSError, and then nothing of it is left. The data file comes last: where it is, the others are.
    """
    files = Files(directory, first)
    state = State(PREAMBLE.size, first, 0, 0, last)
    try:
        write_positions(fs, files, positions)
        replace(fs, files.index, index.HEADER)
        write_claim(fs, files, state.length, state.end)
        replace(fs, files.data, PREAMBLE)
        return Segment(fs, files, state)
    except OSError:
        for path in (files.data, files.synced, files.index, files.positions):
            with contextlib.suppress(OSError):
                fs.remove(path)
        raise
