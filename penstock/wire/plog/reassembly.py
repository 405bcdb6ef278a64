"""Table of incomplete messages, and memory of recently finished ones.

Invariant: no header decides how much memory is allocated; an entry grows only with the bytes that arrive. The *weight*
of an entry, counted against the table's bound, is the size of its finished message, so every message in the table can
become complete there. An entry ends complete, expired (not touched for ``expire_time``), evicted (the table exceeded
its bound; least recently touched first) or replaced (without a hash: another message took its identity). Its identity
is then remembered for ``expire_time``: late fragments of it count as duplicate or discarded, and do not begin a new
message. Without a total in the header, fragments with other bytes are not late: they begin another message.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import repeat
from typing import NamedTuple

import mmh3
import numpy as np
from crc32c import crc32c

from penstock.counts import Counts, Name
from penstock.wire.plog.statistics import Statistics

MAX_FRAGMENTS = 65_535
"""Limit of held fragments: the most that one message may have. It bounds the overhead of many tiny fragments."""
MAX_REMEMBERED = 65_536
"""Limit of remembered finished messages: about 30 MB, with checksums twice as much; the oldest are forgotten early."""
CHECKSUM_BYTES = 4
MessageIdentity = tuple[int, int, int]
"""Identity of a message: source address, source port, message id."""


class Header(NamedTuple):
    """Fields that all fragments of a message share; ``fragments``: their number.

    A protocol whose fragments state neither the length of the message nor a hash has total 0 and hash None: the weight
    of its entries is the bytes received.
    """

    fragments: int
    size: int
    total: int
    hash: int | None


class Fate(StrEnum):
    """Count under which a late fragment of a finished message is entered."""

    GOOD = Name.FRAGMENT_DUPLICATE
    BAD = Name.FRAGMENT_DISCARDED


class Assembled(NamedTuple):
    """A message with the right hash; ``tags`` as received."""

    payload: bytes
    tags: bytes


@dataclass(slots=True)
class _Entry:
    header: Header
    touched: float
    parts: dict[int, bytes] = field(default_factory=dict)
    tags: bytes = b""
    held: int = 0

    @property
    def weight(self) -> int:
        """Bytes of the finished message and its tags; of the parts received if the header has no total."""
        return self.held if self.header.hash is None else self.header.total + len(self.tags)


def _checksum(part: bytes) -> bytes:
    return crc32c(part).to_bytes(CHECKSUM_BYTES, "big")


def _checksums(entry: _Entry) -> bytes:
    missing = bytes(CHECKSUM_BYTES)
    parts = (entry.parts.get(index) for index in range(entry.header.fragments))
    return b"".join(missing if part is None else _checksum(part) for part in parts)


class FinishedMessages:
    """Identities of finished messages, each for ``expire_time`` seconds, at most MAX_REMEMBERED."""

    def __init__(self, expire_time: float) -> None:
        self._expire_time = expire_time
        self._finished: OrderedDict[MessageIdentity, tuple[Header, Fate, float, bytes]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._finished)

    def remember(self, key: MessageIdentity, header: Header, fate: Fate, now: float, checksums: bytes = b"") -> None:
        """Store the fate of a message; it replaces an older message of the same identity.

        ``checksums``: CRC32C of each part, 0 for a missing one, of a protocol whose header does not identify a message.
        """
        self._finished.pop(key, None)
        self._finished[key] = (header, fate, now, checksums)
        if len(self._finished) > MAX_REMEMBERED:
            self._finished.popitem(last=False)

    def remember_all(
        self, keys: Sequence[MessageIdentity], headers: Iterable[Header], fates: Iterable[Fate], now: float
    ) -> None:
        """Store the fates of messages none of which is remembered yet."""
        self._finished.update(zip(keys, zip(headers, fates, repeat(now), repeat(b"")), strict=False))
        # Limit: ids of a fast sender must not fill memory within ``expire_time``; the oldest are forgotten first.
        while len(self._finished) > MAX_REMEMBERED:
            self._finished.popitem(last=False)

    def find_remembered(self, keys: set[MessageIdentity]) -> set[MessageIdentity]:
        """Return the keys that are remembered."""
        return keys & self._finished.keys()

    def fate(self, key: MessageIdentity, header: Header) -> Fate | None:
        """Return the fate of exactly this message; None if the id now belongs to another message."""
        finished = self._finished.get(key)
        return finished[1] if finished is not None and finished[0] == header else None

    def fate_of_part(self, key: MessageIdentity, header: Header, index: int, part: bytes) -> Fate | None:
        """Return the fate of the message if this is one of its parts, by its checksum if that is stored.

        Senders of GELF give several messages one id, such as the time; the next one is a message of its own.
        """
        fate = self.fate(key, header)
        if fate is None or not (checksums := self._finished[key][3]):
            return fate
        stored = checksums[CHECKSUM_BYTES * index :][:CHECKSUM_BYTES]
        return fate if stored in (bytes(CHECKSUM_BYTES), _checksum(part)) else None

    def expire(self, now: float) -> None:
        """Forget messages that were finished ``expire_time`` ago."""
        limit = now - self._expire_time
        while self._finished and next(iter(self._finished.values()))[2] <= limit:
            self._finished.popitem(last=False)


class Reassembly:
    """Incomplete messages by identity, together at most ``max_size`` bytes once complete.

    ``held_bytes`` and ``open_fragments`` measure the fragments received so far. Every call enters its decisions into
    ``counts``, in both books. Used by one thread.
    """

    def __init__(self, max_size: int, expire_time: float, statistics: Statistics) -> None:
        self.memory = FinishedMessages(expire_time)
        self.held_bytes = 0
        self.open_fragments = 0
        self._max_size = max_size
        self._expire_time = expire_time
        self._statistics = statistics
        self._weight = 0
        self._entries: OrderedDict[MessageIdentity, _Entry] = OrderedDict()  # least recently touched first

    @property
    def open_messages(self) -> int:
        """Number of incomplete messages."""
        return len(self._entries)

    def find_tracked(self, keys: Sequence[MessageIdentity]) -> set[MessageIdentity]:
        """Return the keys of incomplete and of remembered messages."""
        distinct = set(keys)
        return (distinct & self._entries.keys()) | self.memory.find_remembered(distinct)

    def add(
        self, key: MessageIdentity, header: Header, index: int, part: bytes, tags: bytes, now: float, counts: Counts
    ) -> tuple[bool, Assembled | None]:
        """Add a fragment of consistent length whose message is within bounds.

        Return whether it is the first of its message, and the message if it completes a valid one.
        """
        entry = self._look_up(key)
        if entry is not None and header.hash is None and entry.parts.get(index, part) != part:
            # Two messages with one id. Without a hash their parts would be joined: the sender has gone on to the
            # later one, so the earlier one has lost a part.
            self._give_up(key, "replaced", now, counts)
            entry = None
        is_new = entry is None
        if entry is None:
            late = self.memory.fate_of_part(key, header, index, part)
            if late is not None:
                counts[late] += 1
                return False, None
            entry = self._begin(key, header, now, counts)
        if header != entry.header:
            self._enter_invalid(entry.header, index, counts)
            return is_new, None
        self._add_part(entry, index, part, tags, now, counts)
        return is_new, self._settle(key, entry, now, counts)

    def add_run(
        self,
        key: MessageIdentity,
        header: Header,
        indices: Sequence[int],
        parts: Sequence[bytes],
        now: float,
        counts: Counts,
    ) -> tuple[bool, Assembled | None] | None:
        """Add several fragments of one message without tags at once; otherwise like ``add``.

        Return None, with nothing changed, unless each of them is a new fragment of one open or new message.
        """
        entry = self._entries.get(key)
        is_new = entry is None
        received = {} if entry is None else entry.parts
        fits = self.memory.fate(key, header) is None if entry is None else entry.header == header
        fits = fits and len(received) + len(indices) <= header.fragments
        if not fits or not received.keys().isdisjoint(indices) or len(set(indices)) < len(indices):
            return None
        self._statistics.hits += len(indices) - is_new
        self._statistics.misses += is_new
        entry = entry or self._begin(key, header, now, counts)
        entry.touched = now
        entry.parts.update(zip(indices, parts, strict=True))
        counts[Name.FRAGMENT_OPEN] += len(indices)
        self.open_fragments += len(indices)
        self._grow(entry, sum(map(len, parts)))
        return is_new, self._settle(key, entry, now, counts)

    def reject(self, key: MessageIdentity, header: Header, index: int, counts: Counts) -> None:
        """Count an invalid fragment, in the class of the message it claims to belong to."""
        entry = self._look_up(key)
        self._enter_invalid(header if entry is None else entry.header, index, counts)

    def mismatches(self, key: MessageIdentity, header: Header) -> bool:
        """Report whether the message is incomplete here and its first fragment had another header."""
        entry = self._entries.get(key)
        return entry is not None and entry.header != header

    def refuse(self, key: MessageIdentity, header: Header, now: float, counts: Counts) -> bool:
        """Count a fragment of a message beyond the bound; return whether it is the message's first."""
        counts[Name.FRAGMENT_DISCARDED] += 1
        is_new = self.memory.fate(key, header) is None
        if is_new:
            counts[Name.SEEN] += 1
            counts[f"{Name.REFUSED}oversize"] += 1
            self._statistics.losses.add(Name.REFUSED, key[0])
            self.memory.remember(key, header, Fate.BAD, now)
        return is_new

    def expire(self, now: float, counts: Counts) -> None:
        """Give up messages not touched for ``expire_time``, and forget those finished that long ago."""
        limit = now - self._expire_time
        while self._entries and next(iter(self._entries.values())).touched <= limit:
            self._give_up(next(iter(self._entries)), "expired", now, counts)
        self.memory.expire(now)

    def _look_up(self, key: MessageIdentity) -> _Entry | None:
        entry = self._entries.get(key)
        self._statistics.hits += entry is not None
        self._statistics.misses += entry is None
        return entry

    def _enter_invalid(self, header: Header, index: int, counts: Counts) -> None:
        counts[Name.FRAGMENT_INVALID] += 1
        self._statistics.add_invalid(np.array([header.fragments]), np.array([index]))

    def _begin(self, key: MessageIdentity, header: Header, now: float, counts: Counts) -> _Entry:
        counts[Name.SEEN] += 1
        counts[Name.OPEN] += 1
        entry = self._entries[key] = _Entry(header, now)
        self._weight += entry.weight
        return entry

    def _add_part(self, entry: _Entry, index: int, part: bytes, tags: bytes, now: float, counts: Counts) -> None:
        entry.touched = now
        # As in plog, the latest copy of a part wins, and so do the latest tags.
        if index in entry.parts:
            counts[Name.FRAGMENT_DUPLICATE] += 1
        else:
            counts[Name.FRAGMENT_OPEN] += 1
            self.open_fragments += 1
        self._grow(entry, len(part) - len(entry.parts.get(index, b"")))
        entry.parts[index] = part
        if tags:
            more, entry.tags = len(tags) - len(entry.tags), tags
            self._weight += more
            self._grow(entry, more)

    def _settle(self, key: MessageIdentity, entry: _Entry, now: float, counts: Counts) -> Assembled | None:
        """Finish a complete message, or evict others if the table exceeds its bound."""
        self._entries.move_to_end(key)
        # Limit: without a total in the header, only the bytes received show that a message is too large.
        if entry.held - len(entry.tags) > self._max_size:
            self._close(key, Fate.BAD, now, counts)
            counts[f"{Name.REFUSED}oversize"] += 1
            self._statistics.losses.add(Name.REFUSED, key[0])
            return None
        if len(entry.parts) == entry.header.fragments:
            return self._finish(key, entry, now, counts)
        self._evict(now, counts)
        return None

    def _grow(self, entry: _Entry, more: int) -> None:
        entry.held += more
        self.held_bytes += more
        if entry.header.hash is None:
            self._weight += more

    def _close(self, key: MessageIdentity, fate: Fate, now: float, counts: Counts) -> _Entry:
        """Remove an entry from the table, and its fragments from the open ones."""
        entry = self._entries.pop(key)
        self.held_bytes -= entry.held
        self._weight -= entry.weight
        self.open_fragments -= len(entry.parts)
        counts[Name.OPEN] -= 1
        counts[Name.FRAGMENT_OPEN] -= len(entry.parts)
        counts[Name.FRAGMENT_USED if fate is Fate.GOOD else Name.FRAGMENT_DISCARDED] += len(entry.parts)
        self.memory.remember(key, entry.header, fate, now, _checksums(entry) if entry.header.hash is None else b"")
        return entry

    def _finish(self, key: MessageIdentity, entry: _Entry, now: float, counts: Counts) -> Assembled | None:
        payload = b"".join([entry.parts[index] for index in range(entry.header.fragments)])
        is_valid = entry.header.hash in (None, mmh3.hash(payload, 0, False))
        self._close(key, Fate.GOOD if is_valid else Fate.BAD, now, counts)
        if is_valid:
            counts[Name.ACCEPTED] += 1
            self._statistics.v0_multipart_messages += 1
            return Assembled(payload, entry.tags)
        counts[Name.BAD_CHECKSUM] += 1
        self._statistics.losses.add(Name.BAD_CHECKSUM, key[0])
        self._statistics.add_bad_checksums(np.array([entry.header.fragments]))
        return None

    def _evict(self, now: float, counts: Counts) -> None:
        # The entry touched last is never evicted: it is within the bound by itself, and progress would stop otherwise.
        while len(self._entries) > 1 and (self._weight > self._max_size or self.open_fragments > MAX_FRAGMENTS):
            self._give_up(next(iter(self._entries)), "evicted", now, counts)

    def _give_up(self, key: MessageIdentity, reason: str, now: float, counts: Counts) -> None:
        entry = self._close(key, Fate.BAD, now, counts)
        counts[f"{Name.INCOMPLETE}{reason}"] += 1
        self._statistics.losses.add(Name.INCOMPLETE, key[0])
        self._statistics.add_dropped(entry.header.fragments, np.fromiter(entry.parts, np.int64, len(entry.parts)))
