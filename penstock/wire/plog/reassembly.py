"""The table of incomplete messages, and the memory of those that were finished a short while ago.

No header decides how much memory is taken: an entry grows with what arrives. What it *weighs* against the
table's bound is what its message is to become, so that whatever is in the table can become complete there.
An entry ends complete, expired (not touched for ``expire_time``) or evicted (the table
grew beyond its bound, oldest access first); its identity is then remembered for ``expire_time``, so that
what comes late of it is known as a duplicate, or as discarded, and not taken for a new message.
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

from penstock.counts import Counts, Name
from penstock.wire.plog.statistics import Statistics

MAX_FRAGMENTS = 65_535
"""Most fragments held: one message may have so many. It bounds what many tiny ones take."""
MAX_REMEMBERED = 65_536
"""Most finished messages remembered: about 30 MB. Beyond it the oldest are forgotten early."""

MessageIdentity = tuple[int, int, int]
"""Source address, source port, message id."""


class Header(NamedTuple):
    """What all fragments of a message must agree on; ``fragments``: how many there are.

    A protocol whose fragments say neither the length of their message nor a hash has 0 and None: what came is weighed.
    """

    fragments: int
    size: int
    total: int
    hash: int | None


class Fate(StrEnum):
    """What becomes of a late fragment of a finished message: the count it is entered under."""

    GOOD = Name.FRAGMENT_DUPLICATE
    BAD = Name.FRAGMENT_DISCARDED


class Assembled(NamedTuple):
    """A message whose hash is right; ``tags`` as received."""

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
        """Bytes of the whole message, and of tags; of what came where nobody says how long it is to be."""
        return self.held if self.header.hash is None else self.header.total + len(self.tags)


class FinishedMessages:
    """Identities of finished messages, each for ``expire_time`` seconds, at most MAX_REMEMBERED."""

    def __init__(self, expire_time: float) -> None:
        self._expire_time = expire_time
        self._known: OrderedDict[MessageIdentity, tuple[Header, Fate, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def remember(self, key: MessageIdentity, header: Header, fate: Fate, now: float) -> None:
        """Keep what became of the message, in the place of an older one of the same identity."""
        self._known.pop(key, None)
        self._known[key] = (header, fate, now)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)

    def remember_all(
        self, keys: Sequence[MessageIdentity], headers: Iterable[Header], fates: Iterable[Fate], now: float
    ) -> None:
        """The same for many messages none of which is known."""
        self._known.update(zip(keys, zip(headers, fates, repeat(now)), strict=False))
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)

    def among(self, keys: set[MessageIdentity]) -> set[MessageIdentity]:
        """Those of ``keys`` that are known."""
        return keys & self._known.keys()

    def fate(self, key: MessageIdentity, header: Header) -> Fate | None:
        """What became of this very message; None where the id now stands for another one."""
        known = self._known.get(key)
        return known[1] if known is not None and known[0] == header else None

    def expire(self, now: float) -> None:
        """Forget what was finished ``expire_time`` ago."""
        limit = now - self._expire_time
        while self._known and next(iter(self._known.values()))[2] <= limit:
            self._known.popitem(last=False)


class Reassembly:
    """Incomplete messages by identity, of together at most ``max_size`` bytes once complete.

    ``held_bytes`` and ``open_fragments`` are what has arrived of them.
    Every call enters what it decides into the ``counts`` it is given, in both books.
    """

    def __init__(self, max_size: int, expire_time: float, statistics: Statistics) -> None:
        self.memory = FinishedMessages(expire_time)
        self.held_bytes = 0
        self.open_fragments = 0
        self._max_size = max_size
        self._expire_time = expire_time
        self._statistics = statistics
        self._weight = 0
        self._open: OrderedDict[MessageIdentity, _Entry] = OrderedDict()

    @property
    def open_messages(self) -> int:
        """How many messages wait for their rest."""
        return len(self._open)

    def known(self, keys: Sequence[MessageIdentity]) -> set[MessageIdentity]:
        """Those of ``keys`` that are of incomplete or of remembered messages."""
        distinct = set(keys)
        return (distinct & self._open.keys()) | self.memory.among(distinct)

    def add(
        self, key: MessageIdentity, header: Header, index: int, part: bytes, tags: bytes, now: float, counts: Counts
    ) -> tuple[bool, Assembled | None]:
        """Take in a fragment of consistent length and of a message within bounds.

        Returns whether it is the first of its message, and the message where it completes a good one.
        """
        entry = self._look_up(key)
        is_new = entry is None
        if entry is None:
            late = self.memory.fate(key, header)
            if late is not None:
                counts[late] += 1
                return False, None
            entry = self._begin(key, header, now, counts)
        if header != entry.header:
            self._enter_invalid(entry.header, index, counts)
            return is_new, None
        self._put(entry, index, part, tags, now, counts)
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
        """As ``add`` for one after the other of several fragments without tags, at once.

        None, and nothing is done, where any of them is not simply one more fragment of an open or a new message.
        """
        entry = self._open.get(key)
        is_new = entry is None
        known = {} if entry is None else entry.parts
        fits = self.memory.fate(key, header) is None if entry is None else entry.header == header
        fits = fits and len(known) + len(indices) <= header.fragments
        if not fits or not known.keys().isdisjoint(indices) or len(set(indices)) < len(indices):
            return None
        self._statistics.hits += len(indices) - is_new
        self._statistics.misses += is_new
        entry = entry or self._begin(key, header, now, counts)
        entry.touched = now
        entry.parts.update(zip(indices, parts, strict=True))
        counts[Name.FRAGMENT_OPEN] += len(indices)
        self.open_fragments += len(indices)
        self._hold(entry, sum(map(len, parts)))
        return is_new, self._settle(key, entry, now, counts)

    def reject(self, key: MessageIdentity, header: Header, index: int, counts: Counts) -> None:
        """Enter an invalid fragment, in the class of the message that it claims to belong to."""
        entry = self._look_up(key)
        self._enter_invalid(header if entry is None else entry.header, index, counts)

    def mismatches(self, key: MessageIdentity, header: Header) -> bool:
        """Whether the message is incomplete here and its first fragment said something else."""
        entry = self._open.get(key)
        return entry is not None and entry.header != header

    def refuse(self, key: MessageIdentity, header: Header, now: float, counts: Counts) -> bool:
        """Refuse a fragment of a message larger than the bound; whether it is the message's first."""
        counts[Name.FRAGMENT_DISCARDED] += 1
        is_new = self.memory.fate(key, header) is None
        if is_new:
            counts[Name.SEEN] += 1
            counts[f"{Name.REFUSED}oversize"] += 1
            self.memory.remember(key, header, Fate.BAD, now)
        return is_new

    def expire(self, now: float, counts: Counts) -> None:
        """Give up what was not touched for ``expire_time``, and forget what was finished so long ago."""
        limit = now - self._expire_time
        while self._open and next(iter(self._open.values())).touched <= limit:
            self._give_up("expired", now, counts)
        self.memory.expire(now)

    def _look_up(self, key: MessageIdentity) -> _Entry | None:
        entry = self._open.get(key)
        self._statistics.hits += entry is not None
        self._statistics.misses += entry is None
        return entry

    def _enter_invalid(self, header: Header, index: int, counts: Counts) -> None:
        counts[Name.FRAGMENT_INVALID] += 1
        self._statistics.add_invalid(np.array([header.fragments]), np.array([index]))

    def _begin(self, key: MessageIdentity, header: Header, now: float, counts: Counts) -> _Entry:
        counts[Name.SEEN] += 1
        counts[Name.OPEN] += 1
        entry = self._open[key] = _Entry(header, now)
        self._weight += entry.weight
        return entry

    def _put(self, entry: _Entry, index: int, part: bytes, tags: bytes, now: float, counts: Counts) -> None:
        """What came last counts, of a part that came twice and of tags, as in plog."""
        entry.touched = now
        if index in entry.parts:
            counts[Name.FRAGMENT_DUPLICATE] += 1
        else:
            counts[Name.FRAGMENT_OPEN] += 1
            self.open_fragments += 1
        self._hold(entry, len(part) - len(entry.parts.get(index, b"")))
        entry.parts[index] = part
        if tags:
            more, entry.tags = len(tags) - len(entry.tags), tags
            self._weight += more
            self._hold(entry, more)

    def _settle(self, key: MessageIdentity, entry: _Entry, now: float, counts: Counts) -> Assembled | None:
        """After an entry was added to: it is complete, or the table may have grown too large."""
        self._open.move_to_end(key)
        if entry.held - len(entry.tags) > self._max_size:
            self._close(key, Fate.BAD, now, counts)
            counts[f"{Name.REFUSED}oversize"] += 1
            return None
        if len(entry.parts) == entry.header.fragments:
            return self._finish(key, entry, now, counts)
        self._evict(now, counts)
        return None

    def _hold(self, entry: _Entry, more: int) -> None:
        entry.held += more
        self.held_bytes += more
        if entry.header.hash is None:
            self._weight += more

    def _close(self, key: MessageIdentity, fate: Fate, now: float, counts: Counts) -> _Entry:
        """Take an entry out of the table, and its fragments out of those that are open."""
        entry = self._open.pop(key)
        self.held_bytes -= entry.held
        self._weight -= entry.weight
        self.open_fragments -= len(entry.parts)
        counts[Name.OPEN] -= 1
        counts[Name.FRAGMENT_OPEN] -= len(entry.parts)
        counts[Name.FRAGMENT_USED if fate is Fate.GOOD else Name.FRAGMENT_DISCARDED] += len(entry.parts)
        self.memory.remember(key, entry.header, fate, now)
        return entry

    def _finish(self, key: MessageIdentity, entry: _Entry, now: float, counts: Counts) -> Assembled | None:
        payload = b"".join([entry.parts[index] for index in range(entry.header.fragments)])
        good = entry.header.hash in (None, mmh3.hash(payload, 0, False))
        self._close(key, Fate.GOOD if good else Fate.BAD, now, counts)
        if good:
            counts[Name.ACCEPTED] += 1
            self._statistics.v0_multipart_messages += 1
            return Assembled(payload, entry.tags)
        counts[Name.BAD_CHECKSUM] += 1
        self._statistics.add_bad_checksums(np.array([entry.header.fragments]))
        return None

    def _evict(self, now: float, counts: Counts) -> None:
        """Make room, but never at the cost of the message touched last, which is within bounds itself."""
        while len(self._open) > 1 and (self._weight > self._max_size or self.open_fragments > MAX_FRAGMENTS):
            self._give_up("evicted", now, counts)

    def _give_up(self, reason: str, now: float, counts: Counts) -> None:
        key = next(iter(self._open))
        entry = self._close(key, Fate.BAD, now, counts)
        counts[f"{Name.INCOMPLETE}{reason}"] += 1
        self._statistics.add_dropped(entry.header.fragments, np.fromiter(entry.parts, np.int64, len(entry.parts)))
