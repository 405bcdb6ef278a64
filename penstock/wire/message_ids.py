"""Ids of messages that their sender may send again: the same ones whenever the same comes under its own id."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

SIZE = 16


def message_id(parts: Iterable[bytes]) -> str:
    """Of an id of the sender's and of what is said under it: another one where any part differs."""
    known = blake2b(digest_size=SIZE)
    for part in parts:
        known.update(len(part).to_bytes(8, "big") + part)
    return known.hexdigest()
