"""States of quarantined messages, and the history of what was done with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.files.checked_lines import append_lines
from penstock.landing.journal import Commit
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table_paths import Layout
from penstock.sql.quarantine_states import State
from penstock.sql.quarantined import Selection, groups, history, newest
from penstock.sql.tables import Tables
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.quarantine.send_back import SendBack, count_sent_back
from tests.landing.typed.typed_life import WINDOW, Life
from tests.landing.writing.messages import source

ALL = Selection()


class LogAfter:
    """A log whose topic ``t`` continues at an offset."""

    def __init__(self, end: int) -> None:
        self.end = end

    def append_batch(self, topic: str, body: pa.RecordBatch, producer: Any = None) -> list[int]:
        self.end += body.num_rows
        return list(range(self.end - body.num_rows, self.end))


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    layout = Layout.for_tables(tmp_path)
    broken = [(n, b'{"type":"x","uuid":"u%d","timestamp":1,}' % n) for n in range(5)]
    Life(layout, ()).land(0, [source([*broken, (5, b"text")])])
    return Tables(layout)


def offsets(tables: Tables, state: State) -> list[int]:
    return sorted(row.offset for row in newest(tables, ALL, 9, state=state))


def test_state_follows_the_successor(tables: Tables) -> None:
    rows = [row for row in newest(tables, ALL, 9) if row.offset < 4]
    SendBack(tables.layout, LogAfter(6), lambda payload: payload.replace(b",}", b"}"), "cut").run(rows)
    assert [offsets(tables, state) for state in State] == [[4], [0, 1, 2, 3], [], []]
    assert [dict(action.outcome) for action in history(tables)] == [{"on the way": 4}]
    # The rows are sent back newest first, to the offsets 6 to 9: one lands, one is broken, one has no row, one waits.
    origins = [row.offset for row in rows]
    landed = [(6, b'{"type":"x","uuid":"u","timestamp":1}'), (7, b"{"), (9, b"later")]
    Life(tables.layout, ()).land(1, [source(landed)])
    assert offsets(tables, State.RESOLVED) == sorted([origins[0], origins[2], origins[3]])
    assert offsets(tables, State.SENT_BACK) == [origins[1]]
    assert offsets(tables, State.OPEN) == [4, 7]
    (action,) = history(tables)
    assert (action.topic, action.messages, action.how) == ("t", 4, "cut")
    assert action.outcome_text() == "1 quarantined again, 2 resolved, 1 resolved as duplicates"
    assert sum(group.messages for group in groups(tables)) == 2


def test_duplicate_is_resolved_on_a_topic_without_further_rows(tables: Tables) -> None:
    rows = [row for row in newest(tables, ALL, 9) if row.offset < 2]
    SendBack(tables.layout, LogAfter(6)).run(rows)
    # The batch of the two successors has no row: both were duplicates. Only the journal knows that it landed.
    append_lines(tables.layout.journal, [Commit(1, {"t": 6}, {"t": 8}, 0, 0, ()).document()])
    assert [offsets(tables, state) for state in State] == [[2, 3, 4], [], [0, 1], []]
    (action,) = history(tables)
    assert action.outcome_text() == "2 resolved as duplicates"


def test_deleted_successor_is_resolved_and_no_duplicate(tables: Tables) -> None:
    SendBack(tables.layout, LogAfter(6)).run([row for row in newest(tables, ALL, 9) if row.offset == 0])
    Life(tables.layout, ()).land(1, [source([(6, b"lands")])])
    append_lines(tables.layout.journal, [Commit(1, {"t": 6}, {"t": 7}, 0, 0, ()).document()])
    request_deletion(tables.layout, REQUESTED, parse_conditions("kind = 'message'"))
    execute_deletions(tables.layout, WINDOW)
    assert [dict(action.outcome) for action in history(tables) if action.state == State.SENT_BACK] == [{"resolved": 1}]


def test_rows_deleted_after_they_were_sent_back_have_another_fate(tables: Tables) -> None:
    SendBack(tables.layout, LogAfter(6)).run([row for row in newest(tables, ALL, 9) if row.offset < 2])
    assert count_sent_back(tables.layout) == {"t": {"quarantined.bad_json": 2}}
    request_deletion(tables.layout, REQUESTED, parse_conditions("kind = 'quarantine'"))
    execute_deletions(tables.layout, WINDOW)
    assert count_sent_back(tables.layout) == {}


def test_deleted_messages_are_in_the_history_by_reason(tables: Tables) -> None:
    request_deletion(tables.layout, REQUESTED, parse_conditions("kind = 'quarantine'"))
    execute_deletions(tables.layout, WINDOW)
    assert [offsets(tables, state) for state in State] == [[], [], [], []]
    (action,) = history(tables)
    assert action.document() | {"at": ""} == {
        "at": "",
        "action": "deleted",
        "topic": "t",
        "messages": 5,
        "how": "asked",
        "outcome": {"bad_json": 5},
    }
    assert history(Tables(tables.layout, readable=frozenset(["u"]))) == []
