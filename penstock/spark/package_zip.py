"""The package as one file that Spark sends to a cluster's executors: so it need not be installed there."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

import penstock
from penstock.files.file_system import OS, replace_durably
from penstock.java.runtime import cache_folder

_WHEN = (1980, 1, 1, 0, 0, 0)
"""The time of all files in it: the same package is the same file."""


def package_zip(folder: Path | None = None) -> Path:
    """The package's modules in a zip, made in ``folder`` (by default the user's cache) where it is not there yet.

    Its name tells its content, so that executors never take an older one for it. Raises OSError.
    """
    content = _zipped(Path(penstock.__file__).parent)
    name = f"penstock-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    path = (folder or cache_folder()) / name
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
