"""Paths in an object store, through delta-rs: the counterpart of ``pathlib.Path`` for tables at a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.landing.storage.object_errors import TablesRefused, translate_store_errors

if TYPE_CHECKING:
    from deltalake._internal import DeltaFileSystemHandler

_DECODED = re.compile(r"%[0-9A-Fa-f]{2}|\\")
"""Parts of a folder's name that delta-rs reads as another character."""
DEFAULTS = {"connect_timeout": "5s", "timeout": "30s", "max_retries": "3", "retry_timeout": "30s"}
"""Options that make an unreachable store fail within seconds: the retries of delta-rs itself take minutes."""
CHUNK_BYTES = 8 << 20
"""Limit: bytes in memory during an upload."""
S3_ARGUMENTS = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "region": "region",
    "default_region": "region",
    "endpoint_url": "endpoint_override",
    "endpoint": "endpoint_override",
}
"""PyArrow's names of the options of delta-rs, which may begin with ``aws_``."""


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """The path ``name`` below ``root``, a URL, with ``options`` of delta-rs for the store.

    ``state`` is the folder of the pipeline's state; only a path with it may be written. All methods raise TablesAway
    and TablesRefused.
    """

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    state: Path | None = field(default=None, compare=False)
    name: str = ""

    def __truediv__(self, name: str) -> ObjectPath:
        return replace(self, name=f"{self.name}/{name}".lstrip("/"))

    def __str__(self) -> str:
        return f"{self.root}/{self.name}".rstrip("/")

    def storage_options(self) -> dict[str, str]:
        """Return the options for delta-rs, with defaults."""
        return {**DEFAULTS, **self.options}

    def exists(self) -> bool:
        """Report whether the file exists."""
        with translate_store_errors(self.root):
            return bool(self._store.get_file_info([self.name])[0].is_file)

    def names(self) -> list[str]:
        """Return the names of the files in this folder, not of those in its folders; none if it does not exist."""
        with translate_store_errors(self.root):
            found = self._store.get_file_info_selector(self.name, True, False)
            return [str(info.path).rpartition("/")[2] for info in found if info.is_file]

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file; a store accepts the removal of a missing file."""
        del missing_ok
        with translate_store_errors(self.root):
            self._store.delete_file(self.name)

    def read_text(self) -> str:
        """Return the whole file. Raises FileNotFoundError."""
        with translate_store_errors(self.root):
            file = self._store.open_input_file(self.name)
            return file.read(file.size()).decode()

    def open(self) -> Any:
        """Open the file for reading, with ``read``, ``seek``, ``tell`` and ``size``. Raises FileNotFoundError."""
        with translate_store_errors(self.root):
            return self._store.open_input_file(self.name)

    def upload(self, source: Any) -> None:
        """Write all of a Python file here; readers see it only when it is complete."""
        with translate_store_errors(self.root):
            sink: Any = self._store.open_output_stream(self.name, None)
            while chunk := source.read(CHUNK_BYTES):
                sink.write(chunk)
            sink.close()

    @property
    def _store(self) -> DeltaFileSystemHandler:
        return _store(self.root, tuple(sorted(self.storage_options().items())))


TablePath = Path | ObjectPath


@lru_cache(maxsize=16)
def _store(root: str, options: tuple[tuple[str, str], ...]) -> DeltaFileSystemHandler:
    """Return the connection to a store, one for each root and options."""
    # Workaround: the class of deltalake.fs cannot write the buffers that Arrow passes. Imported late: executors of a
    # folder do without it.
    from deltalake._internal import DeltaFileSystemHandler

    return DeltaFileSystemHandler(root, dict(options))


def translate_errors_at(path: TablePath) -> AbstractContextManager[None]:
    """Return a context that translates errors of a store; for a folder it does nothing."""
    return translate_store_errors(path.root) if isinstance(path, ObjectPath) else nullcontext()


def delta_rs_options(path: TablePath) -> dict[str, Any]:
    """Return the arguments of deltalake's functions that name the store; none for a folder.

    Raises TablesRefused for a folder whose name delta-rs reads as another one.
    """
    if isinstance(path, ObjectPath):
        return {"storage_options": path.storage_options()}
    # Workaround: delta-rs 1.6 decodes a folder's path once too often, and would read and write another folder.
    if match := _DECODED.search(str(path.absolute())):
        raise TablesRefused(
            f"{path}: Delta's library reads {match[0]} in a folder's name as another character: choose a data_dir and "
            "pipeline.tables without it"
        )
    return {}


def arrow_file_system(path: ObjectPath) -> tuple[Any, str]:
    """Return a file system of PyArrow for a store, and the prefix of names in it."""
    if path.root.startswith("s3://"):
        # Workaround: with delta-rs's file system a thread that closes a file may meet an interpreter that has ended,
        # and abort. So S3 uses PyArrow's own.
        from pyarrow.fs import S3FileSystem

        # delta-rs reads ``%20`` in a URL as a blank, so the files are there.
        return S3FileSystem(**s3_arguments(path.options)), unquote(path.root.removeprefix("s3://")) + "/"
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(path.root, path.storage_options())), ""


def s3_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options as arguments of S3FileSystem; missing ones come from the environment, as in delta-rs."""
    arguments = {
        S3_ARGUMENTS[option]: value
        for name, value in options.items()
        if (option := name.lower().removeprefix("aws_")) in S3_ARGUMENTS
    }
    return {**arguments, "connect_timeout": 5, "request_timeout": 30}
