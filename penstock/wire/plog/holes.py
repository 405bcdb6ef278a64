"""Detection of holes in the message ids of each sender.

Each source (address and port) has a sorted window of its latest ids. When an id is pushed out of the window and
the next id is not its successor, the ids between them were lost: a *hole* of that many messages if there are at most
``maximum_hole``, else one *jump*. An id that arrives after its hole was counted is subtracted from it. Ids are
unsigned, 32 bits, and wrap.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.wire.datagrams import Ints

_WRAP = 1 << 32
_HALF = 1 << 31


@dataclass(frozen=True, slots=True)
class HoleSettings:
    """Limits of the detection.

    ``ports``: sources remembered; ``ids_per_port``: ids per source; ``expire_time``: seconds of silence until a source
    is forgotten.
    """

    enabled: bool = True
    ports: int = 1024
    ids_per_port: int = 10
    expire_time: float = 60.0
    maximum_hole: int = 10


@dataclass(slots=True)
class HolesAndJumps:
    """Changes of the counts: ``hole`` in lost messages (negative after late arrivals), ``jump`` in jumps.

    ``dead``: the part of ``hole`` that was still open when its source was forgotten. ``by_address``: ``hole`` by the
    address of the source.
    """

    hole: int = 0
    jump: int = 0
    dead: int = 0
    by_address: dict[int, int] = field(default_factory=dict, compare=False)

    def attribute(self, address: int, hole_before: int) -> None:
        """Attribute the growth of ``hole`` since ``hole_before`` to an address."""
        if growth := self.hole - hole_before:
            self.by_address[address] = self.by_address.get(address, 0) + growth


@dataclass(slots=True)
class _Source:
    """State of one sender. ``window`` and ``missing`` hold ids unwrapped to plain integers."""

    window: list[int]
    last_seen: float
    floor: int | None = None  # the last id that was pushed out
    missing: dict[int, None] = field(default_factory=dict)  # counted as holes, oldest first


class HoleDetector:
    """Windows of at most ``ports`` sources of ``ids_per_port`` ids each; the longest silent source is dropped first."""

    def __init__(self, settings: HoleSettings) -> None:
        self._settings = settings
        self._sources: OrderedDict[tuple[int, int], _Source] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sources)

    def observe(self, addresses: npt.NDArray[np.uint64], ports: Ints, ids: Ints, now: float) -> HolesAndJumps:
        """Add the ids of new messages in order of arrival; each array has one entry per message."""
        holes = self.expire(now)
        for source, run in _by_source(addresses, ports, ids):
            self._observe_source(source, run, now, holes)
        return holes

    def expire(self, now: float) -> HolesAndJumps:
        """Forget sources that have been silent for ``expire_time``."""
        holes = HolesAndJumps()
        limit = now - self._settings.expire_time
        while self._sources and next(iter(self._sources.values())).last_seen <= limit:
            self._forget(holes)
        return holes

    def _observe_source(self, key: tuple[int, int], ids: Ints, now: float, holes: HolesAndJumps) -> None:
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = _Source([int(ids[0])], now)
            ids = ids[1:]
        source.last_seen = now
        self._sources.move_to_end(key)
        # Limit: senders choose their ports, so the number of sources decides memory unless it is bounded.
        if len(self._sources) > self._settings.ports:
            self._forget(holes)
        if not self._extend_run(source, ids):
            hole_before = holes.hole
            for number in ids.tolist():
                self._insert(source, number, holes)
            holes.attribute(key[0], hole_before)

    def _extend_run(self, source: _Source, ids: Ints) -> bool:
        """Add ``ids`` at once if they and the window form one unbroken ascending run; report whether they do."""
        # Fast path: a sender without loss costs one comparison of arrays per round, whatever the number of its
        # messages.
        window, capacity = source.window, self._settings.ids_per_port
        top = window[-1]
        unbroken = top - window[0] == len(window) - 1 and bool((ids == (top + 1 + np.arange(len(ids))) % _WRAP).all())
        if unbroken:
            first, last = window[0], top + len(ids)
            bottom = max(first, last - capacity + 1)
            source.window = list(range(bottom, last + 1))
            source.floor = bottom - 1 if bottom > first else source.floor
        return unbroken

    def _insert(self, source: _Source, number: int, holes: HolesAndJumps) -> None:
        window, largest = source.window, self._settings.maximum_hole
        # Unwrap: the id is taken as the nearest one to the newest id, up to 2^31 ahead or behind.
        number = window[-1] + (number - window[-1] + _HALF) % _WRAP - _HALF
        floor = source.floor if source.floor is not None else window[0] - 1
        if number <= floor and floor - number > largest and number not in source.missing:
            self._restart(source, number, holes)
        elif source.floor is not None and number < window[0]:
            holes.hole -= source.missing.pop(number, 0) is None
        elif window[0] > number or _is_absent(window, number):
            insort(window, number)
            if len(window) > self._settings.ids_per_port:
                self._push_out(source, holes)

    def _push_out(self, source: _Source, holes: HolesAndJumps) -> None:
        source.floor = floor = source.window.pop(0)
        gap = source.window[0] - floor - 1
        if gap > self._settings.maximum_hole:
            holes.jump += 1
        elif gap > 0:
            holes.hole += gap
            source.missing.update(dict.fromkeys(range(floor + 1, floor + 1 + gap)))
            # Limit: ids that wait for late arrivals are bounded per source; beyond it the oldest hole is final.
            while len(source.missing) > self._settings.ids_per_port * self._settings.maximum_hole:
                del source.missing[next(iter(source.missing))]

    def _restart(self, source: _Source, number: int, holes: HolesAndJumps) -> None:
        """Start a new window: an id far behind all remembered ids means that the sender restarted."""
        self._settle(source, holes)
        holes.jump += 1
        source.window, source.floor = [number], None
        source.missing.clear()

    def _settle(self, source: _Source, holes: HolesAndJumps) -> int:
        """Count the gaps that are still open in the window; return the number of messages in its holes."""
        gaps = np.diff(source.window) - 1
        is_hole = gaps <= self._settings.maximum_hole
        holes.jump += int((~is_hole).sum())
        hole = int(gaps[is_hole].sum())
        holes.hole += hole
        return hole

    def _forget(self, holes: HolesAndJumps) -> None:
        (address, _), source = self._sources.popitem(last=False)
        hole_before = holes.hole
        holes.dead += self._settle(source, holes)
        holes.attribute(address, hole_before)


def _is_absent(window: list[int], number: int) -> bool:
    index = bisect_left(window, number)
    return index == len(window) or window[index] != number


def _by_source(addresses: npt.NDArray[np.uint64], ports: Ints, ids: Ints) -> Iterator[tuple[tuple[int, int], Ints]]:
    """Yield each source with its ids in order of arrival."""
    if not len(ids):
        return
    order = np.lexsort((ports, addresses))
    address, port, number = addresses[order], ports[order], ids[order]
    begins = np.flatnonzero(np.r_[True, (np.diff(port) != 0) | (address[1:] != address[:-1])])
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(ids)], strict=True):
        yield (int(address[begin]), int(port[begin])), number[begin:end]
