"""Suggestions for unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def nearest(name: str, names: Sequence[str]) -> str:
    """Return a suggestion to append to an unknown name: the most similar of ``names``, or all of them."""
    # Limit: 0.5 accepts two swapped or wrong letters in a short key, and no unrelated word.
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(names)})" if names else ""
