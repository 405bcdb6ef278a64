"""Recovery of a topic's files when it is opened: damaged batches become gaps, all other rows stay.

Invariant: every offset below the topic's end is a row or in a gap, after any damage of the files.

Order and crashes: damaged bytes are copied to ``quarantine/`` and synced, then the data is cut, then the gap is synced,
then the index and the synced length lose the batches in it. Each step may be repeated, so a crash during recovery only
makes the next one repeat it. Start at `Recovery.run`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.counts import advance_positions
from penstock.files.file_system import FileSystem, replace_durably
from penstock.log.store import batch_copies, batch_format, index, segment, segment_files
from penstock.log.store.batch_copies import BatchCopy
from penstock.log.store.batch_format import IpcMessage
from penstock.log.store.gaps import CORRUPT, DELETED, Gap, Gaps, uncovered
from penstock.log.store.producers import Producers
from penstock.log.store.scan import Scan, scan
from penstock.log.store.segment import Segment, SegmentState
from penstock.log.store.segment_files import SegmentFiles, StartState
from penstock.records import BadBatch

QUARANTINE = "quarantine"
_LOGGER = logging.getLogger(__name__)
REWRITE_CHUNK_BYTES = 1 << 20
"""Size of one write while unsynced data is rewritten; bounds the memory of the copy."""


class Recovery:
    """A recovery of a topic's folder. Runs in the thread that opens the topic, which holds the writer's lock."""

    def __init__(self, fs: FileSystem, directory: Path, gaps: Gaps, producers: Producers) -> None:
        self._fs = fs
        self._directory = directory
        self._gaps = gaps
        self._producers = producers
        self._positions: dict[str, int] = {}
        self._last = 0

    def run(self) -> tuple[Segment, dict[str, int]]:
        """Repair the folder, then return the active segment and the stored position of each log buffer.

        The producers passed to the constructor are filled. Raises OSError and UnknownFormat.
        """
        firsts = segment_files.first_offsets(self._fs.names(self._directory))
        self._remove_leftovers(firsts)
        end = 0
        for number, first in enumerate(firsts[:-1]):
            self._add_gaps_for_missing_offsets(end, first)
            end = self._check_sealed(SegmentFiles(self._directory, first), firsts[number + 1])
        if not firsts:
            return self._start_segment(max(end, self._gap_end())), self._positions
        self._add_gaps_for_missing_offsets(end, firsts[-1])
        return self._resume(firsts), self._positions

    def _remove_leftovers(self, firsts: list[int]) -> None:
        """Remove unfinished files and the companions of removed segments."""
        # Order: indices first. The index of a segment whose data file is gone names the lost rows; the copies, which
        # have their counts, are read with it and must still exist.
        for name in sorted(self._fs.names(self._directory), key=lambda name: (not name.endswith(".index"), name)):
            path = self._directory / name
            stem, _, suffix = name.partition(".")
            if name.endswith(".tmp"):
                self._fs.remove(path)
            elif segment_files.is_companion_file(name) and int(stem) not in firsts:
                if suffix in ("index", "copies"):
                    self._add_gaps_of_removed_segment(SegmentFiles(self._directory, int(stem)))
                self._fs.remove(path)

    def _add_gaps_of_removed_segment(self, files: SegmentFiles) -> None:
        records, copies = self._index(files), batch_copies.read(files).copies
        if len(records) and index.dense(records, files.first, int(records["position"][0])):
            self._gaps.add(gaps_for_lost_records(records, self._gaps.sorted(), DELETED, copies))
        # A user removes data; a segment that has lost its index as well was lost by the disk.
        for run in batch_copies.gaps(copies, files.first, max((copy.end for copy in copies), default=0), CORRUPT):
            self._gaps.add(gaps_for_lost_rows(run.begin, run.end, self._gaps.sorted(), copies=copies))

    def _resume(self, firsts: list[int]) -> Segment:
        """Open the last segment, or start a new one behind it if its end is damaged."""
        files = SegmentFiles(self._directory, firsts[-1])
        scanned = self._scan(files, segment_files.read_synced(self._fs, files))
        self._load_positions_and_producers(files, scanned, firsts[:-1])
        records = self._repair(files, scanned)
        end, _ = index.end_of(records, files.first, scanned.preamble)
        start = max(scanned.end, self._gap_end())
        # Offsets of lost rows are in a gap and are never reused, so the next row goes to a new segment behind them.
        if start > end:
            return self._start_segment(start)
        oldest = int(records["first"][0]) if len(records) else 0
        copied = self._fs.size(files.copies)
        return Segment(self._fs, files, SegmentState(scanned.length, end, len(records), oldest, self._last, copied))

    def _start_segment(self, first: int) -> Segment:
        start_state = StartState(self._positions, self._producers.document())
        return segment.create(self._fs, self._directory, first, start_state, self._last)

    def _load_positions_and_producers(self, files: SegmentFiles, scanned: Scan, earlier: list[int]) -> None:
        """Set positions and producers as of the start of the segment, then apply its batches."""
        start_state = segment_files.read_start_state(self._fs, files)
        if start_state is None:
            _LOGGER.warning("%s is damaged or missing: all batches are read instead", files.start_state)
            self._read_all_batches(earlier)
        else:
            self._positions = dict(start_state.positions)
            with contextlib.suppress(TypeError, ValueError, AttributeError):
                self._producers.load(start_state.producers)
        self._apply_messages(scanned.messages)
        # A damaged batch was acknowledged: its frames must not be stored again, so its copy also advances the
        # position.
        for copy in batch_copies.read(files).copies if scanned.bad else ():
            advance_positions(self._positions, copy.origin)
        # The last number of a producer may be in an unreadable batch: its next number is then accepted whatever it is.
        if scanned.bad or start_state is None:
            self._producers.doubt()

    def _read_all_batches(self, firsts: list[int]) -> None:
        """Apply the batches of the given segments; slow, only if the snapshot of the last segment is lost."""
        for first in firsts:
            files = SegmentFiles(self._directory, first)
            self._apply_messages(_messages(self._fs.map(files.data), self._index(files)))

    def _apply_messages(self, messages: Iterable[IpcMessage]) -> None:
        for message in messages:
            advance_positions(self._positions, message.origin)
            self._producers.enter_all(message.producers)

    def _gap_end(self) -> int:
        return max((gap.end for gap in self._gaps.sorted()), default=0)

    def _check_sealed(self, files: SegmentFiles, following: int) -> int:
        """Return the end of a sealed segment; scan it and rebuild its index if the index does not fit the data."""
        records = self._index(files)
        # Fast path: a dense index that ends where the file ends is believed without reading the data. Damage within a
        # batch is found by its checksum when it is read.
        begin = int(records["position"][0]) if len(records) else batch_format.PREAMBLE.size
        end, length = index.end_of(records, files.first, begin)
        fits = index.dense(records, files.first, begin) and length == self._fs.size(files.data) and end <= following
        if not fits or self._lacks_rows(files, end, following):
            # All offsets up to the next segment were assigned: those without rows are bad, and their copies have their
            # counts.
            scanned = self._scan(files, (0, following))
            records = self._repair(files, scanned)
            end = scanned.end
        self._last = int(records["last"][-1]) if len(records) else self._last
        return end

    def _lacks_rows(self, files: SegmentFiles, end: int, following: int) -> bool:
        """Report whether offsets behind ``end`` belong to this sealed segment, and not to a removed one behind it.

        A disk may lose the ends of data and index together, so that they agree.
        """
        if end >= following or not any(uncovered(self._gaps.sorted(), end, following)):
            return False
        _, synced = segment_files.read_synced(self._fs, files) or (0, 0)
        copied = max((copy.end for copy in batch_copies.read(files).copies), default=0)
        return end == files.first or max(synced, copied) > end

    def _scan(self, files: SegmentFiles, claim: tuple[int, int] | None) -> Scan:
        batch_copies.restore_batches(self._fs, files)
        return scan(self._fs.map(files.data), files.first, self._index(files), claim)

    def _index(self, files: SegmentFiles) -> index.IndexRecords:
        try:
            return index.read(self._fs.read(files.index), files.fingerprint)
        except FileNotFoundError:
            return index.EMPTY

    def _repair(self, files: SegmentFiles, scanned: Scan) -> index.IndexRecords:
        """Make the files of a segment agree with its scan; return the remaining records."""
        data = self._fs.map(files.data)
        bad = scanned.records[scanned.bad]
        self._last = scanned.last or self._last
        records = scanned.records[: len(scanned.records) - scanned.lost]
        # Order: damaged bytes are copied before they are cut.
        self._preserve_damage(files, scanned, data, bad)
        self._cut_tail(files, scanned, data)
        # Order: rows of a killed writer are on the disk before copies and index name them, and before they are visible:
        # named and gone after a power cut they would be damage, and their frames would count as stored.
        self._rewrite_unsynced(files, scanned.length)
        batch_copies.rebuild(self._fs, files, data, scanned.messages, bad)
        # Order: the gaps before the index and the synced length, which name the lost batches. After a crash in between
        # the next recovery finds the same damage.
        if len(bad):
            self._gaps.add(gaps_for_lost_records(bad, self._gaps.sorted(), copies=batch_copies.read(files).copies))
        self._repair_companions(files, records, scanned)
        return records

    def _preserve_damage(self, files: SegmentFiles, scanned: Scan, data: pa.Buffer, bad: index.IndexRecords) -> None:
        """Copy the bytes of bad batches, and those behind the last readable batch, to the quarantine."""
        for begin, length in zip(bad["position"].tolist(), bad["length"].tolist(), strict=True):
            if begin < scanned.length:
                preserve_bytes(self._fs, files, data, begin, begin + length)
        # Zeros are the preallocation of a writer that was killed; there is nothing to preserve.
        if not _is_all_zeros(data[scanned.length :]):
            preserve_bytes(self._fs, files, data, scanned.length, scanned.size)

    def _cut_tail(self, files: SegmentFiles, scanned: Scan, data: pa.Buffer) -> None:
        """Cut the data behind the last readable batch, and rewrite a damaged schema message."""
        schema = bytes(memoryview(batch_format.PREAMBLE))
        damaged = scanned.preamble == len(schema) and data[: len(schema)].to_pybytes() != schema
        if scanned.size <= scanned.length and not damaged:
            return
        with contextlib.closing(self._fs.open(files.data)) as file:
            file.truncate(max(scanned.length, scanned.preamble))
            if damaged:
                file.write([schema], 0)
            file.sync()

    def _repair_companions(self, files: SegmentFiles, records: index.IndexRecords, scanned: Scan) -> None:
        """Rewrite the index and the synced length if they differ from the data."""
        expected = index.header(files.fingerprint) + records.tobytes()
        if (content := self._content(files.index)) != expected:
            # After a kill the index may lack batches, or have some that were cut: that is not damage.
            stored = index.read(content, files.fingerprint)[: len(records)]
            if index.form(content, files.fingerprint) is None or not index.valid(stored).all():
                _LOGGER.warning("%s was damaged and is rebuilt from its segment", files.index)
            replace_durably(self._fs, files.index, expected)
        end, _ = index.end_of(records, files.first, scanned.preamble)
        claim = segment_files.read_synced(self._fs, files)
        if claim != (scanned.length, end):
            if claim is None:
                _LOGGER.warning("%s was damaged or missing and is rebuilt from its segment", files.synced)
            segment_files.write_synced(self._fs, files, scanned.length, end)

    def _rewrite_unsynced(self, files: SegmentFiles, length: int) -> None:
        """Write the bytes behind the synced length again, and sync them.

        A killed writer may not have synced them, or its sync may have failed. After a failed sync their pages are
        readable and clean, but not on the disk, and an fdatasync alone would not write them.
        """
        synced, _ = segment_files.read_synced(self._fs, files) or (0, 0)
        if synced >= length:
            return
        data = self._fs.map(files.data)
        with contextlib.closing(self._fs.open(files.data)) as file:
            for position in range(synced, length, REWRITE_CHUNK_BYTES):
                file.write([data[position : min(position + REWRITE_CHUNK_BYTES, length)].to_pybytes()], position)
            file.truncate(length)
            file.sync()

    def _content(self, path: Path) -> bytes:
        try:
            return self._fs.read(path)
        except FileNotFoundError:
            return b""

    def _add_gaps_for_missing_offsets(self, begin: int, end: int) -> None:
        """Add gaps for the offsets [begin, end) that are in no segment."""
        self._gaps.add(gaps_for_lost_rows(begin, end, self._gaps.sorted(), DELETED))


def _messages(data: pa.Buffer, records: index.IndexRecords) -> Iterator[IpcMessage]:
    for position in records["position"].tolist():
        with contextlib.suppress(BadBatch):
            yield batch_format.parse(data, position)


def preserve_bytes(fs: FileSystem, files: SegmentFiles, data: pa.Buffer, begin: int, end: int) -> None:
    """Copy bytes [begin, end) of a segment to the topic's folder ``quarantine``; durable on return."""
    end = min(end, data.size)
    if begin >= end:
        return
    folder = files.directory / QUARANTINE
    if not folder.exists():
        fs.make_directory(folder)
        fs.sync_directory(files.directory)
    path = folder / f"{files.first:0{segment_files.OFFSET_DIGITS}}-{begin}-{end}"
    damaged_bytes = memoryview(data)[begin:end]
    # The name has segment and range, so a repeated recovery finds its own copy and does not fill the disk.
    if not path.exists() or fs.read(path) != damaged_bytes:
        replace_durably(fs, path, damaged_bytes)


def _is_all_zeros(data: pa.Buffer) -> bool:
    return not np.frombuffer(memoryview(data), np.uint8).any()


def gaps_for_lost_records(
    lost: index.IndexRecords, existing_gaps: list[Gap], reason: str = CORRUPT, copies: Sequence[BatchCopy] = ()
) -> list[Gap]:
    """Return gaps for the records of unreadable batches, except for offsets that are in a gap already.

    Counts come from ``copies``; without a copy, the index record names source and bucket.
    """
    gaps: list[Gap] = []
    for record in lost:
        base, source = int(record["base"]), bytes(record["source"]).decode(errors="replace")
        key = (source, int(record["bucket"])) if source else None
        gaps += gaps_for_lost_rows(base, base + int(record["rows"]), existing_gaps, reason, copies, key)
    return gaps


def gaps_for_lost_rows(
    begin: int,
    end: int,
    existing_gaps: list[Gap],
    reason: str = CORRUPT,
    copies: Sequence[BatchCopy] = (),
    key: tuple[str, int] | None = None,
) -> list[Gap]:
    """Return gaps for the rows [begin, end) that are in no gap yet.

    Counts come from ``copies``; rows without a copy are of the source and bucket ``key``.
    """
    gaps: list[Gap] = []
    for first, last in uncovered(existing_gaps, begin, end):
        parts = list(batch_copies.gaps(copies, first, last, reason))
        for start, until in list(uncovered(parts, first, last)):
            parts.append(Gap(start, until, reason, {key[0]: {key[1]: until - start}} if key else {}))
        gaps += sorted(parts, key=lambda gap: gap.begin)
    return gaps
