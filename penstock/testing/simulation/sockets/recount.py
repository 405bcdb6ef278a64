"""A plain recount of plog's UDP protocol: one datagram after the other, without columns.

Start at ``PlogRecount``. It is written from plog's README and docs/accounting.md, and shares no code with ``wire``.
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import mmh3

from penstock.testing.simulation.sockets.kernel import Address, Datagram
from penstock.testing.simulation.sockets.listeners import Life

_HEADER = struct.Struct(">BBHHHIiIHH")
_VERBS = (b"PING", b"STAT", b"ENVI", b"KILL")
Stored = tuple[bytes, str]
"""Payload and tags of a message."""
_Header = tuple[int, ...]
"""Count, size, total and hash of a message."""
_Key = tuple[Address, int]


@dataclass(slots=True)
class _Open:
    header: _Header
    touched: float
    parts: dict[int, bytes] = field(default_factory=dict)
    tags: bytes = b""


@dataclass(slots=True)
class _Source:
    """The ids of one sender since it was last forgotten."""

    last_seen: float
    ids: set[int] = field(default_factory=set)


class PlogRecount:
    """The counts and messages of a listener; ``commander`` is the only address that may send commands.

    Ids of one sender must not wrap, nor be late by a whole window.
    """

    def __init__(
        self, max_size: int, expire_time: float, hole_expire_time: float, maximum_hole: int, commander: str
    ) -> None:
        self._commander = commander
        self._max_size, self._expire_time = max_size, expire_time
        self._hole_expire_time, self._maximum_hole = hole_expire_time, maximum_hole
        self.counts: Counter[str] = Counter()
        self.accepted: Counter[Stored] = Counter()
        self.by_host: Counter[str] = Counter()
        """Accepted messages by the address of their sender."""
        self.has_evicted = False
        """Whether the limit of memory was reached: what is evicted depends on the order within a round."""
        self.held_bytes = 0
        self._forget_all()

    def _forget_all(self) -> None:
        self._open: dict[_Key, _Open] = {}
        self._finished: dict[_Key, tuple[_Header, str, float]] = {}
        self._sources: dict[Address, _Source] = {}

    @property
    def open_messages(self) -> int:
        """Messages that wait for fragments."""
        return len(self._open)

    def count_lives(self, datagrams: Sequence[Datagram], lives: Iterable[Life]) -> None:
        """Count everything that the lives of a receiver took."""
        for life in lives:
            position = life.begin
            for now, number in life.decodes:
                end = position + number if life.end is None else min(position + number, life.end)
                self._expire(now)
                for datagram in datagrams[position:end]:
                    self._count(datagram, now)
                position = max(end, position)
            if life.end is not None:
                self._end_life()

    def most_accepted(self, datagrams: Iterable[Datagram]) -> Counter[Stored]:
        """Return the messages with the largest number of copies, of which each datagram is in one at most."""
        copies: Counter[Datagram] = Counter()
        by_copy: dict[int, list[Datagram]] = defaultdict(list)
        for datagram in datagrams:
            by_copy[copies[datagram]].append(datagram)
            copies[datagram] += 1
        for copy in by_copy.values():
            self._forget_all()
            for datagram in copy:
                self._count(datagram, 0.0)
        return self.accepted

    def _end_life(self) -> None:
        for message in self._open.values():
            self._drop(message, "incomplete.crash")
        for source in self._sources.values():
            self._count_ids(source, is_forgotten=False)
        self._forget_all()

    def _drop(self, message: _Open, reason: str) -> None:
        self.counts[reason] += 1
        self.counts["fragment.discarded"] += len(message.parts)

    def _expire(self, now: float) -> None:
        for key, message in list(self._open.items()):
            if message.touched <= now - self._expire_time:
                self._drop(message, "incomplete.expired")
                self._finish(key, "fragment.discarded", now)
        for key, (_, _, time) in list(self._finished.items()):
            if time <= now - self._expire_time:
                del self._finished[key]
        for address, source in list(self._sources.items()):
            if source.last_seen <= now - self._hole_expire_time:
                self._count_ids(source, is_forgotten=True)
                del self._sources[address]

    def _finish(self, key: _Key, late: str, now: float) -> None:
        self._finished.pop(key, None)
        self._finished[key] = (self._open.pop(key).header, late, now)

    def _count(self, datagram: Datagram, now: float) -> None:
        self.counts["taken"] += 1
        data = datagram.data
        if not data:
            self.counts["empty"] += 1
        elif data[0] > 31:
            self.counts.update(("unboxed", "seen"))
            self._accept(datagram.sender, data, b"")
        elif data[0] != 0:
            self.counts["invalid.version"] += 1
        elif len(data) == 1:
            self.counts["invalid.header"] += 1
        elif data[1] == 0:
            is_known, is_allowed = data[2:6].upper() in _VERBS, datagram.sender[0] == self._commander
            reason = "invalid.command_refused" if is_known else "invalid.unknown_command"
            self.counts["command" if is_known and is_allowed else reason] += 1
        elif data[1] == 1:
            self._take_fragment(datagram, now)
        else:
            self.counts["invalid.type"] += 1

    def _accept(self, sender: Address, payload: bytes, tags: bytes) -> None:
        self.by_host[sender[0]] += 1
        self.counts["accepted"] += 1
        self.accepted[payload, tags.decode()] += 1

    def _take_fragment(self, datagram: Datagram, now: float) -> None:
        data = datagram.data
        if len(data) < _HEADER.size:
            self.counts["invalid.header"] += 1
            return
        _, _, count, index, size, number, total, checksum, tag_length, _ = _HEADER.unpack_from(data)
        begin = _HEADER.size + tag_length
        if begin > len(data) or index >= count or total < 0:
            self.counts["invalid.header"] += 1
            return
        part, tags = data[begin:], data[_HEADER.size : begin]
        if count == 1:
            self._observe(datagram.sender, number, now)
            self.counts["seen"] += 1
            self._settle(datagram.sender, part, tags, checksum, 1)
            return
        key, header = (datagram.sender, number), (count, size, total, checksum)
        last = total - size * (count - 1)
        is_consistent = last >= 0 and len(part) == (last if index == count - 1 else size)
        message = self._open.get(key)
        if total > self._max_size and (message is None or message.header == header):
            self._refuse(key, header, now)
        elif total > self._max_size or not is_consistent:
            self.counts["fragment.invalid"] += 1
        else:
            self._add(key, header, index, part, tags, now)

    def _refuse(self, key: _Key, header: _Header, now: float) -> None:
        self.counts["fragment.discarded"] += 1
        if self._finished.get(key, (None,))[0] != header:
            self.counts.update(("seen", "refused.oversize"))
            self._finished.pop(key, None)
            self._finished[key] = (header, "fragment.discarded", now)
            self._observe(key[0], key[1], now)

    def _add(self, key: _Key, header: _Header, index: int, part: bytes, tags: bytes, now: float) -> None:
        message = self._open.get(key)
        if message is None:
            finished = self._finished.get(key)
            if finished and finished[0] == header:
                self.counts[finished[1]] += 1
                return
            self._observe(key[0], key[1], now)
            self.counts["seen"] += 1
            message = self._open[key] = _Open(header, now)
        if message.header != header:
            self.counts["fragment.invalid"] += 1
            return
        message.touched = now
        self.counts["fragment.duplicate"] += index in message.parts
        message.parts[index] = part
        message.tags = tags or message.tags
        if len(message.parts) == header[0]:
            payload = b"".join(message.parts[number] for number in range(header[0]))
            is_valid = self._settle(key[0], payload, message.tags, header[3], header[0])
            self._finish(key, "fragment.duplicate" if is_valid else "fragment.discarded", now)
        weight = sum(open_message.header[2] + len(open_message.tags) for open_message in self._open.values())
        self.has_evicted |= weight > self._max_size

    def _settle(self, sender: Address, payload: bytes, tags: bytes, checksum: int, fragments: int) -> bool:
        is_valid = mmh3.hash(payload, 0, False) == checksum
        self.counts["fragment.used" if is_valid else "fragment.discarded"] += fragments
        if is_valid:
            self._accept(sender, payload, tags)
        else:
            self.counts["bad_checksum"] += 1
        return is_valid

    def _observe(self, address: Address, number: int, now: float) -> None:
        source = self._sources.setdefault(address, _Source(now))
        source.last_seen = now
        source.ids.add(number)

    def _count_ids(self, source: _Source, is_forgotten: bool) -> None:
        ids = sorted(source.ids)
        gaps = [after - before - 1 for before, after in itertools.pairwise(ids)]
        if is_forgotten:
            self.counts["hole"] += sum(gap for gap in gaps if gap <= self._maximum_hole)
            self.counts["jump"] += sum(gap > self._maximum_hole for gap in gaps)
        else:
            # The window of a killed receiver is gone: the holes in its latest ids are not counted.
            self.counts["hole lost with a receiver"] += sum(gap for gap in gaps if gap <= self._maximum_hole)
            self.counts["jump lost with a receiver"] += sum(gap > self._maximum_hole for gap in gaps)


class GelfRecount(PlogRecount):
    """The counts and messages of a listener of GELF. No chunk may be repeated with other bytes."""

    def __init__(self, expire_time: float) -> None:
        super().__init__(1 << 20, expire_time, 0.0, 0, "")

    def _count(self, datagram: Datagram, now: float) -> None:
        self.counts["taken"] += 1
        data = datagram.data
        if data.startswith(b"\x1e\x0f"):
            number, index, count = int.from_bytes(data[2:10], "big"), data[10], data[11]
            self._add((datagram.sender, number), (count, 0, 0, 0), index, data[12:], b"", now)
        else:
            self.counts.update(("unboxed", "seen"))
            self._accept(datagram.sender, data, b"")

    def _observe(self, address: Address, number: int, now: float) -> None:
        """Do nothing: the ids of messages are not in sequence."""

    def _settle(self, sender: Address, payload: bytes, tags: bytes, checksum: int, fragments: int) -> bool:
        self.counts["fragment.used"] += fragments
        self._accept(sender, payload, tags)
        return True


def by_name(counts: Counter[str]) -> dict[str, int]:
    """Return the counts that are not zero and that a listener has, too."""
    return {name: count for name, count in counts.items() if count and "lost with" not in name}


def stored_rows(rows: Iterable[tuple[bytes, dict[str, str]]]) -> Counter[Stored]:
    """Return the stored messages with their tags."""
    return Counter((payload, by_key.get("tags", "")) for payload, by_key in rows)
