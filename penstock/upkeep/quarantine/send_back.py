"""What is in quarantine, and its way back into the log: each row once, whatever is killed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.landing.landing_lock import hold_lock
from penstock.landing.table_paths import Layout
from penstock.upkeep.quarantine.fixes import Fix, as_it_is, mended
from penstock.upkeep.quarantine.send_once import Appends, Resender, RowIdentity, Sent, body_of, sent_keys

BATCH = 500
REPLAY_OF = "replay_of"
"""Annotation of a row that was sent back: ``topic:offset`` of the one in quarantine."""


class SendingBack(PenstockError, RuntimeError):
    """Somebody else sends rows of these tables back just now."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row in quarantine; of Kafka with its ``partition``, and then it cannot be sent back."""

    topic: str
    partition: int | None
    offset: int
    timestamp: datetime
    source: str | None
    reason: str
    payload: bytes
    key: bytes | None
    annotations: list[tuple[str, str]]

    @property
    def place(self) -> str:
        """``topic:offset``, of Kafka ``topic/partition:offset``."""
        topic = self.topic if self.partition is None else f"{self.topic}/{self.partition}"
        return f"{topic}:{self.offset}"

    def document(self) -> dict[str, Any]:
        """JSON-ready; bytes that are no text with replacements."""
        shown = self.payload.decode(errors="replace")
        told = {"topic": self.topic, "offset": self.offset, "time": self.timestamp.isoformat(), "source": self.source}
        return {**told, "reason": self.reason, "payload": shown}


class SendBack:
    """Sends rows back into their topics. One at a time for a folder of tables: see ``alone``."""

    def __init__(self, layout: Layout, log: Appends, fix: Fix | None = None) -> None:
        self._fix = fix or as_it_is
        self._resender = Resender(_journal(layout), log)
        self._resender.finish()

    def run(self, chosen: Sequence[Row]) -> tuple[int, int]:
        """How many of ``chosen`` were sent back now, and how many the fix left. Those sent before are passed over.

        Raises BadFix, and what the log raises.
        """
        sent = left = 0
        new = [row for row in chosen if row.partition is None and self._resender.is_new(row.topic, row.offset)]
        for topic in sorted({row.topic for row in new}):
            of_topic = [row for row in new if row.topic == topic]
            made = ((row, mended(self._fix, row.payload, row.place)) for row in of_topic)
            fixed = [(row, payload) for row, payload in made if payload is not None]
            left += len(of_topic) - len(fixed)
            for begin in range(0, len(fixed), BATCH):
                part = fixed[begin : begin + BATCH]
                self._resender.send(topic, [row.offset for row, _ in part], body_of([_sent(*one) for one in part]))
            sent += len(fixed)
        return sent, left


def sent_before(layout: Layout) -> frozenset[tuple[str, RowIdentity]]:
    """Topic and offset of the rows that were sent back already."""
    return sent_keys(_journal(layout))


@contextmanager
def alone(layout: Layout) -> Iterator[None]:
    """Nobody else sends rows of these tables back meanwhile. Raises SendingBack."""
    with hold_lock(_journal(layout), SendingBack(f"somebody else sends messages of {layout.tables} back just now")):
        yield


def _journal(layout: Layout) -> Path:
    return layout.checkpoint.parent / "quarantine.replayed.jsonl"


def _sent(row: Row, payload: bytes) -> Sent:
    return row.key, payload, None, dict(row.annotations) | {REPLAY_OF: row.place}
