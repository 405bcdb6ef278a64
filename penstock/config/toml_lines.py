"""On which line of a file a key stands: tomllib does not say."""

from __future__ import annotations

import bisect
import contextlib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def place(file: str, path: Sequence[str | int]) -> str:
    """``FILE:LINE: `` of the value at ``path``, as ``line_of`` finds it; "" without a file."""
    line = None
    with contextlib.suppress(OSError, ValueError):  # it may have been changed since it was read
        line = line_of(Path(file).read_text(), path)
    return f"{file}:{line}: " if line else f"{file}: " if file else ""


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """The line, from 1, on which the value at ``path`` begins, or the innermost group around it that is there.

    ``text`` is valid TOML; the path has numbers for the items of lists.
    """
    lines = text.splitlines(keepends=True)
    for depth in range(len(path), 0, -1):
        wanted = path[:depth]
        last = bisect.bisect_left(range(len(lines) + 1), True, key=lambda count: _has(_read(lines, count)[1], wanted))
        if last <= len(lines):
            return _read(lines, last - 1)[0] + 1
    return None


def _read(lines: Sequence[str], count: int) -> tuple[int, Any]:
    """The longest part of the first ``count`` lines that is whole (a value may take several): its lines, its tree."""
    while True:
        try:
            return count, tomllib.loads("".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            count -= 1


def _has(tree: Any, path: Sequence[str | int]) -> bool:
    for part in path:
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True
