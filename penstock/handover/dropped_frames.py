"""The counts of frames that a lagging reader missed.

Counts missed by the log daemon are kept until a frame carries them, because the log enters a listener's counts. Counts
missed by a forwarder stay here for the ledger: ``dropped``.

Crash: every step is one text on the state page, so that a receiver killed between two steps leaves a successor that
neither loses these counts nor enters them twice:

    skip     frames are about to be missed         (the reader's floor, stored next, decides)
    owed     they are missed, and the next frame carries their counts (the number in the last frame's metadata decides)

A power failure may take back this text or the floor, and spare the frame. The frame therefore names the floor as well.
It may also take the frame after the log has stored it, and the reader's position with it: only the topics tell. Each
text with counts therefore names the frame that will carry them, before that frame is written. Counts that are attached
again name the lost frames that were to carry them (``LostCounts``), also if the frame that carries them now is missed.

Damage may hit the frame that carries counts. The next frame therefore repeats them (``repeated``); the log enters them
if it has not stored the frame before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.counts import Counts, summed
from penstock.handover.paths import LOG
from penstock.handover.state_page import SKIPPED, StatePage

MAX_BUCKETS = 40
"""Limit of separate minutes, because one frame's document carries all of them."""

MAX_OWED_BYTES = 12 << 10
"""Limit of owed counts as JSON: 8 names of MAX_BUCKETS minutes are below 10 KiB.

The state page has such counts up to twice (owed, skip), and so has a frame's document.
"""
MAX_DROPPED_BYTES = 36 << 10
"""Limit of the counts of all forwarders as JSON: 15 with MAX_BUCKETS minutes, or about 240 with one."""
MAX_CARRIERS = 8
"""Limit of the lost frames by which counts are known: after more power failures in a row the oldest is forgotten."""
# Limit: minutes are merged first, because nothing is counted twice by it; the lost frames are forgotten last.
_LIMITS = (*((buckets, MAX_CARRIERS) for buckets in (MAX_BUCKETS, 30, 20, 10, 5, 1)), (1, 2), (1, 0))


class Carrier(NamedTuple):
    """A frame that carries counts: at ``begin``, or in the term behind it, in this ``epoch`` of positions.

    ``topic`` is the one of its messages; None if they go to other handlers.
    """

    epoch: str = ""
    begin: int = 0
    topic: str | None = None


class LostCounts(NamedTuple):
    """Counts that each of ``carriers`` (the newest first) was to carry: the log may have entered them already."""

    carriers: tuple[Carrier, ...]
    counts: Mapping[str, int]


OwedCounts = dict[tuple[Carrier, ...], Counts]
"""Counts by the lost frames that were to carry them; the empty tuple for counts that no frame carried yet."""


class Move(NamedTuple):
    """The move of a reader from position ``begin`` to ``to``, where the total is ``mark``."""

    begin: int = 0
    to: int = 0
    mark: int = 0


NO_MOVE = Move()


class DroppedFrameCounts:
    """Counts by name (with their bucket, as ``60@accepted``) of frames that readers missed."""

    def __init__(self, page: StatePage, carried_number: int = 0, floors: Mapping[str, int] | None = None) -> None:
        """Continue after a predecessor: its last frame has ``carried_number``; ``floors`` are the floors of readers."""
        self._page = page
        saved: dict[str, Any] = page.read(SKIPPED) or {}
        carriers = (Carrier(*saved["frame"]),) if "frame" in saved else ()
        self._owed = _owed_counts(saved.get("owed", {}), saved.get("repeats", ()), carriers)
        skip = saved.get("skip")
        self._dropped: dict[str, Any] = saved.get("dropped", {})
        self._number: int = max(carried_number, saved.get("number", 0))
        # Crash: the process was killed before it could note the frame, or a power failure has taken the newest text.
        is_carried = carried_number > saved.get("number", carried_number)
        if is_carried:
            self._owed = {}
        elif riding := saved.get("riding"):  # Compatibility: the text of an earlier version
            self._number = max(self._number, riding["number"])
            if riding["number"] > carried_number:
                carriers = (Carrier(*riding["frame"]),) if "frame" in riding else ()
                for earlier, counts in _owed_counts(riding["counts"], riding.get("repeats", ()), carriers).items():
                    _absorb(self._owed, earlier, counts)
        if skip and (floors or {}).get(skip["reader"], 0) >= skip["to"]:
            is_entered = is_carried and skip["reader"] == LOG
            self._enter(skip | {"counts": {}, "repeats": ()} if is_entered else skip, carriers)
        self._frame: Carrier | None = None
        self._is_attached = False
        self.carried = NO_MOVE
        """The last move of the log whose counts the last ``attach`` returned, or ``repeated`` has; or an empty one."""
        self.lost_counts: tuple[LostCounts, ...] = ()
        """The part of these counts that lost frames were to carry."""
        self.repeated: tuple[LostCounts, ...] = ()
        """The counts that the previous frame carries and the next one repeats; empty if it has counts of its own."""
        self._skip: dict[str, Any] | None = None
        if saved:
            self._write()

    @property
    def number(self) -> int:
        """The number of the last counts returned by ``attach``."""
        return self._number + self._is_attached

    def __bool__(self) -> bool:
        return any(self._owed.values())

    @property
    def owed_move(self) -> Move:
        """The last move of the log if counts of it are owed, or an empty one."""
        return _move(self._dropped.get(LOG, {})) if self else Move()

    def skip(
        self,
        reader: str,
        move: Move,
        counts: Mapping[str, int],
        lost: Iterable[LostCounts] = (),
        frame: Carrier | None = None,
    ) -> None:
        """Record that ``reader`` is about to be moved; its floor is stored next.

        ``lost`` is the part of ``counts`` that the missed frames repeated for lost ones. ``frame`` is the next one,
        which must carry the counts.
        """
        self._frame = frame
        if self.repeated and reader == LOG and move.to > self.repeated[0].carriers[0].begin:
            self.repeated = ()  # the frame that carries them is missed as well
        missed: OwedCounts = {(): Counts(counts)}
        for carriers, repeated in lost:
            missed[()].subtract(repeated)
            _absorb(missed, carriers, repeated)
        self._skip = {"reader": reader, **_document(_bounded(missed)), **move._asdict()}
        self._write()

    def confirm_skip(self) -> None:
        """Record that the reader's floor is stored."""
        if self._skip:
            self._enter(self._skip)
            self._skip = None
            self._write()

    def _enter(self, skip: Mapping[str, Any], frame: tuple[Carrier, ...] = ()) -> None:
        before = self._dropped.get(skip["reader"], {})
        total = Counts(before.get("counts", {}))
        for carriers, counts in _owed_counts(skip["counts"], skip.get("repeats", ()), frame).items():
            if skip["reader"] == LOG:
                _absorb(self._owed, carriers, counts)
            else:
                total.absorb(counts)
        last, move = _move(before), _move(skip)
        if last.to == move.begin:
            move = move._replace(begin=last.begin)
        self._dropped[skip["reader"]] = {**move._asdict(), "counts": total.pruned()}
        for max_buckets in (MAX_BUCKETS, 20, 10, 5, 1):
            for entry in self._dropped.values():
                entry["counts"] = fold(Counts(entry["counts"]), max_buckets).pruned()
            if len(json.dumps(self._dropped)) <= MAX_DROPPED_BYTES:
                break

    def attach(self, epoch: str = "", begin: int = 0, topic: str | None = None) -> dict[str, int]:
        """Return the counts for the next frame, under a new ``number``; see ``Carrier`` for what identifies it."""
        self.lost_counts, self._is_attached = (), bool(self)
        if not self._is_attached:
            if not self.repeated:
                self.carried = NO_MOVE
            return {}
        self.carried = self.owed_move
        self.repeated = ()  # Limit: a frame's document has no room for both
        attached: OwedCounts = {}
        for carriers, counts in self._owed.items():
            # A frame of this epoch was never written: no power failure has taken it.
            _absorb(attached, tuple(carrier for carrier in carriers if carrier.epoch != epoch), counts)
        self._owed = attached
        if self._frame != (frame := Carrier(epoch, begin, topic)):
            # Order: the text names the frame before it is written.
            self._frame = frame
            self._write()
        self.lost_counts = tuple(LostCounts(carriers, counts) for carriers, counts in self._owed.items() if carriers)
        return summed(self._owed.values()).pruned()

    def confirm_attached(self) -> None:
        """Record that this frame is in the log buffer."""
        self.repeated = ()
        if self._is_attached:
            frame = (self._frame,) if self._frame else ()
            self.repeated = tuple(LostCounts((*frame, *earlier), counts) for earlier, counts in self._owed.items())
            self._number, self._is_attached, self._owed = self.number, False, {}
            self._write()

    def _write(self) -> None:
        self._owed = _bounded(self._owed)
        owed = _document(self._owed)
        document = {"owed": owed["counts"], "repeats": owed["repeats"], "skip": self._skip}
        if self._frame:
            document["frame"] = self._frame
        self._page.write(SKIPPED, {**document, "number": self._number, "dropped": self._dropped})


def _owed_counts(
    counts: Mapping[str, int], repeats: Iterable[tuple[Any, Any]], carriers: tuple[Carrier, ...]
) -> OwedCounts:
    """Return the counts of a text, which also ``carriers`` were to carry."""
    # Compatibility: earlier versions wrote another form as ``lost``, of counts that are in ``counts`` as well.
    owed: OwedCounts = {}
    _absorb(owed, carriers, counts)
    for earlier, repeated in repeats:
        _absorb(owed, carriers + tuple(Carrier(*carrier) for carrier in earlier), repeated)
    return owed


def _absorb(owed: OwedCounts, carriers: tuple[Carrier, ...], counts: Mapping[str, int]) -> None:
    if any(counts.values()):
        owed.setdefault(carriers, Counts()).absorb(counts)


def _document(owed: OwedCounts) -> dict[str, Any]:
    """Return a mapping for JSON, as ``_owed_counts`` takes it."""
    repeats = [(carriers, counts.pruned()) for carriers, counts in owed.items() if carriers]
    return {"counts": owed.get((), Counts()).pruned(), "repeats": repeats}


def _bounded(owed: OwedCounts) -> OwedCounts:
    """Merge old minutes, and then forget lost frames, until the counts are within MAX_OWED_BYTES."""
    for max_buckets, max_carriers in _LIMITS:
        oldest = _oldest_bucket((name for counts in owed.values() for name in counts), max_buckets)
        bounded: OwedCounts = {}
        for carriers, counts in owed.items():
            _absorb(bounded, carriers[:max_carriers], _merge_before(oldest, counts))
        if len(json.dumps(_document(bounded))) <= MAX_OWED_BYTES:
            break
    return bounded


def fold(counts: Counts, max_buckets: int = MAX_BUCKETS) -> Counts:
    """Keep the newest buckets; older counts are added to the oldest of them."""
    return _merge_before(_oldest_bucket(counts, max_buckets), counts)


def _oldest_bucket(names: Iterable[str], max_buckets: int) -> int:
    buckets = sorted({int(name.partition("@")[0]) for name in names})
    return buckets[-max_buckets] if len(buckets) > max_buckets else 0


def _merge_before(oldest: int, counts: Counts) -> Counts:
    if not oldest:
        return counts
    merged = Counts()
    for name, count in counts.items():
        bucket, _, plain_name = name.partition("@")
        merged[f"{max(int(bucket), oldest)}@{plain_name}"] += count
    return merged


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
