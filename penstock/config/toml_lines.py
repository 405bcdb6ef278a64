"""The line of a key in a TOML file, which tomllib does not report."""

from __future__ import annotations

import bisect
import contextlib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def format_position(file: str, path: Sequence[str | int]) -> str:
    """Return ``FILE:LINE: `` of the value at ``path``; without a line ``FILE: ``, and nothing without a file."""
    line = None
    with contextlib.suppress(OSError, ValueError):  # the file may have changed since it was read
        line = line_of(Path(file).read_text("utf-8-sig"), path)
    return f"{file}:{line}: " if line else f"{file}: " if file else ""


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """Return the line, from 1, where the value at ``path`` begins, or else its innermost existing group.

    ``text`` is valid TOML; the path has numbers for list items.
    """
    lines = text.splitlines(keepends=True)
    for depth in range(len(path), 0, -1):
        group = path[:depth]
        # Binary search over prefixes: the first prefix that contains the path ends with the line of its value.
        last = bisect.bisect_left(
            range(len(lines) + 1), True, key=lambda count: _has_path(_longest_valid_prefix(lines, count)[1], group)
        )
        if last <= len(lines):
            return _longest_valid_prefix(lines, last - 1)[0] + 1
    return None


def _longest_valid_prefix(lines: Sequence[str], count: int) -> tuple[int, Any]:
    """Return the longest valid prefix of ``count`` lines (a value may span lines): its length and tree."""
    while True:
        try:
            return count, tomllib.loads("".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            count -= 1


def _has_path(tree: Any, path: Sequence[str | int]) -> bool:
    for part in path:
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True
