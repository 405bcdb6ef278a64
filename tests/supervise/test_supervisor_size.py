"""Modules that the supervisor must not load."""

from __future__ import annotations

import subprocess
import sys


def test_supervisor_imports_neither_arrow_nor_numpy() -> None:
    large = "[name for name in ('numpy', 'pyarrow', 'grpc', 'starlette') if name in sys.modules]"
    command = [sys.executable, "-c", f"import sys, penstock.cli.run.serve; print({large})"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"
