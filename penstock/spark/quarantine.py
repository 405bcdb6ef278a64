"""What is in quarantine, and its way back into the log: each row once, whatever is killed meanwhile.

What is sent back is written down before (the plan) and after; the log takes a plan's batch once, by its producer's
sequence number, so that a plan without an end is simply carried out again.
"""

from __future__ import annotations

import importlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.records import BODY
from penstock.spark.commits import append_lines, read_lines
from penstock.spark.layout import Layout
from penstock.spark.lists import table_list
from penstock.spark.rules import Kind

COLUMNS = ("topic", "partition", "offset", "timestamp", "reason", "payload", "key", "annotations")
BATCH = 500
REPLAY_OF = "replay_of"
"""Annotation of a row that was sent back: ``topic:offset`` of the one in quarantine."""

Fix = Callable[[bytes], bytes | None]
"""The mended payload, or None for one that is to stay."""


class BadFix(ValueError):
    """The function named to mend payloads cannot be used."""


class Appends(Protocol):
    """What takes rows back: the log's client."""

    def append_batch(self, topic: str, body: pa.RecordBatch, producer: tuple[str, int] | None = None) -> list[int]: ...


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
    for name in table_list(layout).active():
        if not name.startswith(f"kind={Kind.QUARANTINE}/"):
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


class Replay:
    """Sends rows back into their topics. One at a time for a folder of tables."""

    def __init__(self, layout: Layout, log: Appends, fix: Fix | None = None) -> None:
        self._layout, self._log, self._fix = layout, log, fix
        self._path = layout.checkpoint.parent / "quarantine.replayed.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._producer = f"quarantine-{uuid4().hex}"  # of this run: the log does not remember producers for ever
        self._numbers: Counter[str] = Counter()
        self._plans: list[dict[str, Any]] = []
        self._ended: set[int] = set()
        for line in read_lines(self._path, repair=True):
            if "ended" in line:
                self._ended.add(line["ended"])
            else:
                self._plans.append(line)
        self._sent = {(plan["topic"], offset) for plan in self._plans for offset in plan["offsets"]}

    def run(self, chosen: Sequence[Row]) -> tuple[int, int]:
        """How many of ``chosen`` were sent back now, and how many the fix left. Those sent before are passed over."""
        self._finish()
        sent = left = 0
        new = [row for row in chosen if (row.topic, row.offset) not in self._sent]
        for topic in sorted({row.topic for row in new}):
            mended = [(row, payload) for row in new if row.topic == topic and (payload := self._mend(row)) is not None]
            left += sum(row.topic == topic for row in new) - len(mended)
            for begin in range(0, len(mended), BATCH):
                self._send(topic, mended[begin : begin + BATCH])
            sent += len(mended)
        return sent, left

    def _mend(self, row: Row) -> bytes | None:
        return self._fix(row.payload) if self._fix else row.payload

    def _finish(self) -> None:
        """Carry out again what was planned and has no end."""
        for plan in self._plans:
            if plan["sequence"] not in self._ended:
                self._append(plan, _read_body(self._body_file(plan)))

    def _send(self, topic: str, mended: Sequence[tuple[Row, bytes]]) -> None:
        sequence = len(self._plans)
        plan = {
            "sequence": sequence,
            "producer": [self._producer, self._numbers[topic]],
            "topic": topic,
            "offsets": [row.offset for row, _ in mended],
        }
        body = _body(mended)
        _write_body(self._body_file(plan), body)
        append_lines(self._path, [plan])
        self._numbers[topic] += 1
        self._plans.append(plan)
        self._sent.update((topic, row.offset) for row, _ in mended)
        self._append(plan, body)

    def _append(self, plan: dict[str, Any], body: pa.RecordBatch) -> None:
        name, number = plan["producer"]
        self._log.append_batch(plan["topic"], body, (name, number))
        append_lines(self._path, [{"ended": plan["sequence"]}])
        self._ended.add(plan["sequence"])
        self._body_file(plan).unlink(missing_ok=True)

    def _body_file(self, plan: dict[str, Any]) -> Path:
        return self._path.with_name(f"quarantine.{plan['sequence']}.arrow")


def _body(mended: Sequence[tuple[Row, bytes]]) -> pa.RecordBatch:
    marks = [dict(row.annotations) | {REPLAY_OF: f"{row.topic}:{row.offset}"} for row, _ in mended]
    columns = {
        "key": [row.key for row, _ in mended],
        "payload": [payload for _, payload in mended],
        "type_url": [None] * len(mended),
        "annotations": [list(mark.items()) for mark in marks],
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in BODY], schema=BODY)


def _write_body(path: Path, body: pa.RecordBatch) -> None:
    """On the disk before the plan that names it."""
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        with pa.ipc.new_file(file, body.schema) as writer:
            writer.write_batch(body)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _read_body(path: Path) -> pa.RecordBatch:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).get_batch(0)


def to_json(found: Sequence[Row]) -> str:
    """A JSON list of rows."""
    return json.dumps([row.document() for row in found], indent=2)
