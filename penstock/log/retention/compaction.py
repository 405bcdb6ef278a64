"""Compaction: rewrites a sealed segment in larger, optionally compressed batches.

Rows, origins and producers' numbers stay the same.

Invariant: an index never describes other data than the file next to it. Therefore the index is removed before the data
file is replaced, and the new index is put in place last. Without an index, also after a crash in between, readers scan
the data. Readers that have the old files open continue with them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.files.file_system import Bytes, File, FileSystem
from penstock.log.commit.batching import join_origins
from penstock.log.read.segment_view import SegmentView
from penstock.log.retention.dropping import size_of, view_of
from penstock.log.settings import MERGE_BYTES, MERGE_ROWS, Compression
from penstock.log.store import batch_format, index
from penstock.log.store.batch_format import IpcMessage
from penstock.log.store.gaps import Gap, uncovered
from penstock.log.store.segment_files import SegmentFiles
from penstock.records import concatenated

_FORM_OF_COMPRESSION = {"none": index.MERGED, "zstd": index.ZSTD}


def is_compacted(fs: FileSystem, files: SegmentFiles, compression: Compression) -> bool:
    """Report whether a sealed segment has its final form."""
    with contextlib.suppress(FileNotFoundError):
        return index.form(fs.read(files.index), files.fingerprint) == _FORM_OF_COMPRESSION[compression]
    return False


def compact(fs: FileSystem, files: SegmentFiles, compression: Compression, gaps: Sequence[Gap]) -> tuple[int, int]:
    """Rewrite a sealed segment and return its size on the disk before and after.

    Leaves out batches that ``gaps`` (all of the topic) cover, and damaged batches, which must be gaps already. Raises
    OSError, and then nothing has changed.
    """
    before = size_of(files)
    view = view_of(files)
    data, records = (path.with_name(path.name + ".tmp") for path in (files.data, files.index))
    codec = None if compression == "none" else compression
    try:
        with _new_file(fs, data) as file:
            packed = index.pack(_Rewriting(view, gaps, file, codec).run())
        with _new_file(fs, records) as file:
            file.write([index.header(files.fingerprint, _FORM_OF_COMPRESSION[compression]) + packed.tobytes()], 0)
        _replace_files(fs, files, data, records)
    except OSError:
        # The temporary files are useless now; a file that cannot be removed is removed when the topic is opened.
        for path in (data, records):
            with contextlib.suppress(OSError):
                fs.remove(path)
        raise
    return before, size_of(files)


@contextlib.contextmanager
def _new_file(fs: FileSystem, path: Path) -> Iterator[File]:
    """Create a file, and sync it when the block ends."""
    with contextlib.closing(fs.open(path, create=True)) as file:
        file.truncate(0)
        yield file
        file.sync()


def _replace_files(fs: FileSystem, files: SegmentFiles, data: Path, records: Path) -> None:
    # Order: remove the index, sync, replace the data, put the new index in place, sync. Crash: without an index the
    # data are scanned.
    for path in (files.index, *((files.copies,) if files.is_internal else ())):
        # The copies of an internal topic name positions of the old data file.
        with contextlib.suppress(FileNotFoundError):
            fs.remove(path)
    fs.sync_directory(files.directory)
    fs.rename(data, files.data)
    fs.rename(records, files.index)
    fs.sync_directory(files.directory)


@dataclass(slots=True)
class _Run:
    """Consecutive batches that become a single batch."""

    messages: list[IpcMessage] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def accepts(self, message: IpcMessage, batch: pa.RecordBatch) -> bool:
        """Report whether a batch has the same origin and fits."""
        first_origin, origin = self.messages[0].origin, message.origin
        fits = self.rows + message.rows <= MERGE_ROWS and self.size + batch.nbytes <= MERGE_BYTES
        return fits and (first_origin.shared, first_origin.buffer) == (origin.shared, origin.buffer)

    def add(self, message: IpcMessage, batch: pa.RecordBatch) -> None:
        self.messages.append(message)
        self.batches.append(batch)
        self.rows += message.rows
        self.size += batch.nbytes


@dataclass(slots=True)
class _Rewriting:
    """State of a rewrite: the new file, the position in it, and its index records."""

    view: SegmentView
    gaps: Sequence[Gap]
    file: File
    compression: Literal["zstd"] | None
    position: int = 0
    records: list[tuple[Any, ...]] = field(default_factory=list)

    def run(self) -> list[tuple[Any, ...]]:
        """Write the new data and return its index records, still without their checksums."""
        self._write((batch_format.PREAMBLE,))
        for run in _runs(self.view, self.gaps):
            if isinstance(run, _Run):
                self._write_run(run)
            else:
                # A damaged batch has no bytes in the new file: its record has length 0 and only preserves the
                # numbering.
                base, rows, last = (int(run[name]) for name in ("base", "rows", "last"))
                self.records.append(index.bad_record(base, rows, self.position, 0, last))
        return self.records

    def _write_run(self, run: _Run) -> None:
        batch = concatenated(run.batches)
        origin = join_origins([message.origin for message in run.messages])
        base, times = run.messages[0].base, (run.messages[0].first, run.messages[-1].last)
        producers = tuple(entry for message in run.messages for entry in message.producers)
        document = batch_format.document(origin, base, run.rows, times, self.position, producers)
        parts, crc = batch_format.frame(batch, document, self.compression)
        length = sum(map(len, parts))
        message = IpcMessage(self.position, length, base, run.rows, *times, crc, origin, producers)
        self.records.append(index.record(message))
        self._write(parts)

    def _write(self, parts: tuple[Bytes, ...]) -> None:
        self.position += self.file.write(parts, self.position)


def _runs(view: SegmentView, gaps: Sequence[Gap]) -> Iterator[_Run | np.void]:
    """Yield runs of batches of one origin, and the records of damaged batches.

    Crash: a deletion may have stored its gap and not removed its batches. Such batches must not join others, because
    their counts are in the gap already.
    """
    run = _Run()
    for record in view.records:
        begin, end = int(record["base"]), int(record["base"] + record["rows"])
        message = view.message(record) if any(uncovered(gaps, begin, end)) else None
        loaded = (message, batch_format.load(view.data, message)) if message is not None else None
        if run.messages and (loaded is None or not run.accepts(*loaded)):
            yield run
            run = _Run()
        if loaded is None:
            yield record
        else:
            run.add(*loaded)
    if run.messages:
        yield run
