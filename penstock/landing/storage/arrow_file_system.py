"""The file system of PyArrow for datasets of tables in an object store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.landing.storage.object_path import ObjectPath

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


def file_system(path: ObjectPath) -> tuple[Any, str]:
    """For S3 PyArrow's own, else delta-rs's; and what the names of files in it begin with.

    With that of delta-rs a thread that closes a file may meet an interpreter that has ended, and abort.
    """
    if path.root.startswith("s3://"):
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(**of_s3(path.options)), path.root.removeprefix("s3://") + "/"
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(path.root, path.storage_options())), ""


def of_s3(options: Mapping[str, str]) -> dict[str, Any]:
    """The options as arguments; what is not among them PyArrow takes from the environment, as delta-rs does."""
    found = {S3[known]: value for name, value in options.items() if (known := name.lower().removeprefix("aws_")) in S3}
    return {**found, "connect_timeout": 5, "request_timeout": 30}
