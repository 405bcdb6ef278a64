"""Quarantined messages: by reason and shape, newest first, and in order for sending back.

Limit: every function reads a bounded number of rows within ``SECONDS``, because the console calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from penstock.counts import Counts
from penstock.errors import PenstockError
from penstock.landing.event_rules import MessageKind, Reason
from penstock.landing.rows.engine import sql_literal
from penstock.landing.rows.type_schemas import is_of_contract
from penstock.landing.typed.columns import strict_tables
from penstock.sql.quarantine_states import (
    MAX_CHECKED_ROWS,
    Action,
    State,
    load_history,
    state_condition,
)
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.send_back import Row, SendBack, sent_before

MAX_GROUPED_ROWS = 100_000
"""Limit for the newest rows that are grouped by shape."""
MAX_GROUPS = 200
TIMEOUT_S = 30.0
SEND_BATCH_ROWS = 2_000
"""Rows that are read and sent back in one step."""
_TEXT = "left(coalesce(try(decode(payload)), payload::VARCHAR), 400)"
_STEPS = (
    (r':\s*"(?:[^"\\]|\\.)*("|$)', ': "..."'),  # text values
    (r"(\\x[0-9A-F]{2})+", r"\\x.."),  # DuckDB's form of bytes that are not text
    (r"[0-9]+", "9"),
    (r"\s+", " "),
)


def _shape() -> str:
    text = _TEXT
    for pattern, replacement in _STEPS:
        text = f"regexp_replace({text}, {sql_literal(pattern)}, {sql_literal(replacement)}, 'g')"
    return f"left({text}, 120)"


SHAPE = _shape()
"""SQL expression for the shape of a payload: its beginning, with texts and numbers replaced."""
_FROM_QUARANTINE = f"FROM landed WHERE kind = {sql_literal(MessageKind.QUARANTINE)}"
_PAYLOAD = "coalesce(payload, ''::BLOB) AS payload"
_ROW = f'topic, "partition", "offset", timestamp, source, reason, {_PAYLOAD}, key, annotations'
_SORT_KEY = 'timestamp, topic, coalesce("partition", -1), "offset"'


class UnknownReason(PenstockError, ValueError):
    """A reason that no quarantined message has; the text names the existing reasons."""


class RowPosition(NamedTuple):
    """The sort position of a row in quarantine, by time."""

    timestamp: datetime
    topic: str
    partition: int
    offset: int

    @classmethod
    def from_row(cls, row: Row) -> RowPosition:
        return cls(row.timestamp, row.topic, -1 if row.partition is None else row.partition, row.offset)

    def sql(self) -> str:
        """Return the position as an SQL row."""
        moment = sql_literal(self.timestamp.isoformat())
        return f"(TIMESTAMPTZ {moment}, {sql_literal(self.topic)}, {self.partition}, {self.offset})"


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of quarantined messages by reason, topic and shape; empty matches all."""

    reason: str = ""
    topic: str = ""
    shape: str = ""

    def sql(self) -> str:
        """Return the conditions after a WHERE."""
        conditions = (("reason", self.reason), ("topic", self.topic), (SHAPE, self.shape))
        return "".join(f" AND {column} = {sql_literal(expected)}" for column, expected in conditions if expected)

    def words(self) -> str:
        """Return the selection in words."""
        parts = (("reason", self.reason), ("topic", self.topic), ("that look like", self.shape))
        return ", ".join(f"{name} {expected}" for name, expected in parts if expected) or "all reasons, all topics"


class Group(NamedTuple):
    """Messages of one reason and shape: their number, sources and topics, and the newest."""

    reason: str
    shape: str
    messages: int
    sources: list[str]
    topics: list[str]
    newest: datetime


class Extent(NamedTuple):
    """The size of a selection.

    ``of_log`` messages can be sent back, ``before`` were sent earlier; the others came from Kafka.
    """

    messages: int
    of_log: int
    before: int
    newest: datetime | None


def contract_violations(tables: Tables) -> Counts:
    """Return how many messages are in quarantine for each rule of contracts of typed tables."""
    query = f"SELECT reason, count(*) AS messages {_FROM_QUARANTINE} GROUP BY reason"
    rows = _query_table(tables, query)
    return Counts({row["reason"]: row["messages"] for row in rows if is_of_contract(row["reason"] or "")})


def check(tables: Tables, selection: Selection) -> None:
    """Raise UnknownReason for a reason that is neither Penstock's nor of a quarantined message."""
    if not selection.reason or selection.reason in set(Reason):
        return
    reasons = [row["reason"] for row in _query_table(tables, f"SELECT DISTINCT reason {_FROM_QUARANTINE}")]
    if selection.reason not in reasons:
        existing = ", ".join(sorted({*map(str, Reason), *filter(None, reasons)}))
        raise UnknownReason(f"no quarantined message has the reason {selection.reason!r}; the reasons are {existing}")


def groups(tables: Tables) -> list[Group]:
    """Return the newest messages that were not sent back, by reason and shape, the largest group first."""
    is_open = state_condition(tables, State.OPEN, partial(_query_table, tables))
    newest = f"SELECT *, {SHAPE} AS shape {_FROM_QUARANTINE}{is_open} ORDER BY timestamp DESC LIMIT {MAX_GROUPED_ROWS}"
    query = (
        "SELECT reason, shape, count(*) AS messages, list(DISTINCT source) AS sources, list(DISTINCT topic) AS topics, "  # noqa: S608  quoted
        f"max(timestamp) AS newest FROM ({newest}) GROUP BY ALL ORDER BY messages DESC, newest DESC LIMIT {MAX_GROUPS}"
    )
    return [Group(**row) for row in _query_table(tables, query)]


def newest(
    tables: Tables, selection: Selection, limit: int, before: RowPosition | None = None, state: State = State.OPEN
) -> list[Row]:
    """Return the messages of a selection that are in a state, the newest first."""
    beyond = f" AND ({_SORT_KEY}) < {before.sql()}" if before else ""
    # The order of the index columns is the one of `_SORT_KEY`, so that a page continues exactly behind the last one.
    order = ", ".join(f"{column} DESC" for column in _SORT_KEY.split(", ", 2)[:2])
    condition = state_condition(tables, state, partial(_query_table, tables))
    return _quarantined_rows(
        tables, f'{selection.sql()}{condition}{beyond} ORDER BY {order}, "offset" DESC LIMIT {limit}'
    )


def history(tables: Tables) -> list[Action]:
    """Return the actions on quarantined messages, the newest first."""
    return load_history(tables, partial(_query_table, tables))


def extent(tables: Tables, selection: Selection) -> Extent:
    """Return the size of a selection."""
    of_log = 'count(*) FILTER ("partition" IS NULL)'
    query = (
        f"SELECT count(*) AS messages, {of_log} AS of_log, max(timestamp) AS newest {_FROM_QUARANTINE}{selection.sql()}"
    )
    (counts,) = _query_table(tables, query)
    return Extent(before=_sent_before(tables, selection), **counts)


def _sent_before(tables: Tables, selection: Selection) -> int:
    sent = sent_before(tables.layout)
    if not sent:
        return 0
    query = (
        f'SELECT topic, "offset" {_FROM_QUARANTINE}{selection.sql()} AND "partition" IS NULL LIMIT {MAX_CHECKED_ROWS}'
    )
    return sum((row["topic"], row["offset"]) in sent for row in _query_table(tables, query))


def in_order(tables: Tables, selection: Selection, through: datetime | None) -> Iterator[list[Row]]:
    """Yield the messages of a selection that can be sent back in steps, oldest first.

    ``through`` limits the time: a message that is quarantined again after it was sent back must not be sent forever.
    """
    after: RowPosition | None = None
    while through is not None:
        beyond = f" AND ({_SORT_KEY}) > {after.sql()}" if after else ""
        until = f" AND timestamp <= TIMESTAMPTZ {sql_literal(through.isoformat())}"
        rest = f'{selection.sql()} AND "partition" IS NULL{until}{beyond} ORDER BY timestamp, topic, "offset"'
        rows = _quarantined_rows(tables, f"{rest} LIMIT {SEND_BATCH_ROWS}")
        if not rows:
            return
        yield rows
        # By position, not by offset into the list: rows that are quarantined during the run must not shift the steps.
        after = RowPosition.from_row(rows[-1])


def send_all(
    tables: Tables,
    selection: Selection,
    sender: SendBack,
    through: datetime | None,
    report_progress: Callable[[int], bool],
) -> tuple[int, int]:
    """Send a selection back; return how many messages were sent and how many the fix did not change.

    ``report_progress`` is called with the number of checked messages; it ends the run by returning False.
    """
    sent = unchanged = checked = 0
    for rows in in_order(tables, selection, through):
        step_counts = sender.run(rows)
        sent, unchanged, checked = sent + step_counts[0], unchanged + step_counts[1], checked + len(rows)
        if not report_progress(checked):
            break
    return sent, unchanged


def _quarantined_rows(tables: Tables, rest: str) -> list[Row]:
    rows = _query_table(tables, f"SELECT {_ROW} {_FROM_QUARANTINE}{rest}")
    more = {"schemas": tables.rules.events.schemas or strict_tables(tables.typed)}
    return [
        Row(**{**row, **more, "reason": row["reason"] or "", "annotations": row["annotations"] or []}) for row in rows
    ]


def _query_table(tables: Tables, query: str) -> list[dict[str, Any]]:
    """Query the table alone, without the log. Raises BadQuery, also after ``TIMEOUT_S``, and what ``Query`` raises."""
    # Imports DuckDB, which the help of commands does without.
    from penstock.sql.query import Query

    with Query(replace(tables, store=None), query, timeout_s=TIMEOUT_S) as query_run:
        return query_run.answer().to_pylist()
