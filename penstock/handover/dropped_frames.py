"""The counts of frames that a lagging reader missed.

Those that the log daemon missed are kept safe until they ride with a frame, as it is the log that enters a
listener's counts. Those that a forwarder missed stay here, for the ledger to read: ``dropped``.

Every step is one text on the state page, so that a receiver killed between any two of them leaves a
successor that neither loses these counts nor enters them twice:

    skip     frames are about to be missed        (decided by the reader's floor, stored next)
    owed     they are missed; nobody was told yet
    riding   a frame with this number carries them (decided by the number in the last frame's receipt)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.counts import Counts
from penstock.handover.paths import LOG
from penstock.handover.state_page import SKIPPED, StatePage

MOST_BUCKETS = 40
"""Minutes of counts that are kept apart: they ride in one frame's document."""


class Move(NamedTuple):
    """A reader is moved from position ``begin`` to ``to``, where the total is ``mark``."""

    begin: int = 0
    to: int = 0
    mark: int = 0


class DroppedFrameCounts:
    """Counts by name (with their bucket, as ``60@accepted``) of frames that readers missed."""

    def __init__(self, page: StatePage, rode: int = 0, floors: Mapping[str, int] | None = None) -> None:
        """Take over from a predecessor: ``rode`` is the number its last frame carried, ``floors`` are the readers'."""
        self._page = page
        left: dict[str, Any] = page.read(SKIPPED) or {}
        self._owed = Counts(left.get("owed", {}))
        riding, skip = left.get("riding"), left.get("skip")
        self._dropped: dict[str, Any] = left.get("dropped", {})
        for reader, floor in (floors or {}).items():  # versions before did not say where they moved a reader
            if floor and "to" not in self._dropped.get(reader, {}):
                told = {"mark": 0, "counts": {}} | self._dropped.get(reader, {})
                self._dropped[reader] = told | {"begin": floor, "to": floor}
        self._number = max(rode, riding["number"] if riding else 0)
        if riding and riding["number"] != rode:
            self._owed.absorb(riding["counts"])
        elif not riding and rode > left.get("number", rode):
            self._owed = Counts()  # they rode: the text that said so is damaged, and this is the one before it
        if skip and (floors or {}).get(skip["reader"], 0) >= skip["to"]:
            self._enter(skip)
        self._riding: dict[str, Any] | None = None
        self._skip: dict[str, Any] | None = None
        if left:
            self._write()

    @property
    def number(self) -> int:
        """Number of the last counts handed out by ``ride``."""
        return self._number

    def __bool__(self) -> bool:
        return bool(self._owed)

    def skip(self, reader: str, move: Move, counts: Mapping[str, int]) -> None:
        """``reader`` is about to be moved on (its floor is stored next)."""
        self._skip = {"reader": reader, "counts": dict(counts), **move._asdict()}
        self._write()

    def skipped(self) -> None:
        """The reader's floor is stored."""
        if self._skip:
            self._enter(self._skip)
            self._skip = None
            self._write()

    def _enter(self, skip: Mapping[str, Any]) -> None:
        before = self._dropped.get(skip["reader"], {})
        total = Counts(before.get("counts", {}))
        (self._owed if skip["reader"] == LOG else total).absorb(skip["counts"])
        last, move = _move(before), _move(skip)
        if last.to == move.begin:
            move = move._replace(begin=last.begin)
        self._dropped[skip["reader"]] = {**move._asdict(), "counts": fold(total).pruned()}

    def ride(self) -> dict[str, int]:
        """What the next frame carries, under a new ``number``."""
        if not self._owed:
            return {}
        self._number += 1
        self._riding = {"number": self._number, "counts": self._owed.pruned()}
        self._owed = Counts()
        self._write()
        return dict(self._riding["counts"])

    def rode(self) -> None:
        """That frame is in the log buffer."""
        if self._riding:
            self._riding = None
            self._write()

    def _write(self) -> None:
        self._owed = fold(self._owed)
        document = {"owed": self._owed.pruned(), "riding": self._riding, "skip": self._skip, "number": self._number}
        self._page.write(SKIPPED, {**document, "dropped": self._dropped})


def fold(counts: Counts) -> Counts:
    """The newest MOST_BUCKETS buckets; what is older is entered in the oldest of them."""
    buckets = sorted({int(name.partition("@")[0]) for name in counts})
    if len(buckets) <= MOST_BUCKETS:
        return counts
    oldest, folded = buckets[-MOST_BUCKETS], Counts()
    for name, count in counts.items():
        bucket, _, own = name.partition("@")
        folded[f"{max(int(bucket), oldest)}@{own}"] += count
    return folded


def moved_readers(page: StatePage) -> list[str]:
    """The readers that were ever moved on."""
    return sorted((page.read(SKIPPED) or {}).get("dropped", {}))


def last_move(page: StatePage, reader: str) -> Move:
    """Where ``reader`` was last moved on, without a break; an empty one where it never was."""
    return _move((page.read(SKIPPED) or {}).get("dropped", {}).get(reader, {}))


def _move(entry: Mapping[str, Any]) -> Move:
    return Move(**{name: int(entry[name]) for name in Move._fields if name in entry})


def dropped(page: StatePage, reader: str, floor: int) -> tuple[int, dict[str, int]]:
    """What a forwarder missed up to now: the total where it was last moved to, and counts as ``60@policy_drop``.

    ``floor``: where its position file says that was; a writer that was killed then has not entered the last counts.
    """
    document = page.read(SKIPPED) or {}
    entry, skip = document.get("dropped", {}).get(reader, {}), document.get("skip")
    mark, counts = int(entry.get("mark", 0)), Counts(entry.get("counts", {}))
    if skip and skip["reader"] == reader and skip["to"] <= floor:
        mark = int(skip["mark"])
        counts.absorb(skip["counts"])
    return mark, dict(counts)
