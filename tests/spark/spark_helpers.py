"""What the tests of the Spark room share: topics with messages, and tables written by hand as Spark writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.counts import Origin
from penstock.landing.table_paths import Layout
from penstock.log import Log
from penstock.records import body

BUCKET = 1_700_000_040
LANDED_AT = 1_700_000_100_000
QUICK_START = "-XX:TieredStopAtLevel=1"
"""Option of a JVM that lives too shortly for the best machine code to pay."""


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
) -> int:
    """Append batches to a topic in a log of its own; the topic's end."""
    log = Log(topics)
    try:
        opened = log.topic(topic, create=True)
        for payloads in batches:
            counts = dict.fromkeys(("taken", "unboxed", "seen", "accepted"), len(payloads))
            origin = Origin(source, bucket, bucket * 1_000_000 + 5, bucket * 1_000_000 + 9, codec, counts)
            opened.append(body(list(payloads)), origin).result(20)
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
    """A table with its checkpoint, written as Spark writes them, batch by batch."""

    layout: Layout
    end: dict[str, int] = field(default_factory=dict)
    batch: int = -1
    watermark: int = 0
    files: list[str] = field(default_factory=list)

    def commit(
        self, end: dict[str, int], rows: Iterable[dict[str, Any]], landed_at: int = 0, compact: bool = False
    ) -> int:
        """Write a batch that ends at ``end`` and holds ``rows``; its number."""
        self.batch += 1
        at = landed_at or LANDED_AT + 1000 * self.batch
        self.end = {**self.end, **end}
        by_kind: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            by_kind.setdefault(row["kind"], []).append(row)
        files = [self._write(kind, group) for kind, group in sorted(by_kind.items())]
        self._plan(at)
        self._list(files, compact)
        self._text(self.layout.checkpoint / "commits" / str(self.batch), ["v1", '{"nextBatchWatermarkMs":0}'])
        self.watermark = max(self.watermark, at - 600_000)
        return self.batch

    def _plan(self, at: int) -> None:
        metadata = {"batchWatermarkMs": self.watermark, "batchTimestampMs": at, "conf": {}}
        lines = ["v1", json.dumps(metadata), json.dumps(dict(sorted(self.end.items())))]
        self._text(self.layout.checkpoint / "offsets" / str(self.batch), lines)

    def _list(self, files: list[str], compact: bool) -> None:
        self.files += files
        listed = self.files if compact else files
        lines = [
            json.dumps({"path": f"file://{self.layout.landed}/{name}", "size": 1, "action": "add"}) for name in listed
        ]
        name = f"{self.batch}.compact" if compact else str(self.batch)
        self._text(self.layout.sink_log / name, ["v1", *lines])

    def _write(self, kind: str, rows: list[dict[str, Any]]) -> str:
        name = f"kind={kind}/date=2023-11-14/type=x/part-{self.batch}.parquet"
        path = self.layout.landed / name
        path.parent.mkdir(parents=True, exist_ok=True)
        stamp = pa.timestamp("us", "UTC")
        columns = {
            "topic": pa.array([row["topic"] for row in rows], pa.string()),
            "offset": pa.array([row["offset"] for row in rows], pa.int64()),
            "source": pa.array([row.get("source", "events-udp") for row in rows], pa.string()),
            "bucket": pa.array([row.get("bucket", BUCKET) * 1_000_000 for row in rows], pa.int64()).cast(stamp),
            "reason": pa.array([row.get("reason") for row in rows], pa.string()),
            "uuid": pa.array([row.get("uuid") for row in rows], pa.string()),
        }
        if any("partition" in row for row in rows):
            columns["partition"] = pa.array([row.get("partition") for row in rows], pa.int32())
        pq.write_table(pa.table(columns), path)
        return name

    def _text(self, path: Path, lines: list[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))


def landed_event(offset: int, uuid: str, topic: str = "t", **more: Any) -> dict[str, Any]:
    """A row of a valid event for HandWritten."""
    return {"topic": topic, "offset": offset, "kind": "event", "uuid": uuid, **more}


def landed_message(offset: int, topic: str = "t", **more: Any) -> dict[str, Any]:
    """A row of a plain message for HandWritten."""
    return {"topic": topic, "offset": offset, "kind": "message", **more}
