"""Messages in quarantine: by reason and shape, the newest first, and in order to be sent back. All of it bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.landing.event_rules import MessageKind, Reason
from penstock.landing.quarantine.send_back import Row, SendBack, sent_before
from penstock.landing.rows.engine import quoted
from penstock.sql.query import Query
from penstock.sql.tables import Tables

NEWEST = 100_000
"""Rows that are grouped."""
MOST_GROUPS = 200
SECONDS = 30.0
AT_ONCE = 2_000
"""Rows that are read and sent at once."""
MOST_COUNTED = 1_000_000
"""Rows of which it is looked whether they were sent before."""
_TEXT = "left(coalesce(try(decode(payload)), payload::VARCHAR), 400)"
_STEPS = (
    (r':\s*"(?:[^"\\]|\\.)*("|$)', ': "..."'),  # values that are texts
    (r"(\\x[0-9A-F]{2})+", r"\\x.."),  # as DuckDB shows bytes that are no text
    (r"[0-9]+", "9"),
    (r"\s+", " "),
)


def _shape() -> str:
    text = _TEXT
    for pattern, put in _STEPS:
        text = f"regexp_replace({text}, {quoted(pattern)}, {quoted(put)}, 'g')"
    return f"left({text}, 120)"


SHAPE = _shape()
"""What a payload looks like, in SQL: its beginning with texts and numbers left out."""
_IN_QUARANTINE = f"FROM landed WHERE kind = {quoted(MessageKind.QUARANTINE)}"
_PAYLOAD = "coalesce(payload, ''::BLOB) AS payload"
_ROW = f'topic, "partition", "offset", timestamp, source, reason, {_PAYLOAD}, key, annotations'
_PLACE = 'timestamp, topic, coalesce("partition", -1), "offset"'


class UnknownReason(PenstockError, ValueError):
    """No message was ever in quarantine for this reason; the text names those that there are."""


class Place(NamedTuple):
    """Where a row stands among all of quarantine, in time."""

    timestamp: datetime
    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, row: Row) -> Place:
        return cls(row.timestamp, row.topic, -1 if row.partition is None else row.partition, row.offset)

    def sql(self) -> str:
        """As a row of SQL."""
        moment = quoted(self.timestamp.isoformat())
        return f"(TIMESTAMPTZ {moment}, {quoted(self.topic)}, {self.partition}, {self.offset})"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages are meant: with this reason, of this topic, that look like this; empty is any."""

    reason: str = ""
    topic: str = ""
    shape: str = ""

    def sql(self) -> str:
        """What follows a WHERE."""
        named = (("reason", self.reason), ("topic", self.topic), (SHAPE, self.shape))
        return "".join(f" AND {column} = {quoted(value)}" for column, value in named if value)

    def words(self) -> str:
        """For people."""
        parts = (("reason", self.reason), ("topic", self.topic), ("that look like", self.shape))
        return ", ".join(f"{name} {value}" for name, value in parts if value) or "all reasons, all topics"


class Group(NamedTuple):
    """Messages of one reason and shape: how many, from where, and the newest."""

    reason: str
    shape: str
    messages: int
    sources: list[str]
    topics: list[str]
    newest: datetime


class Extent(NamedTuple):
    """What a selection has: its messages, how many of them can be sent back and were before, and the newest's time."""

    messages: int
    of_log: int
    before: int
    newest: datetime | None


def check(tables: Tables, selection: Selection) -> None:
    """Raises UnknownReason for a reason that no message in quarantine has, and that is none of ours."""
    if not selection.reason or selection.reason in set(Reason):
        return
    found = [row["reason"] for row in _asked(tables, f"SELECT DISTINCT reason {_IN_QUARANTINE}")]
    if selection.reason not in found:
        known = ", ".join(sorted({*map(str, Reason), *filter(None, found)}))
        raise UnknownReason(f"nothing is in quarantine for {selection.reason!r}; the reasons are {known}")


def groups(tables: Tables) -> list[Group]:
    """The newest messages by reason and shape, the most first."""
    newest = f"SELECT *, {SHAPE} AS shape {_IN_QUARANTINE} ORDER BY timestamp DESC LIMIT {NEWEST}"
    query = (
        "SELECT reason, shape, count(*) AS messages, list(DISTINCT source) AS sources, list(DISTINCT topic) AS topics, "  # noqa: S608  quoted
        f"max(timestamp) AS newest FROM ({newest}) GROUP BY ALL ORDER BY messages DESC, newest DESC LIMIT {MOST_GROUPS}"
    )
    return [Group(**row) for row in _asked(tables, query)]


def newest(tables: Tables, selection: Selection, limit: int, before: Place | None = None) -> list[Row]:
    """Messages of a selection, the newest first."""
    beyond = f" AND ({_PLACE}) < {before.sql()}" if before else ""
    order = ", ".join(f"{column} DESC" for column in _PLACE.split(", ", 2)[:2])
    return _rows(tables, f'{selection.sql()}{beyond} ORDER BY {order}, "offset" DESC LIMIT {limit}')


def extent(tables: Tables, selection: Selection) -> Extent:
    """How much a selection is."""
    of_log = 'count(*) FILTER ("partition" IS NULL)'
    query = (
        f"SELECT count(*) AS messages, {of_log} AS of_log, max(timestamp) AS newest {_IN_QUARANTINE}{selection.sql()}"
    )
    (found,) = _asked(tables, query)
    return Extent(before=_sent_before(tables, selection), **found)


def _sent_before(tables: Tables, selection: Selection) -> int:
    sent = sent_before(tables.layout)
    if not sent:
        return 0
    places = f'SELECT topic, "offset" {_IN_QUARANTINE}{selection.sql()} AND "partition" IS NULL LIMIT {MOST_COUNTED}'
    return sum((row["topic"], row["offset"]) in sent for row in _asked(tables, places))


def in_order(tables: Tables, selection: Selection, through: datetime | None) -> Iterator[list[Row]]:
    """The messages of a selection that can be sent back, the oldest first, some at once.

    ``through``: up to this time; what is sent back may come to quarantine again, and is not to be sent for ever.
    """
    after: Place | None = None
    while through is not None:
        beyond = f" AND ({_PLACE}) > {after.sql()}" if after else ""
        until = f" AND timestamp <= TIMESTAMPTZ {quoted(through.isoformat())}"
        rest = f'{selection.sql()} AND "partition" IS NULL{until}{beyond} ORDER BY timestamp, topic, "offset"'
        found = _rows(tables, f"{rest} LIMIT {AT_ONCE}")
        if not found:
            return
        yield found
        after = Place.of(found[-1])


def send_all(
    tables: Tables, selection: Selection, sender: SendBack, through: datetime | None, tell: Callable[[int], bool]
) -> tuple[int, int]:
    """How many were sent back, and how many the fix left. ``tell`` hears how many were looked at; False ends it."""
    sent = left = looked = 0
    for rows in in_order(tables, selection, through):
        some = sender.run(rows)
        sent, left, looked = sent + some[0], left + some[1], looked + len(rows)
        if not tell(looked):
            break
    return sent, left


def _rows(tables: Tables, rest: str) -> list[Row]:
    found = _asked(tables, f"SELECT {_ROW} {_IN_QUARANTINE}{rest}")
    return [Row(**{**row, "reason": row["reason"] or "", "annotations": row["annotations"] or []}) for row in found]


def _asked(tables: Tables, query: str) -> list[dict[str, Any]]:
    """The answer of the table alone. Raises BadQuery, also when it takes too long, and what ``Query`` raises."""
    with Query(replace(tables, store=None), query, seconds=SECONDS) as asked:
        return asked.answer().to_pylist()
