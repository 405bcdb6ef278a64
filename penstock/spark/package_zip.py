"""Archives of this package and of a user's modules, which Spark sends to the executors of a cluster.

Invariant: equal content gives an equal name and equal bytes, so an executor never mixes two versions.
"""

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

_FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""Time of all files in an archive, so that equal content gives equal bytes; the earliest that zip can store."""


def package_zip(folder: Path | None = None) -> Path:
    """Return the package's modules as a zip, created in ``folder`` (by default the user's cache) if it is missing.

    The name contains a hash of the content, so executors never use an older archive. Raises OSError.
    """
    return _cached_archive(Path(penstock.__file__).parent, folder or cache_folder())


def send_module(spark: SparkSession, function: str) -> None:
    """Send the module or package of a function (``module:function``) to the tasks' workers. Raises BadTransform."""
    source = module_source(function) if function else None
    if source is not None:
        archive = source if source.is_file() else _cached_archive(source, cache_folder())
        spark.sparkContext.addPyFile(str(archive))


def _cached_archive(package: Path, folder: Path) -> Path:
    content = _archive_bytes(package)
    name = f"{package.name}-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    path = folder / name
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Order: a draft of this process, then a rename: several sessions may create the archive at the same time.
        replace_durably(OS, path, content, draft=f"{name}.{os.getpid()}")
    return path


def _archive_bytes(package: Path) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for path in sorted(package.rglob("*.py")):
            info = zipfile.ZipInfo(str(path.relative_to(package.parent)), _FILE_TIME)
            archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return memory.getvalue()
