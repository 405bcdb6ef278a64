"""The package as one file that Spark sends to a cluster's executors: so it need not be installed there."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

import penstock
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
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_bytes(content)
        draft.replace(path)
    return path


def _zipped(package: Path) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for path in sorted(package.rglob("*.py")):
            info = zipfile.ZipInfo(str(path.relative_to(package.parent)), _WHEN)
            archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return memory.getvalue()
