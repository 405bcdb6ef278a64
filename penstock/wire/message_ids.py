"""Message ids for senders that repeat messages: equal content under an equal sender's id gives an equal id."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

DIGEST_BYTES = 16


def message_id(parts: Iterable[bytes]) -> str:
    """Return an id derived from the sender's id and the message's content; it differs if any part differs."""
    builder = MessageIdBuilder()
    for part in parts:
        builder.add(part)
    return builder.message_id()


class MessageIdBuilder:
    """A message id whose parts are added one by one, so that other work may be done in between."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=DIGEST_BYTES)

    def add(self, part: bytes) -> None:
        # Length prefix: without it, (ab, c) and (a, bc) would have the same id.
        self._digest.update(len(part).to_bytes(8, "big") + part)

    def message_id(self) -> str:
        """Return the id of the parts so far."""
        return self._digest.hexdigest()
