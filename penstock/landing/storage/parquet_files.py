"""Parquet files of a table, read and written wherever the table is."""

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

WHOLE = 4 << 20
"""A smaller file of a store is read with one request; of a larger one what is wanted."""


def parquet_file(path: TablePath, **options: Any) -> pq.ParquetFile:
    """The file, open. Raises FileNotFoundError, ArrowInvalid, OSError; of a store TablesAway and TablesRefused."""
    if isinstance(path, Path):
        return pq.ParquetFile(path, **options)
    return pq.ParquetFile(_source(path), pre_buffer=True, **options)


def read_metadata(path: TablePath) -> pq.FileMetaData:
    """What the file says of itself. Raises as ``parquet_file``."""
    with parquet_file(path) as file:
        return file.metadata


def _source(path: ObjectPath) -> Any:
    file = path.open()
    with translate_store_errors(path.root):
        size = file.size()
        return pa.BufferReader(file.read(size)) if size <= WHOLE else pa.PythonFile(_Ranges(file, path.root))


class _Ranges(io.RawIOBase):
    """A file of a store, as PythonFile wants it, with our errors."""

    def __init__(self, file: Any, root: str) -> None:
        super().__init__()
        self._file, self._root = file, root

    def read(self, length: int = -1) -> bytes:
        with translate_store_errors(self._root):
            return bytes(self._file.read(length if length >= 0 else self._file.size() - self.tell()))

    def seek(self, position: int, whence: int = 0) -> int:
        return int(self._file.seek(position, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class NewParquet:
    """A file that is written into ``sink`` and is there once it is finished."""

    def __init__(self, path: TablePath) -> None:
        self._path = path
        self.sink: Any = path
        if isinstance(path, Path):
            make_folder(path.parent)
        else:
            self.sink = tempfile.TemporaryFile()  # noqa: SIM115  it goes with this object

    def finish(self) -> int:
        """Have it on the disk, or in the store; its size."""
        if isinstance(self._path, Path):
            sync_written([self._path])
            return self._path.stat().st_size
        with self.sink:
            size = int(self.sink.seek(0, 2))
            self.sink.seek(0)
            self._path.upload(self.sink)
        return size

    def discard(self) -> None:
        """Leave nothing."""
        self._path.unlink(missing_ok=True) if isinstance(self._path, Path) else self.sink.close()
