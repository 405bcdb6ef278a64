"""Messages in quarantine, as the page and the command see them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.sql import quarantined
from penstock.sql.quarantine_states import State
from penstock.sql.quarantined import (
    RowPosition,
    Selection,
    UnknownReason,
    check,
    extent,
    groups,
    in_order,
    newest,
    send_all,
)
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.send_back import SendBack, count_sent_back
from tests.spark.spark_helpers import HandWritten
from tests.upkeep.quarantine.test_send_back import Log

START = datetime(2026, 11, 22, tzinfo=UTC)


def row(n: int, reason: str, payload: bytes, **more: Any) -> dict[str, Any]:
    position = {"topic": "t", "offset": n, "timestamp": START.timestamp() + n, "source": f"udp-{n % 2}"}
    return {**position, "kind": "quarantine", "reason": reason, "payload": payload, **more}


def written(folder: Path) -> Tables:
    layout = Layout.for_tables(folder)
    table = HandWritten(layout)
    bad = [row(n, "bad_json", b'{"type": "a%d", "n": %d,}' % (n, n)) for n in range(6)]
    table.commit({}, bad[:3])
    table.commit({}, [*bad[3:], row(6, "missing_uuid", b'{"type": "x", "timestamp": 12}')])
    table.commit(
        {}, [row(7, "bad_json", b"{\xff\x00"), row(8, "odd", b"", topic="u"), row(9, "bad_json", b"{", partition=2)]
    )
    return Tables(layout)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return written(tmp_path_factory.mktemp("tables"))


def test_newest_messages_come_first_page_by_page(tables: Tables) -> None:
    first = newest(tables, Selection(), 4)
    assert [row.position for row in first] == ["t/2:9", "u:8", "t:7", "t:6"]
    assert [row.offset for row in newest(tables, Selection(), 9, RowPosition.from_row(first[-1]))] == [5, 4, 3, 2, 1, 0]
    assert [row.source for row in first] == ["udp-1", "udp-0", "udp-1", "udp-0"]
    assert first[1].payload == b""


def test_message_that_misses_its_schema_names_the_field(tmp_path: Path) -> None:
    payload = b'{"type":"t","uuid":"u","timestamp":1,"data":{"ms":"fast"}}'
    layout = Layout.for_tables(tmp_path)
    HandWritten(layout).commit({}, [row(1, "schema_not_met", payload)])
    strict = TypedTable("t", "t", (Column("ms", "bigint", "ms"),), strict=True)
    (message,) = newest(Tables(layout, typed=(strict,)), Selection(), 9)
    assert message.fault.text == 'data.ms is text "fast", it must be bigint, at character 51'


def test_messages_of_one_shape_are_one_group(tables: Tables) -> None:
    quarantine_groups = {(row.reason, row.shape): row for row in groups(tables)}
    alike = quarantine_groups["bad_json", '{"type": "...", "n": 9,}']
    assert (alike.messages, sorted(alike.sources), alike.topics) == (6, ["udp-0", "udp-1"], ["t"])
    assert alike.newest == START + timedelta(seconds=5)
    assert ("bad_json", r"{\x..") in quarantine_groups
    assert ("missing_uuid", '{"type": "...", "timestamp": 9}') in quarantine_groups
    assert sum(row.messages for row in quarantine_groups.values()) == 10


def test_selection_matches_a_group(tables: Tables) -> None:
    for row in groups(tables):
        chosen = Selection(row.reason, shape=row.shape)
        assert extent(tables, chosen).messages == row.messages, row
    assert [row.offset for row in newest(tables, Selection(topic="u"), 9)] == [8]


def test_unknown_reason_is_refused_with_the_existing_reasons(tables: Tables) -> None:
    check(tables, Selection("missing_type"))
    check(tables, Selection("odd"))
    with pytest.raises(
        UnknownReason, match=r"no quarantined message has the reason 'bad jsn'; the reasons are bad_json, .*odd"
    ):
        check(tables, Selection("bad jsn"))


def test_selection_is_quoted(tables: Tables) -> None:
    assert newest(tables, Selection("'; drop table landed --", "' or 1=1 --", "'"), 9) == []


def test_selection_is_sent_back_once_whole_and_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantined, "SEND_BATCH_ROWS", 2)
    tables, log, progress = written(tmp_path), Log(), []
    chosen = Selection("bad_json")
    about = extent(tables, chosen)
    assert (about.messages, about.of_log, about.before) == (8, 7, 0)

    def report_progress(looked: int) -> bool:
        progress.append(looked)
        return looked < 4

    assert send_all(tables, chosen, SendBack(tables.layout, log), about.newest, report_progress) == (4, 0)
    assert extent(tables, chosen).before == 4
    assert [row.offset for row in newest(tables, chosen, 9)] == [9, 7, 5, 4], "sent rows are resolved; 9 is Kafka's"
    assert [row.offset for row in newest(tables, chosen, 9, state=State.SENT_BACK)] == [3, 2, 1, 0]
    assert sum(group.messages for group in groups(tables)) == 6
    assert count_sent_back(tables.layout) == {"t": {"quarantined.bad_json": 4}}
    assert send_all(tables, chosen, SendBack(tables.layout, log), about.newest, lambda _: True) == (3, 0)
    assert progress == [2, 4]
    assert [marks["replay_of"] for _, marks in log.stored["t"]] == [f"t:{n}" for n in (0, 1, 2, 3, 4, 5, 7)]


def test_message_quarantined_during_the_run_is_not_sent_again(tmp_path: Path) -> None:
    tables = written(tmp_path)
    about = extent(tables, Selection("bad_json"))
    HandWritten(tables.layout, batch=9).commit({}, [row(20, "bad_json", b"{")])
    sent = [row.offset for rows in in_order(tables, Selection("bad_json"), about.newest) for row in rows]
    assert sent == [0, 1, 2, 3, 4, 5, 7]


def test_quarantine_is_empty_before_anything_lands(tmp_path: Path) -> None:
    tables = Tables(Layout.for_tables(tmp_path))
    assert (groups(tables), newest(tables, Selection(), 9), extent(tables, Selection()).messages) == ([], [], 0)


def test_user_sees_messages_of_readable_topics_only(tables: Tables) -> None:
    own_tables = Tables(tables.layout, readable=frozenset(["u"]))
    assert [row.topic for row in newest(own_tables, Selection(), 9)] == ["u"]
    assert [row.messages for row in groups(own_tables)] == [1]
