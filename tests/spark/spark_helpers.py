"""Shared helpers of Spark tests: topics with messages, and tables written as the pipeline writes them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.counts import Origin
from penstock.landing.event_rules import MessageKind
from penstock.landing.row_sums import NO_VIOLATIONS, RowSums, commit_metadata
from penstock.landing.spark_checkpoint import planned_ranges
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.landing.writing.written_file import FileWriter, WrittenFile
from penstock.log import Log
from penstock.records import ANNOTATIONS, body

BUCKET = 1_700_000_040
LANDED_AT = 1_700_000_100_000


def event(number: int, kind: str = "click", **more: Any) -> bytes:
    """A valid event with uuid ``u<number>``."""
    fields = {"type": kind, "uuid": f"u{number}", "host": "web-1", "timestamp": 1_700_000_000_000 + number, **more}
    return json.dumps(fields).encode()


def append(
    topics: Path,
    topic: str,
    *batches: Sequence[bytes | None],
    codec: str = "plog",
    source: str = "events-udp",
    bucket: int = BUCKET,
    annotations: Sequence[dict[str, str] | list[tuple[str, str]]] | None = None,
) -> int:
    """Append batches to a topic in a log of its own; the topic's end."""
    log = Log(topics)
    try:
        opened = log.topic(topic, create=True)
        for payloads in batches:
            counts = dict.fromkeys(("taken", "unboxed", "seen", "accepted"), len(payloads))
            origin = Origin(source, bucket, bucket * 1_000_000 + 5, bucket * 1_000_000 + 9, codec, counts)
            said = (
                pa.array([list(each.items()) if isinstance(each, dict) else each for each in annotations], ANNOTATIONS)
                if annotations
                else None
            )
            opened.append(body(list(payloads), annotations=said), origin).result(20)
        return opened.end
    finally:
        log.close()


def flip(topics: Path, topic: str, needle: bytes) -> None:
    """Flip a bit of a message in the topic's first segment."""
    path = min((topics / topic).glob("*.arrows"))
    position = path.read_bytes().index(needle)
    with open(path, "r+b") as file:  # in place: others have it mapped
        file.seek(position)
        file.write(bytes([needle[0] ^ 1]))


@dataclass
class HandWritten:
    """A table with its checkpoint, written as the pipeline writes them, batch by batch."""

    layout: Layout
    end: dict[str, int] = field(default_factory=dict)
    batch: int = -1
    files: list[str] = field(default_factory=list)
    hashed: bool = False

    def commit(
        self,
        end: dict[str, int],
        rows: Iterable[dict[str, Any]],
        landed_at: int = 0,
        violations: Mapping[str, int] = NO_VIOLATIONS,
    ) -> int:
        """Write a batch that ends at ``end`` and holds ``rows``; its number."""
        self.batch += 1
        table = begin_table(self.layout)
        self.end = {**self.end, **end}
        by_kind: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            by_kind.setdefault(row["kind"], []).append(row)
        now = time.time()  # as the log of the same test says
        files = [self._write(table.folder, kind, group, now) for kind, group in sorted(by_kind.items())]
        self._plan(landed_at or LANDED_AT + 1000 * self.batch)
        sums = RowSums()
        for file in files:
            sums.absorb(file.sums)
        ranges = planned_ranges(self.layout.checkpoint, self.batch)
        micros = (datetime.fromtimestamp(now, UTC) - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
        table.commit(self.batch, files, commit_metadata(self.batch, micros, ranges, sums, violations))
        self.files += [file.name for file in files]
        self._text(self.layout.checkpoint / "commits" / str(self.batch), ["v1", '{"nextBatchWatermarkMs":0}'])
        return self.batch

    def _plan(self, at: int) -> None:
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": at, "conf": {}}
        lines = ["v1", json.dumps(metadata), json.dumps(dict(sorted(self.end.items())))]
        self._text(self.layout.checkpoint / "offsets" / str(self.batch), lines)

    def _write(self, folder: Path, kind: str, rows: list[dict[str, Any]], now: float) -> WrittenFile:
        landed = {"source": "events-udp", "bucket": BUCKET, "timestamp": now, "landed_at": now, "type": "x"}
        known = [{**landed, **{name: value for name, value in row.items() if name != "kind"}} for row in rows]
        for row in known:
            for name in ("bucket", "timestamp", "landed_at"):
                row[name] = datetime.fromtimestamp(row[name], UTC)
        writer = FileWriter(folder, MessageKind(kind), known[0]["timestamp"].date(), summed=True, hashed=self.hashed)
        writer.write(pa.RecordBatch.from_pylist(known, schema=FILE_SCHEMA))
        return writer.close()

    def _text(self, path: Path, lines: list[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))


def landed_event(offset: int, uuid: str, topic: str = "t", **more: Any) -> dict[str, Any]:
    """A row of a valid event for HandWritten."""
    return {"topic": topic, "offset": offset, "kind": "event", "uuid": uuid, **more}


def landed_message(offset: int, topic: str = "t", **more: Any) -> dict[str, Any]:
    """A row of a plain message for HandWritten."""
    return {"topic": topic, "offset": offset, "kind": "message", **more}
