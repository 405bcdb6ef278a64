"""Opening a topic after anything: what can be saved is saved, what cannot becomes a gap, nothing is deleted unseen.

Every step may be repeated: bytes go to ``quarantine/`` and are synced, then the gap is synced, then files are cut.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.log import framing, index, segment
from penstock.log.files import FileSystem, replace
from penstock.log.framing import Message
from penstock.log.gaps import CORRUPT, DELETED, Gap, Gaps, uncovered
from penstock.log.scan import Scan, scan
from penstock.log.segment import Files, Segment, State
from penstock.records import BadBatch

QUARANTINE = "quarantine"


class Recovery:
    """Brings a topic's folder in order and opens its active segment."""

    def __init__(self, fs: FileSystem, directory: Path, gaps: Gaps) -> None:
        self._fs = fs
        self._directory = directory
        self._gaps = gaps
        self._last = 0

    def run(self) -> tuple[Segment, dict[str, int]]:
        """The active segment and the position up to which each log buffer is stored. Raises OSError."""
        self._remove_temporaries()
        firsts = segment.first_offsets(self._fs.names(self._directory))
        end = 0
        for number, first in enumerate(firsts[:-1]):
            self._enter_missing(end, first)
            end = self._check_sealed(Files(self._directory, first), firsts[number + 1])
        if not firsts:
            return self._start(max(end, self._gap_end()), {}), {}
        self._enter_missing(end, firsts[-1])
        return self._resume(firsts)

    def _remove_temporaries(self) -> None:
        for name in self._fs.names(self._directory):
            if name.endswith(".tmp"):
                self._fs.remove(self._directory / name)

    def _resume(self, firsts: list[int]) -> tuple[Segment, dict[str, int]]:
        """Open the last segment, or a new one behind it when its end is bad."""
        files = Files(self._directory, firsts[-1])
        found = self._scan(files, segment.read_claim(self._fs, files))
        positions = segment.read_positions(self._fs, files)
        if positions is None:
            positions = self._walk_positions(firsts[:-1])
        _advance(positions, found.messages)
        kept = self._repair(files, found)
        end, _ = index.end_of(kept, files.first, found.preamble)
        start = max(found.end, self._gap_end())
        if start > end:
            return self._start(start, positions), positions
        oldest = int(kept["first"][0]) if len(kept) else 0
        return Segment(self._fs, files, State(found.length, end, len(kept), oldest, self._last)), positions

    def _start(self, first: int, positions: Mapping[str, int]) -> Segment:
        return segment.create(self._fs, self._directory, first, positions, self._last)

    def _gap_end(self) -> int:
        return max((gap.end for gap in self._gaps.all()), default=0)

    def _check_sealed(self, files: Files, following: int) -> int:
        """The end of a sealed segment, its index rebuilt when its shape is wrong."""
        records = self._index(files)
        begin = int(records["position"][0]) if len(records) else framing.PREAMBLE.size
        end, length = index.end_of(records, files.first, begin)
        if not index.dense(records, files.first, begin) or length != self._fs.size(files.data) or end > following:
            found = self._scan(files, None)
            records = self._repair(files, found)
            end = found.end
            self._enter_missing(end, following, CORRUPT)
        self._last = max(self._last, int(records["last"].max(initial=0)))
        return end

    def _scan(self, files: Files, claim: tuple[int, int] | None) -> Scan:
        return scan(self._fs.map(files.data), files.first, self._index(files), claim)

    def _index(self, files: Files) -> index.Records:
        try:
            return index.read(self._fs.read(files.index))
        except FileNotFoundError:
            return index.EMPTY

    def _repair(self, files: Files, found: Scan) -> index.Records:
        """Make the files of a segment agree with what was found in it; the records that stay."""
        data = self._fs.map(files.data)
        bad = found.records[found.bad]
        for begin, length in zip(bad["position"].tolist(), bad["length"].tolist(), strict=True):
            if begin < found.length:
                quarantine(self._fs, files, data, begin, begin + length)
        quarantine(self._fs, files, data, found.length, found.size)
        self._gaps.add(corrupt_gaps(bad, self._gaps.all()))
        self._last = max(self._last, found.last)
        kept = found.records[: len(found.records) - found.lost]
        self._cut(files, found)
        self._restore(files, kept, found)
        return kept

    def _cut(self, files: Files, found: Scan) -> None:
        """Cut the data behind the last readable batch; a damaged schema message is written anew."""
        schema = bytes(memoryview(framing.PREAMBLE))
        damaged = found.preamble == len(schema) and self._fs.map(files.data)[: len(schema)].to_pybytes() != schema
        if found.size <= found.length and not damaged:
            return
        with contextlib.closing(self._fs.open(files.data)) as file:
            file.truncate(max(found.length, found.preamble))
            if damaged:
                file.write([schema], 0)
            file.sync()

    def _restore(self, files: Files, kept: index.Records, found: Scan) -> None:
        """Rewrite index and synced length where they are not what they should be."""
        expected = index.HEADER + kept.tobytes()
        if not self._holds(files.index, expected):
            replace(self._fs, files.index, expected)
        end, _ = index.end_of(kept, files.first, found.preamble)
        if segment.read_claim(self._fs, files) != (found.length, end):
            segment.write_claim(self._fs, files, found.length, end)

    def _holds(self, path: Path, data: bytes) -> bool:
        try:
            return self._fs.read(path) == data
        except FileNotFoundError:
            return False

    def _enter_missing(self, begin: int, end: int, reason: str = DELETED) -> None:
        """Offsets that no segment has become a gap."""
        parts = list(uncovered(self._gaps.all(), begin, end))
        self._gaps.add([Gap(b, e, reason) for b, e in parts])

    def _walk_positions(self, firsts: list[int]) -> dict[str, int]:
        """The highest position of each log buffer, from all batches of the given segments."""
        positions: dict[str, int] = {}
        for first in firsts:
            files = Files(self._directory, first)
            _advance(positions, _messages(self._fs.map(files.data), self._index(files)))
        return positions


def _advance(positions: dict[str, int], messages: Iterator[Message] | list[Message]) -> None:
    for origin in (message.origin for message in messages):
        if origin.buffer:
            positions[origin.buffer] = max(origin.end, positions.get(origin.buffer, 0))


def _messages(data: pa.Buffer, records: index.Records) -> Iterator[Message]:
    for position in records["position"].tolist():
        with contextlib.suppress(BadBatch):
            yield framing.parse(data, position)


def quarantine(fs: FileSystem, files: Files, data: pa.Buffer, begin: int, end: int) -> None:
    """Copy bytes [begin, end) of a segment to the topic's folder ``quarantine``; durable when it returns."""
    end = min(end, data.size)
    if begin >= end:
        return
    folder = files.directory / QUARANTINE
    if not folder.exists():
        fs.make_directory(folder)
        fs.sync_directory(files.directory)
    path = folder / f"{files.first:0{segment.DIGITS}}-{begin}-{end}"
    copy = memoryview(data)[begin:end]
    if not path.exists() or fs.read(path) != copy:
        replace(fs, path, copy)


def corrupt_gaps(bad: index.Records, known: list[Gap]) -> list[Gap]:
    """Gaps for the records that cannot be read, where there are none yet."""
    found = []
    for record in bad:
        base, source = int(record["base"]), bytes(record["source"]).decode(errors="replace")
        for begin, end in uncovered(known, base, base + int(record["rows"])):
            counts = {source: {int(record["bucket"]): end - begin}} if source else {}
            found.append(Gap(begin, end, CORRUPT, counts))
    return found


def readable(data: pa.Buffer, records: index.Records) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of the batches that ``records`` describe can be read and are what the index says."""
    return np.array([_agrees(data, record) for record in records], np.bool_)


def _agrees(data: pa.Buffer, record: np.void) -> bool:
    try:
        message = framing.parse(data, int(record["position"]))
    except BadBatch:
        return False
    return (message.length, message.base, message.rows) == (record["length"], record["base"], record["rows"])
