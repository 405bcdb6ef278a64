"""PyIceberg's files on a local disk, synced when they are closed.

Order: metadata before the catalog's pointer to it. PyIceberg syncs nothing, so a power cut could leave a pointer to an
empty file.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from penstock.files.file_system import sync_written


class SyncedFileIO(PyArrowFileIO):
    """PyIceberg's own access to files, for a catalog's property ``py-io-impl``."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return a new file. Only local paths have a file that can be synced."""
        file = super().new_output(location)
        scheme, server, path = self.parse_location(location, self.properties)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, server)) if scheme == "file" else file


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        return _SyncedStream(super().create(overwrite), Path(self._path))


class _SyncedStream:
    def __init__(self, stream: OutputStream, path: Path) -> None:
        self._stream, self._path = stream, path
        self.tell = stream.tell

    def write(self, b: bytes) -> int:
        return self._stream.write(b)

    def close(self) -> None:
        self._stream.close()
        sync_written([self._path])

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
