"""States of quarantined messages, and the history of what was done with them.

A message is *open* until it is sent back. It is *sent back* until its successor is through the pipeline, and for good
if the successor is in quarantine again. It is *resolved* once its successor has landed, or was dropped by the
transformation or as a duplicate (which the history counts apart). A *deleted* message is no longer in the table: only
its count, by topic and reason, remains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from penstock.counts import Name
from penstock.landing.event_rules import MessageKind
from penstock.landing.journal import landed_ends
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.rows.engine import sql_literal
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.send_back import deleted_positions, rows_sent_back
from penstock.upkeep.quarantine.send_once import SentRow

MAX_CHECKED_ROWS = 1_000_000
"""Limit for the newest rows sent back whose state is looked up."""
WAITING, AGAIN, DUPLICATE = "on the way", "quarantined again", "resolved as duplicates"
Position = tuple[str, int]
Ask = Callable[[str], list[dict[str, Any]]]
"""Return the rows that a query over the table yields."""


class State(StrEnum):
    """The state of a quarantined message."""

    OPEN = "open"
    SENT_BACK = "sent_back"
    RESOLVED = "resolved"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Action:
    """Something that was done with messages of one topic: SENT_BACK with a fix, or DELETED.

    ``outcome`` counts the messages: by what became of them, or by the reason for which they were in quarantine.
    """

    at: datetime
    state: State
    topic: str
    messages: int
    how: str
    outcome: Mapping[str, int]

    def document(self) -> dict[str, Any]:
        """Return the action as a JSON document."""
        header = {"at": self.at.isoformat(), "action": self.state.value, "topic": self.topic}
        return {**header, "messages": self.messages, "how": self.how, "outcome": dict(self.outcome)}

    def outcome_text(self) -> str:
        """Return the outcome in words."""
        return ", ".join(f"{messages:,} {name.replace('_', ' ')}" for name, messages in sorted(self.outcome.items()))


def state_condition(tables: Tables, state: State, ask: Ask) -> str:
    """Return the SQL condition, after a WHERE, of rows of the log in a state."""
    if state == State.DELETED:
        return " AND false"
    rows = _sent_rows(tables)
    if state == State.OPEN:
        return _position_condition(((row.topic, int(row.key)) for row in rows), "NOT ") if rows else ""
    outcomes = _find_outcomes(tables, rows, ask)
    positions = [
        (row.topic, int(row.key))
        for row, outcome in zip(rows, outcomes, strict=True)
        if (outcome in (State.RESOLVED, DUPLICATE)) == (state == State.RESOLVED)
    ]
    return _position_condition(positions) if positions else " AND false"


def load_history(tables: Tables, ask: Ask) -> list[Action]:
    """Return the actions on quarantined messages of readable topics, the newest first."""
    actions = [*_sendings(tables, ask), *_deletions(tables)]
    return sorted((action for action in actions if tables.may_read(action.topic)), key=lambda a: a.at, reverse=True)


def _sendings(tables: Tables, ask: Ask) -> Iterable[Action]:
    rows = _sent_rows(tables)
    batches: dict[tuple[int, str, str], Counter[str]] = {}
    for row, outcome in zip(rows, _find_outcomes(tables, rows, ask), strict=True):
        batches.setdefault((row.sent_at, row.topic, row.fix), Counter())[outcome] += 1
    for (sent_at, topic, fix), outcome_counts in batches.items():
        moment = datetime.fromtimestamp(sent_at / 1000, UTC)
        yield Action(moment, State.SENT_BACK, topic, outcome_counts.total(), fix or "unchanged", outcome_counts)


def _deletions(tables: Tables) -> Iterable[Action]:
    record = DeletionRecord(tables.layout)
    for _, deleted in record.deleted():
        reasons: Counter[str] = Counter()
        for fates in deleted.fates.values():
            for name, messages in fates.items():
                if name.startswith(Name.QUARANTINED):
                    reasons[name.removeprefix(Name.QUARANTINED)] += messages
        if reasons:
            moment = datetime.fromtimestamp(record.read_time(deleted.number), UTC)
            yield Action(moment, State.DELETED, deleted.topic, reasons.total(), deleted.why, reasons)


def _sent_rows(tables: Tables) -> list[SentRow]:
    return list(rows_sent_back(tables.layout))[-MAX_CHECKED_ROWS:]


def _find_outcomes(tables: Tables, rows: list[SentRow], ask: Ask) -> list[str]:
    """Return for each sent row RESOLVED, DUPLICATE, WAITING or AGAIN."""
    successors = [(row.topic, row.successor) for row in rows if row.successor is not None]
    if not successors:
        return [WAITING] * len(rows)
    of_log = 'FROM landed WHERE "partition" IS NULL'
    topics = ", ".join(sorted({sql_literal(topic) for topic, _ in successors}))
    # Order: the ends first. Rows that a batch lands in between are behind them, and wait until the next look.
    newest = ask(f'SELECT topic, max("offset") AS newest {of_log} AND topic IN ({topics}) GROUP BY ALL')
    # A batch of duplicates alone has no row; the journal knows that the topic has landed so far.
    ends = Counter(landed_ends(tables.layout)) | Counter({row["topic"]: row["newest"] + 1 for row in newest})
    landed = ask(f'SELECT topic, "offset", kind {of_log}{_position_condition(successors)}')
    kinds = {(row["topic"], row["offset"]): row["kind"] for row in landed}
    deleted = deleted_positions(tables.layout, successors)

    def find_outcome(row: SentRow) -> str:
        if row.successor is None:
            return WAITING
        kind = kinds.get((row.topic, row.successor))
        if kind is None and row.successor >= ends[row.topic]:
            return WAITING
        if kind is None:
            # Offsets land in order: one below the end without a row was a duplicate, or its row was deleted.
            return State.RESOLVED if (row.topic, row.successor) in deleted else DUPLICATE
        return AGAIN if kind == MessageKind.QUARANTINE else State.RESOLVED

    return [find_outcome(row) for row in rows]


def _position_condition(positions: Iterable[Position], negation: str = "") -> str:
    """Return the SQL condition, after a WHERE, of rows of the log at positions."""
    runs: list[list[Any]] = []
    for topic, offset in sorted(positions):
        if runs and runs[-1][0] == topic and runs[-1][2] == offset:
            runs[-1][2] = offset + 1
        else:
            runs.append([topic, offset, offset + 1])
    run_values = ", ".join(f"({sql_literal(topic)}, {begin}, {end})" for topic, begin, end in runs)
    rows = f"SELECT topic, unnest(range(first, beyond)) FROM (VALUES {run_values}) AS sent(topic, first, beyond)"  # noqa: S608  quoted
    # Only rows of the log are sent back: offsets of Kafka's partitions are others.
    return f' AND {negation}("partition" IS NULL AND (topic, "offset") IN ({rows}))'
