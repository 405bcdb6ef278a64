"""Counts of a relayed topic by listener: what the topic accepted, what was forwarded, and what expired before.

Invariant: accepted, forwarded and expired are counted over offsets of the topic, so ``pending``, their difference, is
the number of entries between the relay's position and the end that was counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.counts import Origin
from penstock.ledger.hosts.host_posts import FURTHER, MAX_LISTENERS
from penstock.log import Gap
from penstock.log.store.gaps import DELETED, EXPIRED_READ
from penstock.qualified_names import relayed_name, split_relayed

MAX_SOURCE_BYTES = 32
"""Limit: of a source and a codec, the same as in the index of a segment."""


class OffsetReader(Protocol):
    """The part of a topic's reader that counts need."""

    @property
    def end(self) -> int:
        """The end of the topic's offsets."""

    def gaps(self) -> list[Gap]:
        """Return the gaps."""

    def rows_by_origin(self, offset: int, end: int) -> dict[tuple[str, int], int]:
        """Return the rows of [offset, end) by source and bucket."""


def relayed_origin(host: str, origin: Origin, hop: str) -> Origin:
    """Return the origin of relayed rows: its source is ``HOST/SOURCE``, cut to MAX_SOURCE_BYTES.

    ``hop`` is the topic that they leave, the last one of its hops.
    """
    source = _cut(relayed_name(host, origin.source or "unknown"))
    return Origin(source, origin.bucket, origin.first, origin.last, _cut(origin.codec), hops=(*origin.hops, hop))


def relayed_listener(host: str, source: str) -> str:
    """Return the name of a source of this host in the other balance."""
    return split_relayed(_cut(relayed_name(host, source or "unknown")))[1]


def _cut(text: str) -> str:
    return text.encode()[:MAX_SOURCE_BYTES].decode(errors="ignore")


@dataclass(slots=True)
class ListenerTally:
    """Entries of one listener in a topic."""

    accepted: int = 0
    forwarded: int = 0
    expired: int = 0


@dataclass(slots=True)
class TopicTally:
    """The counts of one topic. ``counted_end``: the offset up to which entries are counted as accepted."""

    host: str
    counted_end: int = 0
    listeners: dict[str, ListenerTally] = field(default_factory=dict)

    @classmethod
    def from_stored(cls, host: str, stored: Mapping[str, tuple[int, int]], begin: int) -> TopicTally:
        """Return the counts of the entries before ``begin``, which were stored with a position."""
        tally = cls(host, begin)
        for name, (forwarded, expired) in stored.items():
            listener = tally._of_listener(name)
            listener.accepted += forwarded + expired
            listener.forwarded, listener.expired = listener.forwarded + forwarded, listener.expired + expired
        return tally

    @classmethod
    def from_files(cls, host: str, reader: OffsetReader, start: int) -> TopicTally:
        """Return the counts of the entries before ``start`` as the topic's files show them.

        Entries that are gone were forwarded if they had been read or a person deleted them.
        """
        tally = cls(host)
        tally.count_to(reader, start)
        for listener in tally.listeners.values():
            listener.forwarded = listener.accepted
        for gap, rows in _gap_rows(reader.gaps(), 0, start):
            if gap.reason not in (EXPIRED_READ, DELETED):
                for source, count in rows.items():
                    listener = tally._of_source(source)
                    listener.forwarded, listener.expired = listener.forwarded - count, listener.expired + count
        return tally

    def count_to(self, reader: OffsetReader, end: int) -> None:
        """Count the entries up to ``end`` as accepted."""
        if end <= self.counted_end:
            return
        for (source, _), count in reader.rows_by_origin(self.counted_end, end).items():
            self._of_source(source).accepted += count
        for _, rows in _gap_rows(reader.gaps(), self.counted_end, end):
            for source, count in rows.items():
                self._of_source(source).accepted += count
        self.counted_end = end

    def accept(self, listener: str, begin: int, end: int) -> None:
        """Count the entries of [begin, end), all of one listener, as accepted, unless they are counted already."""
        if end > self.counted_end:
            self._of_listener(listener).accepted += end - max(begin, self.counted_end)
            self.counted_end = end

    def forward(self, listener: str, count: int) -> None:
        """Enter acknowledged entries."""
        self._of_listener(listener).forwarded += count

    def expire(self, reader: OffsetReader, end: int) -> None:
        """Enter the entries up to ``end`` that were not forwarded: what was accepted behind it stays pending.

        Invariant: counted as the difference, because a gap has the rows of its listeners and not their offsets. The
        relay's position may be inside it, and other shares of the listeners in its two parts would never add up.
        """
        self.count_to(reader, end)
        pending = TopicTally(self.host, end, {name: ListenerTally() for name in self.listeners})
        pending.count_to(reader, self.counted_end)
        for name, tally in self.listeners.items():
            # Limit: no less than before, should more of what is pending have expired since the end was read.
            tally.expired = max(tally.accepted - tally.forwarded - pending.listeners[name].accepted, tally.expired)

    def expire_of(self, listener: str, count: int) -> None:
        """Enter entries of a listener that are gone."""
        self._of_listener(listener).expired += count

    def stored(self) -> dict[str, tuple[int, int]]:
        """Return the counts that are stored with a position: forwarded and expired entries by listener."""
        return {name: (tally.forwarded, tally.expired) for name, tally in self.listeners.items()}

    def _of_source(self, source: str) -> ListenerTally:
        return self._of_listener(relayed_listener(self.host, source))

    def _of_listener(self, listener: str) -> ListenerTally:
        return self.listeners.setdefault(name_within_limit(listener, self.listeners), ListenerTally())


def name_within_limit(listener: str, named: Mapping[str, object]) -> str:
    """Return ``listener``, or FURTHER if it is not in ``named`` and these are as many as the limit allows."""
    has_room = len(named) - (FURTHER in named) < MAX_LISTENERS - 1
    return listener if listener in named or has_room else FURTHER


def _gap_rows(gaps: Iterable[Gap], begin: int, end: int) -> Iterable[tuple[Gap, dict[str, int]]]:
    for gap in gaps:
        if gap.begin < end and gap.end > begin:
            rows: dict[str, int] = {}
            for (source, _), count in gap.rows_by_bucket(max(begin, gap.begin), min(end, gap.end)).items():
                rows[source] = rows.get(source, 0) + count
            yield gap, rows
