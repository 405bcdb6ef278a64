"""The package as one file that Spark sends to a cluster's executors, and a user's: they need not be installed there."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.files.file_system import OS, replace_durably
from penstock.java.runtime import cache_folder
from penstock.landing.transform.rules import module_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WHEN = (1980, 1, 1, 0, 0, 0)
"""The time of all files in the archive, so that the same package makes the same bytes."""


def package_zip(folder: Path | None = None) -> Path:
    """Return the package's modules as a zip, created in ``folder`` (by default the user's cache) if it is missing.

    The name contains a hash of the content, so executors never use an older archive. Raises OSError.
    """
    return _kept(Path(penstock.__file__).parent, folder or cache_folder())


def send_module(spark: SparkSession, function: str) -> None:
    """Send the module or package of a function (``module:function``) to the tasks' workers. Raises BadTransform."""
    source = module_source(function) if function else None
    if source is not None:
        sent = source if source.is_file() else _kept(source, cache_folder())
        spark.sparkContext.addPyFile(str(sent))


def _kept(package: Path, folder: Path) -> Path:
    content = _zipped(package)
    name = f"{package.name}-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    path = folder / name
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(OS, path, content, draft=f"{name}.{os.getpid()}")
    return path


def _zipped(package: Path) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for path in sorted(package.rglob("*.py")):
            info = zipfile.ZipInfo(str(path.relative_to(package.parent)), _WHEN)
            archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return memory.getvalue()
