"""The receipt of a frame: where its messages come from, and the receiver's books after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.counts import Origin
from penstock.records import BadBatch


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receive round, or a part of it: where it comes from, and the receiver's books after it.

    ``total`` is the number of messages accepted into this buffer since it was made, this frame
    included: a reader that finds it grown by more than the frame holds has lost a frame.
    ``open_messages`` and ``open_fragments`` wait for their rest. ``drops`` is the kernel's drop counter
    (modulo 2^32) of socket ``socket_id`` as last read. ``missed`` is the number of the last counts of
    missed frames that rode (``skipped.SkippedFrames``). Positions of one ``epoch`` are never used twice.
    ``slots``: the round, and the slot before which it is published; None in frames of before 0.2.
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

    def document(self) -> dict[str, Any]:
        """As JSON-ready mapping."""
        return {
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

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Receipt:
        """From ``document``. Raises BadBatch when it is not one of a frame."""
        try:
            messages, fragments = document["open"]
            socket_id, drops = document["socket"]
            slots = document.get("slots")
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
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadBatch(f"not a receipt: {error!r}") from None
