"""The search of modules: users' own are also found in the working folder, after all others.

Python would search the working folder first: a file ``queue.py`` or a folder ``penstock`` in it would replace the
standard library's or Penstock's own.
"""

from __future__ import annotations

import os
import sys


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of Penstock, which it finds where this process does."""
    return python_command("-m", module, *arguments)


def python_command(*words: str) -> list[str]:
    """Return the command of a Python that finds modules where this process does."""
    # In a checkout, `python -m penstock.cli.main` may find this package by the working folder alone.
    options = [] if prefers_working_folder() else ["-P"]
    return [sys.executable, *options, *words]


def add_working_folder() -> None:
    """Let this process find users' own modules in the working folder, after all others."""
    folder = _working_folder()
    if folder and folder not in sys.path:
        sys.path.append(folder)


def prefers_working_folder() -> bool:
    """Report whether this process searches the working folder first, as ``python -m`` does in a checkout."""
    return not sys.flags.safe_path and sys.path[0] in ("", _working_folder())


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""
