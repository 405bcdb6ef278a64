"""Messages in quarantine, as the page and the command see them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.landing.table_paths import Layout
from penstock.sql import quarantined
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
from penstock.upkeep.quarantine.send_back import SendBack
from tests.spark.spark_helpers import HandWritten
from tests.upkeep.quarantine.test_send_back import Log

START = datetime(2026, 11, 22, tzinfo=UTC)


def row(n: int, reason: str, payload: bytes, **more: Any) -> dict[str, Any]:
    place = {"topic": "t", "offset": n, "timestamp": START.timestamp() + n, "source": f"udp-{n % 2}"}
    return {**place, "kind": "quarantine", "reason": reason, "payload": payload, **more}


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


def test_the_newest_come_first_page_by_page(tables: Tables) -> None:
    first = newest(tables, Selection(), 4)
    assert [row.position for row in first] == ["t/2:9", "u:8", "t:7", "t:6"]
    assert [one.offset for one in newest(tables, Selection(), 9, RowPosition.of(first[-1]))] == [5, 4, 3, 2, 1, 0]
    assert [one.source for one in first] == ["udp-1", "udp-0", "udp-1", "udp-0"]
    assert first[1].payload == b""


def test_messages_that_look_alike_are_one_group(tables: Tables) -> None:
    found = {(one.reason, one.shape): one for one in groups(tables)}
    alike = found["bad_json", '{"type": "...", "n": 9,}']
    assert (alike.messages, sorted(alike.sources), alike.topics) == (6, ["udp-0", "udp-1"], ["t"])
    assert alike.newest == START + timedelta(seconds=5)
    assert ("bad_json", r"{\x..") in found
    assert ("missing_uuid", '{"type": "...", "timestamp": 9}') in found
    assert sum(one.messages for one in found.values()) == 10


def test_a_group_can_be_chosen(tables: Tables) -> None:
    for one in groups(tables):
        chosen = Selection(one.reason, shape=one.shape)
        assert extent(tables, chosen).messages == one.messages, one
    assert [one.offset for one in newest(tables, Selection(topic="u"), 9)] == [8]


def test_a_reason_that_nothing_has_is_refused_with_those_that_are(tables: Tables) -> None:
    check(tables, Selection("missing_type"))
    check(tables, Selection("odd"))
    with pytest.raises(UnknownReason, match=r"nothing is in quarantine for 'bad jsn'; the reasons are bad_json, .*odd"):
        check(tables, Selection("bad jsn"))


def test_what_is_asked_with_is_no_sql(tables: Tables) -> None:
    assert newest(tables, Selection("'; drop table landed --", "' or 1=1 --", "'"), 9) == []


def test_a_selection_is_sent_back_once_whole_and_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantined, "SEND_BATCH_ROWS", 2)
    tables, log, told = written(tmp_path), Log(), []
    chosen = Selection("bad_json")
    about = extent(tables, chosen)
    assert (about.messages, about.of_log, about.before) == (8, 7, 0)

    def tell(looked: int) -> bool:
        told.append(looked)
        return looked < 4

    assert send_all(tables, chosen, SendBack(tables.layout, log), about.newest, tell) == (4, 0)
    assert extent(tables, chosen).before == 4
    assert send_all(tables, chosen, SendBack(tables.layout, log), about.newest, lambda _: True) == (3, 0)
    assert told == [2, 4]
    assert [marks["replay_of"] for _, marks in log.stored["t"]] == [f"t:{n}" for n in (0, 1, 2, 3, 4, 5, 7)]


def test_what_comes_back_to_quarantine_meanwhile_is_not_sent_again(tmp_path: Path) -> None:
    tables = written(tmp_path)
    about = extent(tables, Selection("bad_json"))
    HandWritten(tables.layout, batch=9).commit({}, [row(20, "bad_json", b"{")])
    sent = [one.offset for rows in in_order(tables, Selection("bad_json"), about.newest) for one in rows]
    assert sent == [0, 1, 2, 3, 4, 5, 7]


def test_before_anything_has_landed_there_is_nothing(tmp_path: Path) -> None:
    tables = Tables(Layout.for_tables(tmp_path))
    assert (groups(tables), newest(tables, Selection(), 9), extent(tables, Selection()).messages) == ([], [], 0)


def test_who_may_read_one_topic_sees_no_other(tables: Tables) -> None:
    mine = Tables(tables.layout, readable=frozenset(["u"]))
    assert [one.topic for one in newest(mine, Selection(), 9)] == ["u"]
    assert [one.messages for one in groups(mine)] == [1]
