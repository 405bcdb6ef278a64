"""The stations of a message as a trace tells them, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.landing.journal import Commit
from penstock.log.read.segment_view import StoredBatch
from penstock.log.store.gaps import Gap
from penstock.proof.proofs import Proof
from penstock.proof.reread import event_of, is_partition


@dataclass(frozen=True, slots=True)
class Step:
    """One place where the message was, or was looked for: for people, and what a program may want of it."""

    step: str
    text: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Seen:
    """What was found of one offset."""

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
    gone: bool = False

    @property
    def payload(self) -> bytes | None:
        found: bytes | None = self.stored.batch.column("payload")[0].as_py() if self.stored else None
        return found

    @property
    def uuid(self) -> str | None:
        if self.row is not None:
            return str(self.row["uuid"]) if self.row["uuid"] is not None else None
        event = event_of(self.stored.batch, self.stored.origin.codec) if self.stored else None
        return event.uuid if event else None


def steps_of(seen: Seen) -> Iterator[Step]:
    """The stations of a message, from the listener to the proof."""
    yield _listener(seen)
    yield _buffer(seen)
    yield _log(seen)
    yield _batch(seen)
    if seen.row is not None:
        details = {name: _plain(value) for name, value in seen.row.items()}
        yield Step("table", f"{seen.row['file']}", details)
    elif seen.survivor is not None:
        details = {name: _plain(value) for name, value in seen.survivor.items()}
        yield Step("table", f"offset {details['offset']} with the same uuid: {details['file']}", details)
    elif seen.commit is not None:
        yield Step("table", "in no file of its batch")
    if seen.commit is not None:
        yield _proof(seen)


def _listener(seen: Seen) -> Step:
    if seen.stored is not None:
        origin = seen.stored.origin
        details = {name: getattr(origin, name) for name in ("source", "bucket", "first", "last", "codec")}
        when = f"its batch from {_time(origin.first)} to {_time(origin.last)}"
        return Step("received", f"by {origin.source}, minute {_time(origin.bucket * 1_000_000)}, {when}", details)
    if seen.row is not None:
        details = {name: _plain(seen.row[name]) for name in ("source", "bucket", "received")}
        return Step("received", f"by {details['source']}, minute {details['bucket']}, {details['received']}", details)
    places = seen.gap.rows_by_bucket(seen.offset, seen.offset + 1) if seen.gap else {}
    for source, bucket in places:
        if source:
            text = f"by {source}, about the minute {_time(bucket * 1_000_000)}"
            return Step("received", text, {"source": source, "bucket": bucket})
    return Step("received", "not known any more" if not is_partition(seen.topic) else "by Kafka")


def _buffer(seen: Seen) -> Step:
    if seen.stored is None:
        return Step("log buffer", "none" if is_partition(seen.topic) else "not known any more")
    origin = seen.stored.origin
    if not origin.buffer:
        return Step("log buffer", f"none: it entered by {origin.source}")
    details = {"buffer": origin.buffer, "begin": origin.begin, "end": origin.end}
    return Step("log buffer", f"{origin.buffer}, its batch at positions {origin.begin:,} to {origin.end:,}", details)


def _log(seen: Seen) -> Step:
    details: dict[str, Any] = {"topic": seen.topic, "offset": seen.offset}
    text = f"topic {seen.topic}, offset {seen.offset:,}"
    if seen.stored is not None:
        return Step("log", f"{text}, {_time(seen.stored.first)}", details | {"timestamp": seen.stored.first})
    if seen.gap is not None:
        details |= {"gap": {"begin": seen.gap.begin, "end": seen.gap.end, "reason": seen.gap.reason}}
        return Step("log", f"{text}: gap from {seen.gap.begin:,} to {seen.gap.end:,}: {seen.gap.reason}", details)
    if seen.corrupt:
        return Step("log", f"{text}: cannot be read", details)
    if is_partition(seen.topic):
        return Step("log", f"{text} of Kafka", details)
    return Step("log", f"{text}: not there, the topic ends at {seen.end:,}", details | {"end": seen.end})


def _batch(seen: Seen) -> Step:
    if seen.commit is None:
        return Step("micro-batch", "not in the journal")
    begin, end = seen.span
    details = {"batch": seen.commit.batch, "begin": begin, "end": end, "landed_at": seen.commit.landed_at}
    when, name = _time(seen.commit.landed_at * 1000), f"{seen.commit.batch}"
    if seen.commit.first is not None:  # rolled up
        name, when = f"one of {seen.commit.first} to {name}", f"until {when}"
        details |= {"first": seen.commit.first}
    return Step("micro-batch", f"{name}, offsets {begin:,} to {end:,}, {when}", details)


def _proof(seen: Seen) -> Step:
    proof = seen.proof
    if proof is None:
        return Step("proof", "not proved yet", {"proved": False})
    details = {"proved": True, "holds": proof.holds, "unaccounted": len(proof.unaccounted)}
    if proof.holds:
        return Step("proof", "every offset of the batch is accounted for", details)
    bad = f"{len(proof.unaccounted)} unaccounted, {len(proof.unexpected)} not of the batch, or twice"
    return Step("proof", f"does not hold: {bad}", details)


def _time(micros: int) -> str:
    """In UTC; as a number where it is no time."""
    try:
        return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(micros)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
