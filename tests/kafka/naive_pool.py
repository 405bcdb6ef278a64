"""A buffer of incomplete messages in its simplest form: lists, searched from their beginnings. With ``original`` it
behaves like the Java library, faults included; without, as Penstock decided.
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

    def _held_message(self, partition: Key, id_: UUID) -> Held | None:
        for held in self.held:
            if held.id == id_ and (self.original or held.partition == partition):
                return held
        return None

    def add(self, partition: Key, offset: int, id_: Any, seq: int, num: int, size: int, part: Any) -> Any:
        """Return the message or None, the bytes added, and the starting offset."""
        if id_ is None or part is None or size < 0 or num <= 0 or not 0 <= seq < num or len(part) > size:
            raise Refused
        held = self._held_message(partition, id_)
        if held is None and any(
            entry[:4] == (partition, id_, num, size) and entry[4] >= offset - self.gap for entry in self.completed
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
        message = b"".join(held.parts[sequence] for sequence in range(held.count))
        outcome = self._after(partition, offset, held, message, added)
        if not self.original:
            self.completed.append((partition, held.id, held.count, held.size, offset))
        return outcome

    def _after(self, partition: Key, offset: int, held: Held, message: bytes | None, added: int) -> Any:
        if message is None:
            self.known_partitions.add(partition)
            if not any(entry[:2] == (partition, held.id) for entry in self.tracked):
                self.tracked.append((partition, held.id, offset))
        self._make_room(partition, offset)
        return message, added, held.start

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
        self.tracked = [entry for entry in self.tracked if entry[:2] != (partition, id_)]

    def expire(self, partition: Key, offset: int) -> None:
        for entry in [entry for entry in self.tracked if entry[0] == partition]:
            if entry[2] >= offset - self.gap:
                break
            self.tracked.remove(entry)
            held = self._held_message(partition, entry[1])
            if held is not None:
                self._remove(held)
        self.completed = [entry for entry in self.completed if entry[0] != partition or entry[4] >= offset - self.gap]

    def safe_offset(self, partition: Key, current: int) -> int:
        self.expire(partition, current)
        return next((offset for of, _, offset in self.tracked if of == partition), NOTHING)

    def safe_offsets(self) -> dict[Key, int]:
        return {of: self.safe_offset(of, -NOTHING) for of in {of for of, _, _ in self.tracked}}

    def clear(self, partition: Key) -> None:
        for held in [held for held in self.held if held.partition == partition]:
            self._remove(held)
        self.tracked = [entry for entry in self.tracked if entry[0] != partition]
        self.completed = [entry for entry in self.completed if entry[0] != partition]
