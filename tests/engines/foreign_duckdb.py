"""A DuckDB with its extension ``delta``, in an environment and a process of its own.

The extension of the pinned DuckDB is at extensions.duckdb.org only; PyPI has the ones of VERSION.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from tests.environments import environment_with

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
    return environment_with(f"duckdb-{VERSION}", [f"duckdb=={VERSION}", f"duckdb-extension-delta=={VERSION}"])


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
