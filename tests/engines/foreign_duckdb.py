"""A DuckDB with its extension ``delta``, in an environment and a process of its own.

The extension of the pinned DuckDB is at extensions.duckdb.org only; PyPI has the ones of VERSION.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

from penstock.files.file_system import OS
from penstock.java.runtime import cache_folder

VERSION = "1.5.5"
SCRIPT = """
import glob, sys, duckdb, duckdb_extension_delta
(extension,) = glob.glob(duckdb_extension_delta.__path__[0] + "/extensions/*/*.duckdb_extension")
connection = duckdb.connect()
connection.execute("SET autoinstall_known_extensions = false")
connection.execute("LOAD '" + extension + "'")
connection.execute("ATTACH '" + sys.argv[1] + "' AS landed (TYPE delta)")
connection.execute(sys.argv[2])
"""


@cache
def environment() -> Path:
    """Return the Python of an environment with DuckDB and its extension, made once in the user's cache folder."""
    folder = cache_folder() / "test-environments" / f"duckdb-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    python, ready = folder / "bin" / "python", folder / "ready"
    release = OS.lock(folder.with_suffix(".lock"))
    try:
        if not ready.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
            pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
            packages = [f"duckdb=={VERSION}", f"duckdb-extension-delta=={VERSION}"]
            subprocess.run([*pip, *packages], check=True, timeout=1800)
            ready.touch()
    finally:
        release()
    return python


def duckdb_sql(folder: str, statement: str) -> None:
    """Run a statement in which ``landed`` is the table."""
    process = _run(folder, statement)
    assert process.returncode == 0, process.stderr


def duckdb_fails(folder: str, statement: str) -> None:
    """Run a statement that DuckDB refuses."""
    process = _run(folder, statement)
    assert process.returncode == 1, statement


def _run(folder: str, statement: str) -> subprocess.CompletedProcess[str]:
    command = [environment(), "-c", SCRIPT, folder, statement]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)
