"""Flight tickets, and the scan of a topic that answers one. Blocking."""

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
"""Batches are sent as stored; smaller ones are joined up to this many rows or bytes, to save messages."""
_KEYS = ("topic", "from", "to", "filter", "columns")
_COLUMNS = pa.schema([*SCHEMA, *PROVENANCE])


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request for rows. ``start``: an offset, "@micros" (a time), "earliest" or "latest"; ``end`` is exclusive."""

    topic: str
    start: int | str = "earliest"
    end: int | None = None
    filter_text: str = ""
    columns: tuple[str, ...] = tuple(SCHEMA.names)

    @classmethod
    def parse(cls, ticket: bytes) -> Ticket:
        """Parse a ticket. Raises BadRequest for any invalid bytes."""
        try:
            fields = parse_object(ticket)
        except ValueError:
            fields = {}
        if not isinstance(fields.get("topic"), str):
            raise BadRequest('a ticket is a JSON object: {"topic": ..., "from", "to", "filter", "columns"}')
        if unknown := set(fields) - set(_KEYS):
            raise BadRequest(f"a ticket has no {min(unknown)!r}; it has {', '.join(_KEYS)}")
        text = fields.get("filter") or ""
        if not isinstance(text, str):
            raise BadRequest("filter must be a text")
        return cls(
            fields["topic"],
            _parse_start(fields.get("from")),
            _parse_end(fields.get("to")),
            text.strip(),
            _parse_columns(fields),
        )

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the answer."""
        return pa.schema([_COLUMNS.field(name) for name in self.columns])

    def encode(self) -> bytes:
        """Encode the ticket; ``parse`` reads it back."""
        text = str(self.start)
        start: Any = _time_text(int(text[1:])) if text.startswith("@") else self.start
        fields = {"topic": self.topic, "from": start, "to": self.end, "columns": list(self.columns)}
        fields["filter"] = self.filter_text or None
        return json.dumps({name: content for name, content in fields.items() if content is not None}).encode()


def topic_of_path(path: list[bytes]) -> str:
    """Return the topic that a descriptor's path names. Raises BadRequest."""
    if len(path) != 1:
        raise BadRequest("a path is one topic")
    return path[0].decode(errors="replace")


def _parse_start(field: Any) -> int | str:
    if field is None:
        return "earliest"
    if isinstance(field, int) and not isinstance(field, bool) and 0 <= field <= LAST_OFFSET:
        return field
    if field in ("earliest", "latest"):
        return str(field)
    try:
        stamp = Timestamp()
        stamp.FromJsonString(field)
    except (ValueError, TypeError, AttributeError):
        raise BadRequest("from is an offset, earliest, latest or a time (RFC 3339)") from None
    return f"@{stamp.seconds * 1_000_000 - (-stamp.nanos // 1000)}"


def _time_text(micros: int) -> str:
    seconds, rest = divmod(micros, 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1000).ToJsonString()


def _parse_end(field: Any) -> int | None:
    if field is None or (type(field) is int and 0 <= field <= LAST_OFFSET):
        return field
    raise BadRequest("to is an offset")


def _parse_columns(fields: dict[str, Any]) -> tuple[str, ...]:
    names = fields.get("columns")
    if names is None:
        return tuple(SCHEMA.names)
    if not isinstance(names, list) or not names or any(name not in _COLUMNS.names for name in names):
        raise BadRequest(f"columns are of {', '.join(_COLUMNS.names)}")
    return tuple(names)


class Scan:
    """Batches of a topic that a ticket selects; begin and end are fixed when it is created. For one thread."""

    def __init__(self, topic: Topic, ticket: Ticket) -> None:
        self._topic, self._ticket = topic, ticket
        # Compiled once the right to read the topic was checked.
        self._filter = parse_filter(ticket.filter_text)
        try:
            self._reader = topic.reader()
            self.end = min(self._reader.end, self._reader.end if ticket.end is None else ticket.end)
            self.begin = self._begin_offset(ticket.start)
        except FileNotFoundError:
            raise NoSuchTopic(f"Topic does not exist: {topic.name}") from None
        self.schema = ticket.schema
        self._has_provenance = bool(set(ticket.columns) & set(PROVENANCE.names))

    def _begin_offset(self, start: int | str) -> int:
        if isinstance(start, int):
            return start
        if start == "latest":
            return self._reader.end
        return self._reader.at_timestamp(int(start[1:])) if start.startswith("@") else self._reader.start

    @property
    def rows(self) -> int:
        """Return the number of rows between begin and end, without gaps."""
        rows_in_gaps = sum(max(0, min(gap.end, self.end) - max(gap.begin, self.begin)) for gap in self._topic.gaps())
        return max(self.end - self.begin - rows_in_gaps, 0)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches; an empty one for each batch without a match, so that the caller can yield the thread."""
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for stored in self._stored_batches():
            batch = self._select(stored)
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

    def _select(self, stored: StoredBatch) -> pa.RecordBatch:
        batch = stored.batch if self._filter is None else self._filter.apply(stored.batch)
        if self._has_provenance:
            return with_provenance(batch, stored.origin, self.schema)
        return batch if self.schema.equals(SCHEMA) else batch.select(list(self._ticket.columns))

    def _stored_batches(self) -> Iterator[StoredBatch]:
        """Yield stored batches; a batch with a bad checksum becomes a gap, and reading continues behind it."""
        offset, repaired = self.begin, -1
        while True:
            try:
                for stored in self._reader.read(offset, end=self.end):
                    stored.batch  # noqa: B018 - decoded here, where damage can be made a gap
                    offset = stored.end
                    yield stored
                return
            except CorruptBatch as damage:
                # Damage at the same offset after it was made a gap cannot be repaired by reading again.
                if damage.begin == repaired:
                    raise Damaged(f"Cannot read {self._topic.name} at offset {offset}") from None
                repaired = damage.begin
                self._topic.verify(damage.begin, damage.end)
            except FileNotFoundError:
                raise NoSuchTopic(f"Topic does not exist: {self._topic.name}") from None
