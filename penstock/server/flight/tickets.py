"""What a Flight ticket asks for, and the batches it gives. Blocking."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf.timestamp_pb2 import Timestamp

from penstock.files.json_values import parse_object
from penstock.log import CorruptBatch, StoredBatch, Topic
from penstock.log.store.provenance import PROVENANCE, with_provenance
from penstock.records import SCHEMA, concatenated
from penstock.server.reading.query import LAST_OFFSET, parse_filter
from penstock.slogd.errors import BadRequest, Damaged, NoSuchTopic

SMALL_ROWS = 8192
LARGE_BYTES = 2 << 20
"""Batches are sent as they lie in the log; smaller ones are put together up to so many rows or bytes."""
_KEYS = ("topic", "from", "to", "filter", "columns")
_COLUMNS = pa.schema([*SCHEMA, *PROVENANCE])


@dataclass(frozen=True, slots=True)
class Ticket:
    """``start``: an offset, a time in microseconds as text "@micros", "earliest" or "latest"; ``end`` exclusive."""

    topic: str
    start: int | str = "earliest"
    end: int | None = None
    filter_text: str = ""
    columns: tuple[str, ...] = tuple(SCHEMA.names)

    @classmethod
    def parse(cls, data: bytes) -> Ticket:
        """Raises BadRequest and nothing else."""
        try:
            given = parse_object(data)
        except ValueError:
            given = {}
        if not isinstance(given.get("topic"), str):
            raise BadRequest('a ticket is a JSON object: {"topic": ..., "from", "to", "filter", "columns"}')
        if unknown := set(given) - set(_KEYS):
            raise BadRequest(f"a ticket has no {min(unknown)!r}; it has {', '.join(_KEYS)}")
        text = given.get("filter") or ""
        if not isinstance(text, str):
            raise BadRequest("filter must be a text")
        return cls(given["topic"], _start(given.get("from")), _end(given.get("to")), text.strip(), _columns(given))

    @property
    def schema(self) -> pa.Schema:
        """The columns of what is sent."""
        return pa.schema([_COLUMNS.field(name) for name in self.columns])

    def encode(self) -> bytes:
        """As ``parse`` reads it."""
        text = str(self.start)
        start: Any = _time_text(int(text[1:])) if text.startswith("@") else self.start
        given = {"topic": self.topic, "from": start, "to": self.end, "columns": list(self.columns)}
        given["filter"] = self.filter_text or None
        return json.dumps({name: value for name, value in given.items() if value is not None}).encode()


def topic_of_path(path: list[bytes]) -> str:
    """Return the topic that a descriptor's path names. Raises BadRequest."""
    if len(path) != 1:
        raise BadRequest("a path is one topic")
    return path[0].decode(errors="replace")


def _start(value: Any) -> int | str:
    if value is None:
        return "earliest"
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LAST_OFFSET:
        return value
    if value in ("earliest", "latest"):
        return str(value)
    try:
        stamp = Timestamp()
        stamp.FromJsonString(value)
    except (ValueError, TypeError, AttributeError):
        raise BadRequest("from is an offset, earliest, latest or a time (RFC 3339)") from None
    return f"@{stamp.seconds * 1_000_000 - (-stamp.nanos // 1000)}"


def _time_text(micros: int) -> str:
    seconds, rest = divmod(micros, 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1000).ToJsonString()


def _end(value: Any) -> int | None:
    if value is None or (type(value) is int and 0 <= value <= LAST_OFFSET):
        return value
    raise BadRequest("to is an offset")


def _columns(given: dict[str, Any]) -> tuple[str, ...]:
    names = given.get("columns")
    if names is None:
        return tuple(SCHEMA.names)
    if not isinstance(names, list) or not names or any(name not in _COLUMNS.names for name in names):
        raise BadRequest(f"columns are of {', '.join(_COLUMNS.names)}")
    return tuple(names)


class Scan:
    """The batches of a topic that a ticket asks for; where to begin and end is settled at once."""

    def __init__(self, topic: Topic, ticket: Ticket) -> None:
        self._topic, self._ticket = topic, ticket
        # Compiled once the right to read the topic was checked.
        self._filter = parse_filter(ticket.filter_text)
        try:
            self._reader = topic.reader()
            self.end = min(self._reader.end, self._reader.end if ticket.end is None else ticket.end)
            self.begin = self._first(ticket.start)
        except FileNotFoundError:
            raise NoSuchTopic(f"Topic does not exist: {topic.name}") from None
        self.schema = ticket.schema
        self._has_provenance = bool(set(ticket.columns) & set(PROVENANCE.names))

    def _first(self, start: int | str) -> int:
        if isinstance(start, int):
            return start
        if start == "latest":
            return self._reader.end
        return self._reader.at_timestamp(int(start[1:])) if start.startswith("@") else self._reader.start

    @property
    def rows(self) -> int:
        """How many rows lie between begin and end, those in gaps not counted."""
        gone = sum(max(0, min(g.end, self.end) - max(g.begin, self.begin)) for g in self._topic.gaps())
        return max(self.end - self.begin - gone, 0)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches; an empty one for each batch in which the filter matches no row, so that the caller can
        let others have the thread.
        """
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for stored in self._stored():
            batch = self._wanted(stored)
            if not batch.num_rows:
                yield batch
                continue
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= SMALL_ROWS or size >= LARGE_BYTES:
                yield concatenated(waiting)
                waiting, rows, size = [], 0, 0
        if waiting:
            yield concatenated(waiting)

    def _wanted(self, stored: StoredBatch) -> pa.RecordBatch:
        batch = stored.batch if self._filter is None else self._filter.apply(stored.batch)
        if self._has_provenance:
            return with_provenance(batch, stored.origin, self.schema)
        return batch if self.schema.equals(SCHEMA) else batch.select(list(self._ticket.columns))

    def _stored(self) -> Iterator[StoredBatch]:
        """What is stored; a batch whose checksum does not hold is made a gap, and reading goes on behind it."""
        offset, failed = self.begin, -1
        while True:
            try:
                for stored in self._reader.read(offset, end=self.end):
                    stored.batch  # noqa: B018 - read here, where it can be made a gap
                    offset = stored.end
                    yield stored
                return
            except CorruptBatch as bad:
                if bad.begin == failed:
                    raise Damaged(f"Cannot read {self._topic.name} at offset {offset}") from None
                failed = bad.begin
                self._topic.verify(bad.begin, bad.end)
            except FileNotFoundError:
                raise NoSuchTopic(f"Topic does not exist: {self._topic.name}") from None
