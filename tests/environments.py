"""Environments with other versions of packages, made once in the user's cache folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.files.file_system import OS
from penstock.java.runtime import cache_folder


def environment_with(name: str, packages: Sequence[str]) -> Path:
    """Return the Python of the environment ``name``, which has ``packages`` without their dependencies."""
    folder = cache_folder() / "test-environments" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    python, ready = folder / "bin" / "python", folder / "ready"
    release = OS.lock(folder.with_suffix(".lock"))
    try:
        if not ready.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
            pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
            subprocess.run([*pip, *packages], check=True, timeout=1800)
            ready.touch()
    finally:
        release()
    return python
