"""Parquet files of a table, read and written in a folder or an object store."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.files.file_system import make_folder, sync_written
from penstock.landing.storage.object_errors import translate_store_errors
from penstock.landing.storage.object_path import ObjectPath, TablePath

WHOLE_FILE_BYTES = 4 << 20
"""A file of a store up to this size is read with one request; of a larger file only the requested ranges are read."""


def parquet_file(path: TablePath, **options: Any) -> pq.ParquetFile:
    """Open the file. Raises FileNotFoundError, ArrowInvalid, OSError; of a store TablesAway and TablesRefused."""
    if isinstance(path, Path):
        return pq.ParquetFile(path, **options)
    return pq.ParquetFile(_source(path), pre_buffer=True, **options)


def read_metadata(path: TablePath) -> pq.FileMetaData:
    """Return the file's footer. Raises like ``parquet_file``."""
    with parquet_file(path) as file:
        return file.metadata


def _source(path: ObjectPath) -> Any:
    file = path.open()
    with translate_store_errors(path.root):
        size = file.size()
        return (
            pa.BufferReader(file.read(size)) if size <= WHOLE_FILE_BYTES else pa.PythonFile(_StoreFile(file, path.root))
        )


class _StoreFile(io.RawIOBase):
    """A file of a store as PyArrow's PythonFile expects it, with errors of this package."""

    def __init__(self, file: Any, root: str) -> None:
        super().__init__()
        self._file, self._root = file, root

    def read(self, length: int = -1) -> bytes:
        with translate_store_errors(self._root):
            # RawIOBase reads to the end with a length of -1; the store's file does not.
            return bytes(self._file.read(length if length >= 0 else self._file.size() - self.tell()))

    def seek(self, position: int, whence: int = 0) -> int:
        return int(self._file.seek(position, whence))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class NewParquet:
    """A new file: written into ``sink``, and complete after ``finish``."""

    def __init__(self, path: TablePath) -> None:
        self._path = path
        self.sink: Any = path
        if isinstance(path, Path):
            make_folder(path.parent)
        else:
            # A store has no unfinished files: the whole file is uploaded at once.
            self.sink = tempfile.TemporaryFile()  # noqa: SIM115  closed by finish or discard

    def finish(self) -> int:
        """Sync the file to the disk, or upload it; return its size in bytes."""
        if isinstance(self._path, Path):
            sync_written([self._path])
            return self._path.stat().st_size
        # Crash: nothing is in the store before the upload ends.
        with self.sink:
            size = int(self.sink.seek(0, 2))
            self.sink.seek(0)
            self._path.upload(self.sink)
        return size

    def discard(self) -> None:
        """Remove an unfinished file."""
        self._path.unlink(missing_ok=True) if isinstance(self._path, Path) else self.sink.close()
