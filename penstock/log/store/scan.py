"""Search for the batches in a segment's bytes, after any damage.

Invariant: a damaged batch never hides the ones behind it. The scan continues where the index says, otherwise at the
next 8-byte boundary with a whole message whose checksum, position and offset are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.log.store import batch_format, index
from penstock.log.store.batch_format import IpcMessage
from penstock.records import CONTINUATION, BadBatch


@dataclass(slots=True)
class Scan:
    """The content of a segment's bytes.

    ``records`` are dense and cover all offsets [first, end); ``bad`` are the indices of the unreadable ones;
    ``messages`` are the readable ones. ``length`` is the end of the last readable message; after it come ``lost`` bad
    records and, up to ``size``, unknown bytes.
    """

    preamble: int
    size: int
    length: int
    end: int
    last: int
    records: index.IndexRecords = field(default_factory=lambda: index.EMPTY)
    bad: list[int] = field(default_factory=list)
    messages: list[IpcMessage] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Return the number of bad records behind the last readable one."""
        return sum(1 for number in self.bad if self.records["position"][number] >= self.length)


def scan(data: pa.Buffer, first: int, hints: index.IndexRecords, claim: tuple[int, int] | None = None) -> Scan:
    """Read all batches of a segment that starts at offset ``first``.

    ``hints`` are the remains of its index, ``claim`` is its synced length and end offset: batches that they mention
    and the data lacks are bad, not absent.
    """
    walk = _Walk(data, first, hints)
    while walk.position < walk.size and (walk.take_message() or walk.skip()):
        pass
    walk.add_lost_rest(claim or (0, 0))
    return walk.to_scan()


class _Walk:
    """A pass over a segment."""

    def __init__(self, data: pa.Buffer, first: int, hints: index.IndexRecords) -> None:
        self.data = data
        self.size: int = data.size
        self._first = first
        # Hints come from damaged files: a record with a wrong check or an impossible range would send the scan astray.
        sound = index.valid(hints) & (hints["base"] >= first) & (hints["rows"] > 0) & (hints["length"] >= 0)
        self._hints = hints[sound]
        self.position = self.preamble = self._first_position()
        self._end = first
        self._time = 0
        self._length = self.position
        self._records: list[tuple[Any, ...]] = []
        self._bad: list[int] = []
        self._messages: list[IpcMessage] = []

    def _first_position(self) -> int:
        try:
            return batch_format.preamble_length(self.data)
        except BadBatch:
            first = self._hints[self._hints["base"] == self._first]
            return int(first["position"][0]) if len(first) else int(batch_format.PREAMBLE.size)

    def take_message(self) -> bool:
        """Take the message at the current position; return False if it is unreadable."""
        message = self._message(self.position)
        if message is None:
            return False
        if message.base > self._end:
            # The offsets in between were assigned to rows whose bytes are gone.
            self._add_bad(index.bad_record(self._end, message.base - self._end, self.position, 0, self._time))
        self._records.append(index.record(message))
        self._messages.append(message)
        self._end, self._time = message.end, message.last
        self.position = self._length = message.position + message.length
        return True

    def skip(self) -> bool:
        """Pass over unreadable bytes; return False if nothing readable or indexed follows."""
        hint = self._next_hint()
        if hint is not None and (hint["position"], hint["base"]) == (self.position, self._end):
            self._add_lost_batch(hint)
            return True
        # Limit: the search for a message ends at the next indexed one, so a scan stays linear in the file's size.
        limit = int(hint["position"]) if hint is not None else self.size
        base, position = int(hint["base"]) if hint is not None else 0, limit
        message = next(self._readable_messages(self.position + 8, limit), None)
        if message is not None:
            base, position = message.base, message.position
        elif hint is None:
            return False
        length = position - self.position
        self._add_bad(index.bad_record(self._end, base - self._end, self.position, length, self._time))
        self._end, self.position = base, position
        return True

    def add_lost_rest(self, claim: tuple[int, int]) -> None:
        """Record as bad the batches that index or claim mention behind the last readable one."""
        while (hint := self._next_hint()) is not None:
            if (missing := int(hint["base"]) - self._end) > 0:
                self._add_bad(index.bad_record(self._end, missing, self.position, 0, self._time))
            self._add_lost_batch(hint)
        length, end = claim
        if end > self._end:
            rest = max(0, min(length, self.size) - self.position)
            self._add_bad(index.bad_record(self._end, end - self._end, self.position, rest, self._time))
            self._end = end

    def to_scan(self) -> Scan:
        packed = index.pack(self._records)
        return Scan(self.preamble, self.size, self._length, self._end, self._time, packed, self._bad, self._messages)

    def _message(self, position: int) -> IpcMessage | None:
        try:
            message = batch_format.parse(self.data, position)
        except BadBatch:
            return None
        return message if message.base >= self._end and message.rows > 0 else None

    def _next_hint(self) -> Any:
        """Return the first index record at or behind the current position and offset; None if there is none."""
        behind = self._hints[(self._hints["position"] >= self.position) & (self._hints["base"] >= self._end)]
        return behind[np.argmin(behind["position"])] if len(behind) else None

    def _add_lost_batch(self, hint: Any) -> None:
        self._add_bad((*hint.tolist()[:3], self.position, *hint.tolist()[4:]))
        self._end, self._time = int(hint["base"] + hint["rows"]), int(hint["last"])
        self.position += int(hint["length"])

    def _add_bad(self, record: tuple[Any, ...]) -> None:
        self._bad.append(len(self._records))
        self._records.append(record)

    def _readable_messages(self, begin: int, limit: int) -> Iterator[IpcMessage]:
        """Yield the readable messages that start in [begin, limit)."""
        for position in _candidates(self.data, begin, limit):
            if (message := self._message(position)) is not None:
                yield message


def _candidates(data: pa.Buffer, begin: int, limit: int) -> Iterator[int]:
    """Yield the 8-byte boundaries where a message may start: a continuation mark and a possible length.

    Fast path: one numpy pass over the bytes instead of a parse at each boundary.
    """
    begin += -begin % 8
    whole = (data.size - begin) // 8
    if whole <= 0 or begin >= limit:
        return
    words = np.frombuffer(memoryview(data), "<i4", 2 * whole, begin).reshape(-1, 2)[: (limit - begin + 7) // 8]
    lengths = words[:, 1]
    plausible = (words[:, 0].view("<u4") == CONTINUATION) & (lengths > 0) & (lengths % 8 == 0)
    for number in np.flatnonzero(plausible & (lengths <= data.size - begin)):
        yield begin + 8 * int(number)
