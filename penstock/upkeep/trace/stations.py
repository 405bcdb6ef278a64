"""The stations of a traced message, from the listener to the proof, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.landing.journal import Commit
from penstock.log.read.segment_view import StoredBatch
from penstock.log.store.gaps import Gap
from penstock.proof.proofs import Proof
from penstock.proof.reread.messages import event_of
from penstock.qualified_names import is_partition


@dataclass(frozen=True, slots=True)
class Step:
    """A station of the message, or a place that was searched: a text for people, details for programs."""

    step: str
    text: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Sighting:
    """Everything that was found about one offset."""

    topic: str
    offset: int
    end: int = 0
    stored: StoredBatch | None = None
    gap: Gap | None = None
    corrupt: bool = False
    commit: Commit | None = None
    span: tuple[int, int] = (0, 0)
    row: dict[str, Any] | None = None
    proof: Proof | None = None
    survivor: dict[str, Any] | None = None
    has_missing_files: bool = False

    @property
    def payload(self) -> bytes | None:
        payload: bytes | None = self.stored.batch.column("payload")[0].as_py() if self.stored else None
        return payload

    @property
    def uuid(self) -> str | None:
        if self.row is not None:
            return str(self.row["uuid"]) if self.row["uuid"] is not None else None
        event = event_of(self.stored.batch, self.stored.origin.codec) if self.stored else None
        return event.uuid if event else None


def build_steps(seen: Sighting) -> Iterator[Step]:
    """Yield the stations of a message, from the listener to the proof."""
    yield _listener_step(seen)
    yield _buffer_step(seen)
    yield _log_step(seen)
    yield _batch_step(seen)
    if seen.row is not None:
        details = {name: _to_plain(value) for name, value in seen.row.items()}
        yield Step("table", f"{seen.row['file']}", details)
    elif seen.survivor is not None:
        details = {name: _to_plain(value) for name, value in seen.survivor.items()}
        yield Step("table", f"offset {details['offset']} with the same uuid: {details['file']}", details)
    elif seen.commit is not None:
        yield Step("table", "in no file of its batch")
    if seen.commit is not None:
        yield _proof_step(seen)


def _listener_step(seen: Sighting) -> Step:
    if seen.stored is not None:
        origin = seen.stored.origin
        details = {name: getattr(origin, name) for name in ("source", "bucket", "first", "last", "codec")}
        when = f"its batch from {format_time(origin.first)} to {format_time(origin.last)}"
        return Step("received", f"by {origin.source}, minute {format_time(origin.bucket * 1_000_000)}, {when}", details)
    if seen.row is not None:
        details = {name: _to_plain(seen.row[name]) for name in ("source", "bucket", "received")}
        return Step("received", f"by {details['source']}, minute {details['bucket']}, {details['received']}", details)
    buckets = seen.gap.rows_by_bucket(seen.offset, seen.offset + 1) if seen.gap else {}
    for source, bucket in buckets:
        if source:
            text = f"by {source}, about the minute {format_time(bucket * 1_000_000)}"
            return Step("received", text, {"source": source, "bucket": bucket})
    return Step("received", "not known any more" if not is_partition(seen.topic) else "by Kafka")


def _buffer_step(seen: Sighting) -> Step:
    if seen.stored is None:
        return Step("log buffer", "none" if is_partition(seen.topic) else "not known any more")
    origin = seen.stored.origin
    if not origin.buffer:
        return Step("log buffer", f"none: it entered by {origin.source}")
    details = {"buffer": origin.buffer, "begin": origin.begin, "end": origin.end}
    return Step("log buffer", f"{origin.buffer}, its batch at positions {origin.begin:,} to {origin.end:,}", details)


def _log_step(seen: Sighting) -> Step:
    details: dict[str, Any] = {"topic": seen.topic, "offset": seen.offset}
    text = f"topic {seen.topic}, offset {seen.offset:,}"
    if seen.stored is not None:
        return Step("log", f"{text}, {format_time(seen.stored.first)}", details | {"timestamp": seen.stored.first})
    if seen.gap is not None:
        details |= {"gap": {"begin": seen.gap.begin, "end": seen.gap.end, "reason": seen.gap.reason}}
        return Step("log", f"{text}: gap from {seen.gap.begin:,} to {seen.gap.end:,}: {seen.gap.reason}", details)
    if seen.corrupt:
        return Step("log", f"{text}: cannot be read", details)
    if is_partition(seen.topic):
        return Step("log", f"{text} of Kafka", details)
    return Step("log", f"{text}: not there, the topic ends at {seen.end:,}", details | {"end": seen.end})


def _batch_step(seen: Sighting) -> Step:
    if seen.commit is None:
        return Step("micro-batch", "not in the journal")
    begin, end = seen.span
    details = {"batch": seen.commit.batch, "begin": begin, "end": end, "landed_at": seen.commit.landed_at}
    when, name = format_time(seen.commit.landed_at * 1000), f"{seen.commit.batch}"
    # Old commits are rolled up: one entry stands for several batches.
    if seen.commit.first is not None:
        name, when = f"one of {seen.commit.first} to {name}", f"until {when}"
        details |= {"first": seen.commit.first}
    return Step("micro-batch", f"{name}, offsets {begin:,} to {end:,}, {when}", details)


def _proof_step(seen: Sighting) -> Step:
    proof = seen.proof
    if proof is None:
        return Step("proof", "not proved yet", {"proved": False})
    details = {"proved": True, "holds": proof.holds, "unaccounted": len(proof.unaccounted)}
    if proof.holds:
        return Step("proof", "every offset of the batch is accounted for", details)
    bad = f"{len(proof.unaccounted)} unaccounted, {len(proof.unexpected)} not of the batch, or twice"
    return Step("proof", f"does not hold: {bad}", details)


def format_time(micros: int) -> str:
    """Format a time in UTC; a number out of range stays a number."""
    try:
        return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(micros)


def _to_plain(field_value: Any) -> Any:
    return field_value.isoformat() if isinstance(field_value, datetime) else field_value
