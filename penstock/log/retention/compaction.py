"""Rewriting a sealed segment in larger batches, compressed where that is wanted: the same rows, origins and numbers.

Readers may be at work: those that have the old files open go on with them. The index goes before the data are
exchanged and comes back after, so that an index never stands beside data that it does not describe; between, and
after a crash between, the data are read themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.counts import Origin
from penstock.files.file_system import Bytes, File, FileSystem
from penstock.log.commit.batching import joined
from penstock.log.read.segment_view import SegmentView
from penstock.log.retention.dropping import size_of, view_of
from penstock.log.settings import MERGE_BYTES, MERGE_ROWS, Compression
from penstock.log.store import batch_format, index
from penstock.log.store.batch_format import Message
from penstock.log.store.gaps import Gap, uncovered
from penstock.log.store.segment import Files
from penstock.records import concatenated

_FORMS = {"none": index.MERGED, "zstd": index.ZSTD}


def is_compacted(fs: FileSystem, files: Files, compression: Compression) -> bool:
    """Whether a sealed segment has its final form already."""
    with contextlib.suppress(FileNotFoundError):
        return index.form(fs.read(files.index), files.mark) == _FORMS[compression]
    return False


def compact(fs: FileSystem, files: Files, compression: Compression, gaps: Sequence[Gap]) -> tuple[int, int]:
    """Rewrite a sealed segment; its size on the disk before and after.

    Batches that ``gaps`` (all of the topic) cover are left out, and those that cannot be read, which must be gaps
    already. Raises OSError, and then nothing has changed.
    """
    before = size_of(files)
    view = view_of(files)
    data, records = (path.with_name(path.name + ".tmp") for path in (files.data, files.index))
    codec = None if compression == "none" else compression
    try:
        with _made(fs, data) as file:
            packed = index.pack(_Rewriting(view, gaps, file, codec).run())
        with _made(fs, records) as file:
            file.write([index.header(_FORMS[compression], files.mark) + packed.tobytes()], 0)
        _exchange(fs, files, data, records)
    except OSError:
        for path in (data, records):
            with contextlib.suppress(OSError):
                fs.remove(path)
        raise
    return before, size_of(files)


@contextlib.contextmanager
def _made(fs: FileSystem, path: Path) -> Iterator[File]:
    """A new file, synced at the end."""
    with contextlib.closing(fs.open(path, create=True)) as file:
        file.truncate(0)
        yield file
        file.sync()


def _exchange(fs: FileSystem, files: Files, data: Path, records: Path) -> None:
    for path in (files.index, *((files.copies,) if files.is_internal else ())):  # its batches lie elsewhere then
        with contextlib.suppress(FileNotFoundError):
            fs.remove(path)
    fs.sync_directory(files.directory)
    fs.rename(data, files.data)
    fs.rename(records, files.index)
    fs.sync_directory(files.directory)


@dataclass(slots=True)
class _Run:
    """Batches that follow each other and become one."""

    messages: list[Message] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def takes(self, message: Message, batch: pa.RecordBatch) -> bool:
        """Whether a batch has the same origin and is not too much."""
        mine, other = self.messages[0].origin, message.origin
        fits = self.rows + message.rows <= MERGE_ROWS and self.size + batch.nbytes <= MERGE_BYTES
        return fits and _key(mine) == _key(other)

    def add(self, message: Message, batch: pa.RecordBatch) -> None:
        self.messages.append(message)
        self.batches.append(batch)
        self.rows += message.rows
        self.size += batch.nbytes


def _key(origin: Origin) -> tuple[object, ...]:
    return origin.source, origin.bucket, origin.codec, origin.buffer


@dataclass(slots=True)
class _Rewriting:
    """One pass over a segment."""

    view: SegmentView
    gaps: Sequence[Gap]
    file: File
    compression: Literal["zstd"] | None
    position: int = 0
    records: list[tuple[Any, ...]] = field(default_factory=list)

    def run(self) -> list[tuple[Any, ...]]:
        """Write the new data; its index records, still without their checks."""
        self._write((batch_format.PREAMBLE,))
        for run in _runs(self.view, self.gaps):
            if isinstance(run, _Run):
                self._add(run)
            else:
                base, rows, last = (int(run[name]) for name in ("base", "rows", "last"))
                self.records.append(index.bad_record(base, rows, self.position, 0, last))
        return self.records

    def _add(self, run: _Run) -> None:
        batch = concatenated(run.batches)
        origin = joined([message.origin for message in run.messages])
        base, times = run.messages[0].base, (run.messages[0].first, run.messages[-1].last)
        numbers = tuple(entry for message in run.messages for entry in message.producers)
        told = batch_format.document(origin, base, run.rows, times, self.position, numbers)
        framed = batch_format.frame(batch, told, self.compression)
        message = Message(self.position, framed.length, base, run.rows, *times, framed.crc, origin, numbers)
        self.records.append(index.record(message))
        self._write(framed.parts)

    def _write(self, parts: tuple[Bytes, ...]) -> None:
        self.position += self.file.write(parts, self.position)


def _runs(view: SegmentView, gaps: Sequence[Gap]) -> Iterator[_Run | np.void]:
    """Runs of batches of one origin, and the records of what cannot be read any more.

    What a crash left behind of batches that were dropped must not join others: its counts stand in the gap.
    """
    run = _Run()
    for record in view.records:
        begin, end = int(record["base"]), int(record["base"] + record["rows"])
        message = view.message(record) if any(uncovered(gaps, begin, end)) else None
        loaded = (message, batch_format.load(view.data, message)) if message is not None else None
        if run.messages and (loaded is None or not run.takes(*loaded)):
            yield run
            run = _Run()
        if loaded is None:
            yield record
        else:
            run.add(*loaded)
    if run.messages:
        yield run
