"""Selection of topics by names and patterns."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence


def is_selected(name: str, patterns: Sequence[str]) -> bool:
    """Report whether ``patterns`` (names, or ``*``, ``?`` and ``[...]`` as in a shell) select a topic.

    Names that start with ``_`` or ``.`` (internal topics, and other folders) are selected only by their full name.
    """
    if name.startswith(("_", ".")):
        return name in patterns
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
