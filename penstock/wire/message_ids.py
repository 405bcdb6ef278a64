"""Message ids for senders that repeat messages: equal content under an equal sender's id gives an equal id."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

DIGEST_BYTES = 16


def message_id(parts: Iterable[bytes]) -> str:
    """Return an id derived from the sender's id and the message's content; it differs if any part differs."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        # Length prefix: without it, (ab, c) and (a, bc) would have the same id.
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
