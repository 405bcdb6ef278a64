"""Detection of holes in the message ids of each sender.

Every source (address and port) has a sorted window of its last ids. When an id is pushed out and the next
one in the window is not its successor, the ids between were lost: a *hole* of that many messages where
there are at most ``maximum_hole``, else one *jump*. An id that arrives after its hole was counted takes
itself back out of it. Ids are unsigned, 32 bits, and wrap.
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
    """``ports``: sources remembered; ``ids_per_port``: ids of each; ``expire_time``: seconds of silence."""

    enabled: bool = True
    ports: int = 1024
    ids_per_port: int = 10
    expire_time: float = 60.0
    maximum_hole: int = 10


@dataclass(slots=True)
class HolesAndJumps:
    """Differences: ``hole`` in lost messages (negative where late ones came in), ``jump`` in jumps.

    ``dead`` is the part of ``hole`` that was still open when its source was forgotten.
    """

    hole: int = 0
    jump: int = 0
    dead: int = 0


@dataclass(slots=True)
class _Source:
    """One sender. ``window`` and ``missing`` hold ids unwrapped to plain integers."""

    window: list[int]
    seen: float
    floor: int | None = None  # the last id that was pushed out
    missing: dict[int, None] = field(default_factory=dict)  # counted as holes, oldest first


class HoleDetector:
    """Windows of at most ``ports`` sources of ``ids_per_port`` ids; the source silent longest goes first."""

    def __init__(self, settings: HoleSettings) -> None:
        self._settings = settings
        self._sources: OrderedDict[tuple[int, int], _Source] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sources)

    def observe(self, addresses: npt.NDArray[np.uint64], ports: Ints, ids: Ints, now: float) -> HolesAndJumps:
        """Take in new messages in order of arrival, one entry of each array a message."""
        found = self.expire(now)
        for source, run in _by_source(addresses, ports, ids):
            self._observe_source(source, run, now, found)
        return found

    def expire(self, now: float) -> HolesAndJumps:
        """Forget the sources that have been silent for ``expire_time``."""
        found = HolesAndJumps()
        limit = now - self._settings.expire_time
        while self._sources and next(iter(self._sources.values())).seen <= limit:
            self._forget(found)
        return found

    def _observe_source(self, key: tuple[int, int], ids: Ints, now: float, found: HolesAndJumps) -> None:
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = _Source([int(ids[0])], now)
            ids = ids[1:]
        source.seen = now
        self._sources.move_to_end(key)
        if len(self._sources) > self._settings.ports:
            self._forget(found)
        if not self._follow_on(source, ids):
            for number in ids.tolist():
                self._insert(source, number, found)

    def _follow_on(self, source: _Source, ids: Ints) -> bool:
        """Take ``ids`` at once when they and the window are one unbroken ascending run."""
        window, keep = source.window, self._settings.ids_per_port
        top = window[-1]
        unbroken = top - window[0] == len(window) - 1 and bool((ids == (top + 1 + np.arange(len(ids))) % _WRAP).all())
        if unbroken:
            first, last = window[0], top + len(ids)
            bottom = max(first, last - keep + 1)
            source.window = list(range(bottom, last + 1))
            source.floor = bottom - 1 if bottom > first else source.floor
        return unbroken

    def _insert(self, source: _Source, number: int, found: HolesAndJumps) -> None:
        window, largest = source.window, self._settings.maximum_hole
        number = window[-1] + (number - window[-1] + _HALF) % _WRAP - _HALF
        floor = source.floor if source.floor is not None else window[0] - 1
        if number <= floor and floor - number > largest and number not in source.missing:
            self._restart(source, number, found)
        elif source.floor is not None and number < window[0]:
            found.hole -= source.missing.pop(number, 0) is None
        elif window[0] > number or _absent(window, number):
            insort(window, number)
            if len(window) > self._settings.ids_per_port:
                self._push_out(source, found)

    def _push_out(self, source: _Source, found: HolesAndJumps) -> None:
        source.floor = floor = source.window.pop(0)
        gap = source.window[0] - floor - 1
        if gap > self._settings.maximum_hole:
            found.jump += 1
        elif gap > 0:
            found.hole += gap
            source.missing.update(dict.fromkeys(range(floor + 1, floor + 1 + gap)))
            while len(source.missing) > self._settings.ids_per_port * self._settings.maximum_hole:
                del source.missing[next(iter(source.missing))]

    def _restart(self, source: _Source, number: int, found: HolesAndJumps) -> None:
        """An id far behind all that is remembered: the sender began anew."""
        self._settle(source, found)
        found.jump += 1
        source.window, source.floor = [number], None
        source.missing.clear()

    def _settle(self, source: _Source, found: HolesAndJumps) -> int:
        """Count the gaps that are still open in the window; how many messages are in its holes."""
        gaps = np.diff(source.window) - 1
        is_hole = gaps <= self._settings.maximum_hole
        found.jump += int((~is_hole).sum())
        hole = int(gaps[is_hole].sum())
        found.hole += hole
        return hole

    def _forget(self, found: HolesAndJumps) -> None:
        _, source = self._sources.popitem(last=False)
        found.dead += self._settle(source, found)


def _absent(window: list[int], number: int) -> bool:
    at = bisect_left(window, number)
    return at == len(window) or window[at] != number


def _by_source(addresses: npt.NDArray[np.uint64], ports: Ints, ids: Ints) -> Iterator[tuple[tuple[int, int], Ints]]:
    """The ids of each source, in order of arrival."""
    if not len(ids):
        return
    order = np.lexsort((ports, addresses))
    address, port, number = addresses[order], ports[order], ids[order]
    begins = np.flatnonzero(np.r_[True, (np.diff(port) != 0) | (address[1:] != address[:-1])])
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(ids)], strict=True):
        yield (int(address[begin]), int(port[begin])), number[begin:end]
