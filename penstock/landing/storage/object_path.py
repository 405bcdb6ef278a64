"""A path in an object store, through delta-rs: what ``pathlib.Path`` is for a folder of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.landing.storage.object_errors import translate_store_errors

if TYPE_CHECKING:
    from deltalake._internal import DeltaFileSystemHandler

DEFAULTS = {"connect_timeout": "5s", "timeout": "30s", "max_retries": "3", "retry_timeout": "30s"}
"""So that whoever waits for a store that is away is told soon; the retries of delta-rs itself take minutes."""
CHUNK_BYTES = 8 << 20
S3 = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "region": "region",
    "default_region": "region",
    "endpoint_url": "endpoint_override",
    "endpoint": "endpoint_override",
}
"""What PyArrow calls the options of delta-rs, which may begin with ``aws_``."""


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """``name`` below ``root``, a URL; ``options``: delta-rs's of the store; ``state``: the folder of what the pipeline
    that writes there keeps, for whoever may write. All methods raise TablesAway and TablesRefused.
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
        """As delta-rs takes them."""
        return {**DEFAULTS, **self.options}

    def exists(self) -> bool:
        """Whether there is such a file."""
        with translate_store_errors(self.root):
            return bool(self._store.get_file_info([self.name])[0].is_file)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove it; a store does not mind if it is not there."""
        del missing_ok
        with translate_store_errors(self.root):
            self._store.delete_file(self.name)

    def read_text(self) -> str:
        """The whole file. Raises FileNotFoundError."""
        with translate_store_errors(self.root):
            file = self._store.open_input_file(self.name)
            return file.read(file.size()).decode()

    def open(self) -> Any:
        """The file for reading, with ``read``, ``seek``, ``tell`` and ``size``. Raises FileNotFoundError."""
        with translate_store_errors(self.root):
            return self._store.open_input_file(self.name)

    def upload(self, source: Any) -> None:
        """Make it hold all of a file of Python's; nobody sees it before it is whole."""
        with translate_store_errors(self.root):
            sink: Any = self._store.open_output_stream(self.name, None)
            while data := source.read(CHUNK_BYTES):
                sink.write(data)
            sink.close()

    @property
    def _store(self) -> DeltaFileSystemHandler:
        return _store(self.root, tuple(sorted(self.storage_options().items())))


TablePath = Path | ObjectPath


@lru_cache(maxsize=16)
def _store(root: str, options: tuple[tuple[str, str], ...]) -> DeltaFileSystemHandler:
    """The one of deltalake.fs cannot write what Arrow gives it."""
    from deltalake._internal import DeltaFileSystemHandler  # on an executor it is needed only here

    return DeltaFileSystemHandler(root, dict(options))


def translate_errors_at(path: TablePath) -> AbstractContextManager[None]:
    """``asking``, where it is a store that is asked."""
    return translate_store_errors(path.root) if isinstance(path, ObjectPath) else nullcontext()


def delta_rs_options(path: TablePath) -> dict[str, Any]:
    """A folder, for the functions of deltalake that take ``table_uri`` first: what they take besides."""
    return {"storage_options": path.storage_options()} if isinstance(path, ObjectPath) else {}


def arrow_file_system(path: ObjectPath) -> tuple[Any, str]:
    """For S3 PyArrow's own, else delta-rs's; and what the names of files in it begin with.

    With that of delta-rs a thread that closes a file may meet an interpreter that has ended, and abort.
    """
    if path.root.startswith("s3://"):
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(**s3_arguments(path.options)), path.root.removeprefix("s3://") + "/"
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(path.root, path.storage_options())), ""


def s3_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """The options as arguments; what is not among them PyArrow takes from the environment, as delta-rs does."""
    found = {S3[known]: value for name, value in options.items() if (known := name.lower().removeprefix("aws_")) in S3}
    return {**found, "connect_timeout": 5, "request_timeout": 30}
