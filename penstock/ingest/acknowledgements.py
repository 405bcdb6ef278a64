"""Acknowledgements to senders that wait until their messages are stored; a sender is disconnected if they are not."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.handover.buffer import HandlerPosition
from penstock.handover.stored_waits import Fate, StoredWaits, epoll_timeout
from penstock.handover.writer import FrameWriter
from penstock.ingest.connections import Connection

PendingReply = tuple[Connection, bytes]
"""Connection and the reply that waits for storage."""


class Acknowledgements:
    """Replies of one listener's connections, in the order in which their messages were written.

    Invariant: a reply is sent only after the log has stored the messages before it.
    """

    def __init__(self, publisher: FrameWriter, readers: Sequence[HandlerPosition]) -> None:
        self._publisher = publisher
        self._waits: StoredWaits[PendingReply] = StoredWaits(publisher, readers)
        self._read: list[PendingReply] = []
        self._begin = 0

    def expect(self, connection: Connection, replies: Sequence[bytes]) -> None:
        """Queue ``replies`` until everything read from ``connection`` so far is stored; none of it is written yet."""
        # The log buffer's position now: the messages before the replies are written at or after it.
        if replies and not self._read:
            self._begin = self._publisher.position
        self._read += [(connection, reply) for reply in replies]

    def mark_written(self) -> None:
        """Record that everything read so far is in the log buffer."""
        for reply in self._read:
            self._waits.expect(self._begin, reply)
        self._read = []

    def take_decided(self) -> list[tuple[Connection, bytes | None]]:
        """Return replies that can be sent; None as the reply means that messages were missed.

        The connection is then closed: its sender notices it and sends the messages again.
        """
        # Crash: unsent replies are lost with the receiver; senders repeat their messages, whose ids make them
        # duplicates.
        decided = self._waits.take_decided() if self.has_pending else []
        return [(connection, reply if fate is Fate.STORED else None) for (connection, reply), fate in decided]

    @property
    def has_pending(self) -> bool:
        """Whether a sender waits for a reply."""
        return bool(len(self._waits))

    def limit_timeout(self, timeout: float) -> float:
        """Return the seconds to wait for bytes, at most ``timeout``; less if replies are pending."""
        pause = self._waits.pause
        return timeout if pause is None else min(timeout, epoll_timeout(pause))
