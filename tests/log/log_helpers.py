"""Helpers for tests of the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from penstock.counts import Origin
from penstock.files.file_system import SYSTEM_CLOCK, Clock, File, FileSystem, SystemFile, SystemFiles
from penstock.log import Log, Topic, TopicReader, TopicSettings
from penstock.log.store.segment_files import SegmentFiles, first_offsets
from penstock.records import body

BUCKET = 1_700_000_040


class UnsyncedFile(SystemFile):
    def sync(self) -> None:
        pass


class UnsyncedFiles(SystemFiles):
    """The operating system's files without waiting for the disk, for tests that do not simulate power cuts."""

    def open(self, path: Path, *, create: bool = False) -> File:
        return UnsyncedFile(path, create)

    def sync_directory(self, path: Path) -> None:
        pass


UNSYNCED = UnsyncedFiles()


def origin(source: str = "events", **more: object) -> Origin:
    return Origin(**{"source": source, "bucket": BUCKET, "first": 5, "last": 9, **more})


def rows(*payloads: bytes) -> pa.RecordBatch:
    return body(list(payloads))


@contextmanager
def opened(
    folder: Path,
    name: str = "t",
    settings: TopicSettings | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    fs: FileSystem = UNSYNCED,
) -> Iterator[Topic]:
    """Open a topic in its own log."""
    log = Log(folder, settings, clock=clock, fs=fs, committers=1)
    try:
        yield log.topic(name, create=True, internal=True)
    finally:
        log.close()


def fill(topic: Topic, *batches: list[bytes], source: str = "events") -> None:
    """Append each batch separately."""
    for payloads in batches:
        topic.append(rows(*payloads), origin(source)).result(10)


def payloads(source: Topic | TopicReader, offset: int = 0) -> list[bytes]:
    reader = source if isinstance(source, TopicReader) else source.reader()
    return [value for stored in reader.read(offset) for value in stored.batch.column("payload").to_pylist()]


def offsets(source: Topic | TopicReader) -> list[int]:
    reader = source if isinstance(source, TopicReader) else source.reader()
    return [value for stored in reader.read(0) for value in stored.batch.column("offset").to_pylist()]


def last_files(path: Path) -> SegmentFiles:
    """Return the files of the active segment of the topic in ``path``."""
    return SegmentFiles(path, first_offsets(p.name for p in path.iterdir())[-1])


def flip(path: Path, position: int, mask: int = 1) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        old = file.read(1)[0]
        file.seek(position)
        file.write(bytes([old ^ mask]))
