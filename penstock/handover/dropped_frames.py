"""The counts of frames that a lagging reader missed.

Counts missed by the log daemon are kept until a frame carries them, because the log enters a listener's counts. Counts
missed by a forwarder stay here for the ledger: ``dropped``.

Crash: every step is one text on the state page, so that a receiver killed between two steps leaves a successor that
neither loses these counts nor enters them twice:

    skip     frames are about to be missed         (the reader's floor, stored next, decides)
    owed     they are missed; no frame carries their counts yet
    riding   a frame with this number carries them (the number in the last frame's metadata decides)

A power failure may take back this text or the floor, and spare the frame. The frame therefore names the floor as well.
It may also take the frame after the log has stored it, and the reader's position with it: only the topics tell. The
next frame that carries the counts therefore names the lost one (``Carrier``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.counts import Counts
from penstock.handover.paths import LOG
from penstock.handover.state_page import SKIPPED, StatePage

MAX_BUCKETS = 40
"""Limit of separate minutes, because one frame's document carries all of them."""

MAX_CARRIERS_BYTES = 8 << 10
"""Limit of the lost frames that a frame names, because their counts are in its document a second time."""


class Carrier(NamedTuple):
    """A frame that was to carry ``counts``: at ``begin``, or in the term behind it, in this ``epoch`` of positions.

    ``topic`` is the one of its messages; None for a frame without any for the log.
    """

    epoch: str
    begin: int
    topic: str | None
    counts: Mapping[str, int]


class Move(NamedTuple):
    """The move of a reader from position ``begin`` to ``to``, where the total is ``mark``."""

    begin: int = 0
    to: int = 0
    mark: int = 0


class DroppedFrameCounts:
    """Counts by name (with their bucket, as ``60@accepted``) of frames that readers missed."""

    def __init__(self, page: StatePage, rode: int = 0, floors: Mapping[str, int] | None = None) -> None:
        """Continue after a predecessor: ``rode`` is the number in its last frame, ``floors`` maps readers to floors."""
        self._page = page
        saved: dict[str, Any] = page.read(SKIPPED) or {}
        self._owed = Counts(saved.get("owed", {}))
        riding, skip = saved.get("riding"), saved.get("skip")
        # Crash: the newest text is damaged or was not on the disk, and this is an older one.
        is_carried = rode > saved.get("number", rode)
        self._lost: tuple[Carrier, ...] = tuple(Carrier(*entry) for entry in saved.get("lost", ()) if not is_carried)
        self._dropped: dict[str, Any] = saved.get("dropped", {})
        self._number = max(rode, riding["number"] if riding else 0)
        if is_carried:
            self._owed = Counts()
        elif riding and riding["number"] > rode:
            self._owed.absorb(riding["counts"])
            self._lost = _lost_carriers(riding) if "frame" in riding else ()
        if skip and (floors or {}).get(skip["reader"], 0) >= skip["to"]:
            self._enter(skip | {"counts": {}} if is_carried and skip["reader"] == LOG else skip)
        self._riding: dict[str, Any] | None = None
        self.carried = Move()
        """The last move of the log whose counts the last ``ride`` returned; an empty one without counts."""
        self.lost_carriers: tuple[Carrier, ...] = ()
        """The lost frames, newest first, that may have carried these counts; a frame's include an older frame's."""
        self._skip: dict[str, Any] | None = None
        if saved:
            self._write()

    @property
    def number(self) -> int:
        """The number of the last counts returned by ``ride``."""
        return self._number

    def __bool__(self) -> bool:
        return bool(self._owed)

    @property
    def owed_move(self) -> Move:
        """The last move of the log if counts of it are owed, or an empty one."""
        return _move(self._dropped.get(LOG, {})) if self._owed else Move()

    def skip(self, reader: str, move: Move, counts: Mapping[str, int]) -> None:
        """Record that ``reader`` is about to be moved; its floor is stored next."""
        self._skip = {"reader": reader, "counts": dict(counts), **move._asdict()}
        self._write()

    def confirm_skip(self) -> None:
        """Record that the reader's floor is stored."""
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

    def ride(self, epoch: str = "", begin: int = 0, topic: str | None = None) -> dict[str, int]:
        """Return the counts for the next frame, under a new ``number``; see ``Carrier`` for what identifies it."""
        self.carried, self.lost_carriers, self._lost = self.owed_move, self._lost, ()
        if not self._owed:
            return {}
        self._number += 1
        frame = (epoch, begin, topic)
        self._riding = {
            "number": self._number,
            "counts": self._owed.pruned(),
            "frame": frame,
            "lost": self.lost_carriers,
        }
        self._owed = Counts()
        self._write()
        return dict(self._riding["counts"])

    def confirm_ride(self) -> None:
        """Record that this frame is in the log buffer."""
        if self._riding:
            self._riding = None
            self._write()

    def _write(self) -> None:
        self._owed = fold(self._owed)
        document = {"owed": self._owed.pruned(), "riding": self._riding, "skip": self._skip, "number": self._number}
        self._page.write(SKIPPED, {**document, "lost": self._lost, "dropped": self._dropped})


def _lost_carriers(riding: Mapping[str, Any]) -> tuple[Carrier, ...]:
    """Return the frames that were to carry these counts, the newest ones within the limit."""
    newest = (*riding["frame"], riding["counts"])
    carriers = tuple(Carrier(*entry) for entry in (newest, *riding["lost"]))
    while len(json.dumps(carriers)) > MAX_CARRIERS_BYTES:
        carriers = carriers[:-1]
    return carriers


def fold(counts: Counts) -> Counts:
    """Keep the newest MAX_BUCKETS buckets; older counts are added to the oldest of them."""
    buckets = sorted({int(name.partition("@")[0]) for name in counts})
    if len(buckets) <= MAX_BUCKETS:
        return counts
    oldest, folded = buckets[-MAX_BUCKETS], Counts()
    for name, count in counts.items():
        bucket, _, plain_name = name.partition("@")
        folded[f"{max(int(bucket), oldest)}@{plain_name}"] += count
    return folded


def moved_readers(page: StatePage) -> list[str]:
    """Return the readers that were ever moved."""
    return sorted((page.read(SKIPPED) or {}).get("dropped", {}))


def last_move(page: StatePage, reader: str) -> Move:
    """Return the last contiguous move of ``reader``, or an empty one."""
    return _move((page.read(SKIPPED) or {}).get("dropped", {}).get(reader, {}))


def _move(entry: Mapping[str, Any]) -> Move:
    return Move(*(int(entry[name]) for name in Move._fields)) if entry else Move()


def dropped(page: StatePage, reader: str, floor: int) -> tuple[int, dict[str, int]]:
    """Return the total where a forwarder was last moved to, and its missed counts as ``60@policy_drop``.

    ``floor`` is that of its position file: a killed writer may not have confirmed the last move.
    """
    document = page.read(SKIPPED) or {}
    entry, skip = document.get("dropped", {}).get(reader, {}), document.get("skip")
    mark, counts = int(entry.get("mark", 0)), Counts(entry.get("counts", {}))
    if skip and skip["reader"] == reader and skip["to"] <= floor:
        mark = int(skip["mark"])
        counts.absorb(skip["counts"])
    return mark, dict(counts)
