"""Opening a topic after anything: what can be saved is saved, what cannot becomes a gap, nothing is deleted unseen.

Every step may be repeated: bytes go to ``quarantine/`` and are synced, then the gap is synced, then files are cut.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.counts import Origin
from penstock.files.file_system import FileSystem, replace_durably
from penstock.log.store import batch_copies, batch_format, index, segment
from penstock.log.store.batch_copies import BatchCopy
from penstock.log.store.batch_format import Message
from penstock.log.store.gaps import CORRUPT, DELETED, Gap, Gaps, uncovered
from penstock.log.store.producers import Producers
from penstock.log.store.scan import Scan, scan
from penstock.log.store.segment import Segment, SegmentFiles, SegmentState, StartState
from penstock.records import BadBatch

QUARANTINE = "quarantine"
COPIED = 1 << 20
"""Bytes written again at once."""


class Recovery:
    """Brings a topic's folder in order and opens its active segment."""

    def __init__(self, fs: FileSystem, directory: Path, gaps: Gaps, producers: Producers) -> None:
        self._fs = fs
        self._directory = directory
        self._gaps = gaps
        self._producers = producers
        self._positions: dict[str, int] = {}
        self._last = 0

    def run(self) -> tuple[Segment, dict[str, int]]:
        """The active segment and the position up to which each log buffer is stored; the producers are entered.

        Raises OSError, and UnknownFormat.
        """
        firsts = segment.first_offsets(self._fs.names(self._directory))
        self._tidy(firsts)
        end = 0
        for number, first in enumerate(firsts[:-1]):
            self._enter_missing(end, first)
            end = self._check_sealed(SegmentFiles(self._directory, first), firsts[number + 1])
        if not firsts:
            return self._start(max(end, self._gap_end())), self._positions
        self._enter_missing(end, firsts[-1])
        return self._resume(firsts), self._positions

    def _tidy(self, firsts: list[int]) -> None:
        """Remove what was never finished; the index of a segment that is gone tells what was in it."""
        for name in sorted(self._fs.names(self._directory), key=lambda name: (not name.endswith(".index"), name)):
            path = self._directory / name
            stem, dot, suffix = name.partition(".")
            if name.endswith(".tmp"):
                self._fs.remove(path)
            elif segment.is_companion_file(name) and int(stem) not in firsts:
                if dot + suffix == ".index":
                    self._enter_lost(path, int(stem))
                self._fs.remove(path)

    def _enter_lost(self, path: Path, first: int) -> None:
        records = index.read(self._fs.read(path), SegmentFiles(self._directory, first).fingerprint)
        if len(records) and index.dense(records, first, int(records["position"][0])):
            copies = batch_copies.read(SegmentFiles(self._directory, first)).copies
            self._gaps.add(gaps_for_lost_records(records, self._gaps.all(), DELETED, copies))

    def _resume(self, firsts: list[int]) -> Segment:
        """Open the last segment, or a new one behind it when its end is bad."""
        files = SegmentFiles(self._directory, firsts[-1])
        found = self._scan(files, segment.read_synced(self._fs, files))
        self._remember(files, found, firsts[:-1])
        kept = self._repair(files, found)
        end, _ = index.end_of(kept, files.first, found.preamble)
        start = max(found.end, self._gap_end())
        if start > end:
            return self._start(start)
        oldest = int(kept["first"][0]) if len(kept) else 0
        copied = self._fs.size(files.copies)
        return Segment(self._fs, files, SegmentState(found.length, end, len(kept), oldest, self._last, copied))

    def _start(self, first: int) -> Segment:
        known = StartState(self._positions, self._producers.document())
        return segment.create(self._fs, self._directory, first, known, self._last)

    def _remember(self, files: SegmentFiles, found: Scan, earlier: list[int]) -> None:
        """Positions and producers, as of the segment's beginning and from its batches."""
        known = segment.read_start_state(self._fs, files)
        if known is None:
            self._walk(earlier)
        else:
            self._positions = dict(known.positions)
            with contextlib.suppress(TypeError, ValueError, AttributeError):
                self._producers.load(known.producers)
        self._advance(found.messages)
        for copy in batch_copies.read(files).copies if found.bad else ():  # a damaged one was stored all the same
            self._reach(copy.origin)
        if found.bad or known is None:  # the last number of a producer may stand in what cannot be read
            self._producers.doubt()

    def _walk(self, firsts: list[int]) -> None:
        """Positions and producers from all batches of the given segments."""
        for first in firsts:
            files = SegmentFiles(self._directory, first)
            self._advance(_messages(self._fs.map(files.data), self._index(files)))

    def _advance(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._reach(message.origin)
            self._producers.enter_all(message.producers)

    def _reach(self, origin: Origin) -> None:
        if origin.buffer:
            self._positions[origin.buffer] = max(origin.end, self._positions.get(origin.buffer, 0))

    def _gap_end(self) -> int:
        return max((gap.end for gap in self._gaps.all()), default=0)

    def _check_sealed(self, files: SegmentFiles, following: int) -> int:
        """The end of a sealed segment, its index rebuilt when its shape is wrong."""
        records = self._index(files)
        begin = int(records["position"][0]) if len(records) else batch_format.PREAMBLE.size
        end, length = index.end_of(records, files.first, begin)
        if not index.dense(records, files.first, begin) or length != self._fs.size(files.data) or end > following:
            found = self._scan(files, None)
            records = self._repair(files, found)
            end = found.end
            self._enter_missing(end, following, CORRUPT)
        self._last = int(records["last"][-1]) if len(records) else self._last
        return end

    def _scan(self, files: SegmentFiles, claim: tuple[int, int] | None) -> Scan:
        batch_copies.restore_batches(self._fs, files)
        return scan(self._fs.map(files.data), files.first, self._index(files), claim)

    def _index(self, files: SegmentFiles) -> index.IndexRecords:
        try:
            return index.read(self._fs.read(files.index), files.fingerprint)
        except FileNotFoundError:
            return index.EMPTY

    def _repair(self, files: SegmentFiles, found: Scan) -> index.IndexRecords:
        """Make the files of a segment agree with what was found in it; the records that stay."""
        data = self._fs.map(files.data)
        bad = found.records[found.bad]
        for begin, length in zip(bad["position"].tolist(), bad["length"].tolist(), strict=True):
            if begin < found.length:
                preserve_bytes(self._fs, files, data, begin, begin + length)
        if not _is_room(data[found.length :]):
            preserve_bytes(self._fs, files, data, found.length, found.size)
        if len(bad):
            self._gaps.add(gaps_for_lost_records(bad, self._gaps.all(), copies=batch_copies.read(files).copies))
        self._last = found.last or self._last
        kept = found.records[: len(found.records) - found.lost]
        batch_copies.rebuild(self._fs, files, data, found.messages, bad)
        self._cut(files, found, data)
        self._restore(files, kept, found)
        return kept

    def _cut(self, files: SegmentFiles, found: Scan, data: pa.Buffer) -> None:
        """Cut the data behind the last readable batch; a damaged schema message is written anew."""
        schema = bytes(memoryview(batch_format.PREAMBLE))
        damaged = found.preamble == len(schema) and data[: len(schema)].to_pybytes() != schema
        if found.size <= found.length and not damaged:
            return
        with contextlib.closing(self._fs.open(files.data)) as file:
            file.truncate(max(found.length, found.preamble))
            if damaged:
                file.write([schema], 0)
            file.sync()

    def _restore(self, files: SegmentFiles, kept: index.IndexRecords, found: Scan) -> None:
        """Rewrite index and synced length where they are not what they should be."""
        expected = index.header(fingerprint=files.fingerprint) + kept.tobytes()
        if not self._holds(files.index, expected):
            replace_durably(self._fs, files.index, expected)
        end, _ = index.end_of(kept, files.first, found.preamble)
        claim = segment.read_synced(self._fs, files)
        if claim != (found.length, end):
            self._sync_again(files, claim[0] if claim else 0, found.length)
            segment.write_synced(self._fs, files, found.length, end)

    def _sync_again(self, files: SegmentFiles, synced: int, length: int) -> None:
        """Write again what is not known to be synced, and sync it.

        A writer that was killed may not have come to it, or have been told that it failed: then the pages can be read
        and are not on the disk, and no later sync brings them there.
        """
        data = self._fs.map(files.data)
        with contextlib.closing(self._fs.open(files.data)) as file:
            for position in range(min(synced, length), length, COPIED):
                file.write([data[position : min(position + COPIED, length)].to_pybytes()], position)
            file.truncate(length)
            file.sync()

    def _holds(self, path: Path, data: bytes) -> bool:
        try:
            return self._fs.read(path) == data
        except FileNotFoundError:
            return False

    def _enter_missing(self, begin: int, end: int, reason: str = DELETED) -> None:
        """Offsets that no segment has become a gap."""
        parts = list(uncovered(self._gaps.all(), begin, end))
        self._gaps.add([Gap(b, e, reason) for b, e in parts])


def _messages(data: pa.Buffer, records: index.IndexRecords) -> Iterator[Message]:
    for position in records["position"].tolist():
        with contextlib.suppress(BadBatch):
            yield batch_format.parse(data, position)


def preserve_bytes(fs: FileSystem, files: SegmentFiles, data: pa.Buffer, begin: int, end: int) -> None:
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
        replace_durably(fs, path, copy)


def _is_room(data: pa.Buffer) -> bool:
    return not np.frombuffer(memoryview(data), np.uint8).any()


def gaps_for_lost_records(
    lost: index.IndexRecords, known: list[Gap], reason: str = CORRUPT, copies: Sequence[BatchCopy] = ()
) -> list[Gap]:
    """Gaps for the records of what cannot be read, where there are none yet; with the counts that ``copies`` tell."""
    found: list[Gap] = []
    for record in lost:
        base, source = int(record["base"]), bytes(record["source"]).decode(errors="replace")
        for begin, end in uncovered(known, base, base + int(record["rows"])):
            told = list(batch_copies.gaps(copies, begin, end, reason))
            for at, until in uncovered(told, begin, end):
                counts = {source: {int(record["bucket"]): until - at}} if source else {}
                told.append(Gap(at, until, reason, counts))
            found += sorted(told, key=lambda gap: gap.begin)
    return found
