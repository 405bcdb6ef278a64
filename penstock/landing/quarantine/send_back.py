"""What is in quarantine, and its way back into the log: each row once, whatever is killed meanwhile."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow.parquet as pq

from penstock.errors import PenstockError
from penstock.landing.event_rules import MessageKind
from penstock.landing.quarantine.send_once import Appends, Resender, Sent, body_of
from penstock.landing.table.begun_table import table_of
from penstock.landing.table_paths import Layout

COLUMNS = ("topic", "partition", "offset", "timestamp", "reason", "payload", "key", "annotations")
BATCH = 500
REPLAY_OF = "replay_of"
"""Annotation of a row that was sent back: ``topic:offset`` of the one in quarantine."""

Fix = Callable[[bytes], bytes | None]
"""The mended payload, or None for one that is to stay."""


class BadFix(PenstockError, ValueError):
    """The function named to mend payloads cannot be used."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row in quarantine."""

    topic: str
    offset: int
    timestamp: datetime
    reason: str
    payload: bytes
    key: bytes | None
    annotations: list[tuple[str, str]]

    def document(self) -> dict[str, Any]:
        """JSON-ready; bytes that are no text with replacements."""
        shown = self.payload.decode(errors="replace")
        time = self.timestamp.isoformat()
        return {"topic": self.topic, "offset": self.offset, "time": time, "reason": self.reason, "payload": shown}


def rows(layout: Layout, *, reason: str | None = None, topic: str | None = None) -> Iterator[Row]:
    """The rows in quarantine that came from the log, in the order of the table's files."""
    for name in table_of(layout).active():
        if not name.startswith(f"kind={MessageKind.QUARANTINE}/"):
            continue
        with pq.ParquetFile(layout.landed / name) as file:
            found = file.read(columns=[c for c in COLUMNS if c in file.schema_arrow.names]).to_pylist()
        for row in found:
            if row.pop("partition", None) is None and reason in (None, row["reason"]) and topic in (None, row["topic"]):
                yield Row(**{**row, "payload": row["payload"] or b"", "annotations": row["annotations"] or []})


def load_fix(named: str) -> Fix:
    """The function ``module:function``. Raises BadFix."""
    module, _, function = named.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadFix(f"--fix {named}: {error}") from None
    if not callable(found):
        raise BadFix(f"--fix {named}: is not a function")
    fix: Fix = found
    return fix


class SendBack:
    """Sends rows back into their topics. One at a time for a folder of tables."""

    def __init__(self, layout: Layout, log: Appends, fix: Fix | None = None) -> None:
        self._fix = fix
        self._resender = Resender(layout.checkpoint.parent / "quarantine.replayed.jsonl", log)

    def run(self, chosen: Sequence[Row]) -> tuple[int, int]:
        """How many of ``chosen`` were sent back now, and how many the fix left. Those sent before are passed over."""
        self._resender.finish()
        sent = left = 0
        new = [row for row in chosen if self._resender.is_new(row.topic, row.offset)]
        for topic in sorted({row.topic for row in new}):
            mended = [(row, payload) for row in new if row.topic == topic and (payload := self._mend(row)) is not None]
            left += sum(row.topic == topic for row in new) - len(mended)
            for begin in range(0, len(mended), BATCH):
                part = mended[begin : begin + BATCH]
                self._resender.send(topic, [row.offset for row, _ in part], body_of([_sent(*one) for one in part]))
            sent += len(mended)
        return sent, left

    def _mend(self, row: Row) -> bytes | None:
        return self._fix(row.payload) if self._fix else row.payload


def _sent(row: Row, payload: bytes) -> Sent:
    return row.key, payload, None, dict(row.annotations) | {REPLAY_OF: f"{row.topic}:{row.offset}"}


def to_json(found: Sequence[Row]) -> str:
    """A JSON list of rows."""
    return json.dumps([row.document() for row in found], indent=2)
