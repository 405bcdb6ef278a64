"""A buffer of incomplete messages as simply as can be: lists, searched from their beginnings.

With ``original`` it does what the Java library does, faults included; without, what was decided to be better.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

Key = tuple[str, int]
NOTHING = (1 << 63) - 1


@dataclass
class Held:
    partition: Key
    id: UUID
    count: int
    size: int
    start: int
    parts: dict[int, bytes] = field(default_factory=dict)
    short: int | None = None
    """The part that came last and left the whole too short."""

    def bytes(self, with_short: bool) -> int:
        return sum(len(part) for sequence, part in self.parts.items() if with_short or sequence != self.short)


class Refused(Exception):
    """InvalidSegmentException."""


class Dropped(Exception):
    """LargeMessageDroppedException."""


class Broken(Exception):
    """IllegalStateException: the original lost its way."""


class NaivePool:
    def __init__(self, capacity: int, gap: int, raises: bool, *, original: bool) -> None:
        self.capacity, self.gap, self.raises, self.original = capacity, gap, raises, original
        self.used = 0
        self.held: list[Held] = []
        self.tracked: list[tuple[Key, UUID, int]] = []
        self.known_partitions: set[Key] = set()
        self.completed: list[tuple[Key, UUID, int, int, int]] = []

    def _find(self, partition: Key, id_: UUID) -> Held | None:
        for held in self.held:
            if held.id == id_ and (self.original or held.partition == partition):
                return held
        return None

    def add(self, partition: Key, offset: int, id_: Any, seq: int, num: int, size: int, part: Any) -> Any:
        """(message or None, bytes added, starting offset)."""
        if id_ is None or part is None or size < 0 or num <= 0 or not 0 <= seq < num or len(part) > size:
            raise Refused
        held = self._find(partition, id_)
        if held is None and any(
            one[:4] == (partition, id_, num, size) and one[4] >= offset - self.gap for one in self.completed
        ):
            self._make_room(partition, offset)
            return None, 0, offset
        fresh = held is None
        if held is None:
            held = Held(partition, id_, num, size, offset)
            if self.original:
                self.held.append(held)
        if held.start > offset or len(part) >= self.capacity or not part:
            raise Refused
        if (held.count, held.size) != (num, size):
            raise Refused
        if seq not in held.parts and held.bytes(True) + len(part) > size:
            raise Refused
        if seq in held.parts:
            return self._after(partition, offset, held, None, 0)
        if len(held.parts) + 1 == num and held.bytes(True) + len(part) != size:
            if self.original or not fresh:
                held.parts[seq], held.short = part, seq
            raise Refused
        held.parts[seq] = part
        self.used += len(part)
        if fresh and not self.original:
            self.held.append(held)
        if len(held.parts) == num:
            return self._complete(partition, offset, held, len(part))
        return self._after(partition, offset, held, None, len(part))

    def _complete(self, partition: Key, offset: int, held: Held, added: int) -> Any:
        self._remove(held)
        if self.original and partition not in self.known_partitions:
            raise Broken
        self._untrack(partition, held.id)
        whole = b"".join(held.parts[sequence] for sequence in range(held.count))
        told = self._after(partition, offset, held, whole, added)
        if not self.original:
            self.completed.append((partition, held.id, held.count, held.size, offset))
        return told

    def _after(self, partition: Key, offset: int, held: Held, whole: bytes | None, added: int) -> Any:
        if whole is None:
            self.known_partitions.add(partition)
            if not any(one[:2] == (partition, held.id) for one in self.tracked):
                self.tracked.append((partition, held.id, offset))
        self._make_room(partition, offset)
        return whole, added, held.start

    def _make_room(self, partition: Key, offset: int) -> None:
        while self.used > self.capacity:
            eldest = self.held[0]
            self._remove(eldest)
            self._untrack(eldest.partition, eldest.id)
            if self.raises:
                raise Dropped
        self.expire(partition, offset)

    def _remove(self, held: Held) -> None:
        self.held.remove(held)
        self.used -= held.bytes(with_short=self.original)

    def _untrack(self, partition: Key, id_: UUID) -> None:
        self.tracked = [one for one in self.tracked if one[:2] != (partition, id_)]

    def expire(self, partition: Key, offset: int) -> None:
        for one in [one for one in self.tracked if one[0] == partition]:
            if one[2] >= offset - self.gap:
                break
            self.tracked.remove(one)
            held = self._find(partition, one[1])
            if held is not None:
                self._remove(held)
        self.completed = [one for one in self.completed if one[0] != partition or one[4] >= offset - self.gap]

    def safe_offset(self, partition: Key, current: int) -> int:
        self.expire(partition, current)
        return next((offset for of, _, offset in self.tracked if of == partition), NOTHING)

    def safe_offsets(self) -> dict[Key, int]:
        return {of: self.safe_offset(of, -NOTHING) for of in {of for of, _, _ in self.tracked}}

    def clear(self, partition: Key) -> None:
        for held in [held for held in self.held if held.partition == partition]:
            self._remove(held)
        self.tracked = [one for one in self.tracked if one[0] != partition]
        self.completed = [one for one in self.completed if one[0] != partition]
