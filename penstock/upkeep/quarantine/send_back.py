"""Send rows in quarantine back into the log: each row once, after any crash."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from penstock.counts import Counts, Name
from penstock.errors import PenstockError
from penstock.landing.landing_lock import hold_lock
from penstock.landing.offset_runs import is_inside
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.rows.payload_fault import Fault, find_fault
from penstock.landing.rows.type_schemas import Schema
from penstock.landing.table_paths import Layout
from penstock.qualified_names import partition_name
from penstock.upkeep.quarantine.fixes import Fix, apply_fix, keep_payload
from penstock.upkeep.quarantine.send_once import (
    Appends,
    Resender,
    RowIdentity,
    Sent,
    SentRow,
    sent_keys,
    sent_rows,
    to_body,
)

MAX_BATCH_ROWS = 500
MAX_FIX_TEXT = 200
"""Limit for the characters of the description of a correction, which is stored with each batch."""
REPLAY_OF = "replay_of"
"""Annotation of a row that was sent back: ``topic:offset`` of its row in quarantine."""


class SendingBack(PenstockError, RuntimeError):
    """Another process is sending rows of these tables back."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row in quarantine. Rows of Kafka have a ``partition`` and cannot be sent back.

    ``schemas`` are the configured ones, by which its fault is found.
    """

    topic: str
    partition: int | None
    offset: int
    timestamp: datetime
    source: str | None
    reason: str
    payload: bytes
    key: bytes | None
    annotations: list[tuple[str, str]]
    schemas: Sequence[Schema] = field(default=(), compare=False, repr=False)

    @property
    def position(self) -> str:
        """Return ``topic:offset``, or for Kafka ``topic/partition:offset``."""
        return f"{partition_name(self.topic, self.partition)}:{self.offset}"

    @property
    def fault(self) -> Fault:
        """Return the fault of the payload and its position."""
        return find_fault(self.reason, self.payload, self.schemas)

    def document(self) -> dict[str, Any]:
        """Return the row as a JSON document, with its fault; bytes that are not UTF-8 are replaced."""
        text = self.payload.decode(errors="replace")
        header = {"topic": self.topic, "offset": self.offset, "time": self.timestamp.isoformat(), "source": self.source}
        return {**header, "reason": self.reason, "fault": self.fault.document(), "payload": text}


class SendBack:
    """The sender of rows into their topics. One instance per folder of tables at a time: see ``hold_send_lock``."""

    def __init__(self, layout: Layout, log: Appends, fix: Fix | None = None, fix_text: str = "") -> None:
        """Create the sender; ``fix_text`` describes the correction for people who trace a row."""
        self._fix, self._fix_text = fix or keep_payload, fix_text[:MAX_FIX_TEXT]
        self._resender = Resender(layout.sent_back, log)
        self._resender.finish()

    def run(self, rows: Sequence[Row]) -> tuple[int, int]:
        """Send rows back; return how many were sent now, and how many the correction skipped.

        Rows that were sent before are passed over. Raises BadFix, and what the log raises.
        """
        sent = skipped = 0
        unsent = [row for row in rows if row.partition is None and self._resender.is_new(row.topic, row.offset)]
        for topic in sorted({row.topic for row in unsent}):
            topic_rows = [row for row in unsent if row.topic == topic]
            corrections = ((row, apply_fix(self._fix, row.payload, row.position)) for row in topic_rows)
            corrected = [(row, payload) for row, payload in corrections if payload is not None]
            skipped += len(topic_rows) - len(corrected)
            # Limit: one plan per batch, so that a crash repeats at most this many rows.
            for begin in range(0, len(corrected), MAX_BATCH_ROWS):
                chunk = corrected[begin : begin + MAX_BATCH_ROWS]
                self._resender.send(
                    topic,
                    [row.offset for row, _ in chunk],
                    to_body([_to_sent(*pair) for pair in chunk]),
                    self._fix_text,
                    [row.reason for row, _ in chunk],
                )
            sent += len(corrected)
        return sent, skipped


def sent_before(layout: Layout) -> frozenset[tuple[str, RowIdentity]]:
    """Return topic and offset of the rows that were sent back before."""
    return sent_keys(layout.sent_back)


def rows_sent_back(layout: Layout) -> Iterator[SentRow]:
    """Yield the rows that were sent back, in order."""
    return sent_rows(layout.sent_back)


def count_sent_back(layout: Layout) -> dict[str, Counts]:
    """Return how many rows were sent back, by topic and the fate that they had in quarantine.

    Rows that were deleted since then have another fate and are not counted. Raises UnknownFormat, OSError.
    """
    rows = [row for row in rows_sent_back(layout) if row.reason] if layout.sent_back.exists() else []
    deleted = deleted_positions(layout, [(row.topic, int(row.key)) for row in rows]) if rows else set()
    counts: dict[str, Counts] = {}
    for row in rows:
        if (row.topic, int(row.key)) not in deleted:
            counts.setdefault(row.topic, Counts())[f"{Name.QUARANTINED}{row.reason}"] += 1
    return counts


def deleted_positions(layout: Layout, positions: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return the positions (topic and offset) of the log whose rows a deletion has removed."""
    deleted, offsets_of = set[tuple[str, int]](), defaultdict[str, list[int]](list)
    for topic, offset in positions:
        offsets_of[topic].append(offset)
    runs = DeletionRecord(layout).readable_runs()
    for topic in offsets_of.keys() & runs.keys():
        offsets = np.array(offsets_of[topic], np.int64)
        deleted.update((topic, offset) for offset in offsets[is_inside(offsets, runs[topic])].tolist())
    return deleted


@contextmanager
def hold_send_lock(layout: Layout) -> Iterator[None]:
    """Hold the lock of sending back. Raises SendingBack."""
    with hold_lock(layout.sent_back, SendingBack(f"another process is sending messages of {layout.tables} back")):
        yield


def _to_sent(row: Row, payload: bytes) -> Sent:
    return row.key, payload, None, dict(row.annotations) | {REPLAY_OF: row.position}
