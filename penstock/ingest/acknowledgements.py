"""Senders that wait until what they sent is safe: told once the log has it, or closed where it has not."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.handover.buffer import HandlerPosition
from penstock.handover.stored_waits import Fate, StoredWaits
from penstock.handover.writer import FrameWriter
from penstock.ingest.connections import Connection

Promise = tuple[Connection, bytes]
"""Who is to be told, and what."""


class Acknowledgements:
    """What the connections of one listener are to be told, in the order in which it was written."""

    def __init__(self, publisher: FrameWriter, readers: Sequence[HandlerPosition]) -> None:
        self._publisher = publisher
        self._waits: StoredWaits[Promise] = StoredWaits(publisher, readers)
        self._read: list[Promise] = []
        self._begin = 0

    def ask(self, connection: Connection, replies: Sequence[bytes]) -> None:
        """``connection`` gets ``replies`` once all that was read of it is stored; nothing of it is written yet."""
        if replies and not self._read:
            self._begin = self._publisher.position
        self._read += [(connection, reply) for reply in replies]

    def written(self) -> None:
        """All that was read is in the log buffer."""
        for promise in self._read:
            self._waits.expect(self._begin, promise)
        self._read = []

    def take_decided(self) -> list[tuple[Connection, bytes | None]]:
        """Who is to be told what by now; None: what they sent was missed, and they have to be closed to know."""
        found = self._waits.take_decided() if self.owed else []
        return [(connection, reply if fate is Fate.STORED else None) for (connection, reply), fate in found]

    @property
    def owed(self) -> bool:
        """Whether somebody waits to be told."""
        return bool(len(self._waits))

    def within(self, timeout: float) -> float:
        """Seconds to wait for bytes at most, ``timeout`` where nobody waits to be told anything."""
        pause = self._waits.pause
        return timeout if pause is None else min(timeout, pause)
