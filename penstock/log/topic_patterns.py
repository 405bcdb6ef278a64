"""Topics chosen by names and patterns."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence


def is_selected(name: str, patterns: Sequence[str]) -> bool:
    """Whether a topic is asked for by ``patterns``: names, or ``*``, ``?`` and ``[...]`` as in a shell.

    Internal topics, and what is none (their names begin with ``_`` or ``.``), only by their full name.
    """
    if name.startswith(("_", ".")):
        return name in patterns
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
