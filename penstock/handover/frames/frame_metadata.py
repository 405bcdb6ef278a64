"""The metadata of a frame: the origin of its messages, and the receiver's totals after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.counts import Counts, Origin
from penstock.handover.dropped_frames import Carrier, LostCounts
from penstock.records import BadBatch


@dataclass(frozen=True, slots=True)
class FrameMetadata:
    """The metadata of a receive round, or of a part of it.

    ``total`` counts the messages accepted into this buffer since its creation, including this frame: a reader that sees
    it grow by more than the frame's messages has missed a frame. ``open_messages`` and ``open_fragments`` are
    incomplete. ``drops`` is the kernel's drop counter (modulo 2^32) of socket ``socket_id``. ``missed`` is the number
    of the last counts of missed frames that a frame carried (``dropped_frames``). Positions of one ``epoch`` are never
    reused. ``slots``: the round, and the slot before which it is published; None without slots. ``floor`` and
    ``floor_mark``: a frame that carries counts of frames that the log missed names the floor behind them, and the total
    there; 0 in other frames. ``lost_counts`` is the part of the counts that lost frames were to carry; the log does not
    enter again what it has stored with these. ``repeated``: the counts that the frame before carries, for the case that
    it is damaged.
    """

    origin: Origin
    incarnation: int = 0
    total: int = 0
    open_messages: int = 0
    open_fragments: int = 0
    socket_id: str = ""
    drops: int = 0
    missed: int = 0
    epoch: str = ""
    slots: tuple[int, int] | None = None
    floor: int = 0
    floor_mark: int = 0
    lost_counts: tuple[LostCounts, ...] = ()
    repeated: tuple[LostCounts, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return a mapping for JSON."""
        document = {
            "v": 1,
            **self.origin.document(),
            "incarnation": self.incarnation,
            "total": self.total,
            "open": [self.open_messages, self.open_fragments],
            "socket": [self.socket_id, self.drops],
            "missed": self.missed,
            "epoch": self.epoch,
            "slots": self.slots,
        }
        if self.floor:
            document["floor"] = [self.floor, self.floor_mark]
        if self.lost_counts:
            document["lost"] = self.lost_counts
        if self.repeated:
            document["repeated"] = self.repeated
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> FrameMetadata:
        """Return the metadata of a document. Raises BadBatch for any other document."""
        try:
            messages, fragments = document["open"]
            socket_id, drops = document["socket"]
            slots = document["slots"]
            floor, floor_mark = document.get("floor", (0, 0))
            return cls(
                Origin.from_document(document),
                int(document["incarnation"]),
                int(document["total"]),
                int(messages),
                int(fragments),
                str(socket_id),
                int(drops),
                int(document["missed"]),
                str(document["epoch"]),
                (int(slots[0]), int(slots[1])) if slots else None,
                int(floor),
                int(floor_mark),
                _lost_counts(document["lost"]) if "lost" in document else (),
                _lost_counts(document["repeated"]) if "repeated" in document else (),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadBatch(f"invalid frame metadata: {error!r}") from None


def _lost_counts(entries: Sequence[Any]) -> tuple[LostCounts, ...]:
    return tuple(LostCounts(tuple(map(_carrier, carriers)), Counts(counts)) for carriers, counts in entries)


def _carrier(entry: Sequence[Any]) -> Carrier:
    epoch, begin, topic = entry
    return Carrier(str(epoch), int(begin), None if topic is None else str(topic))
