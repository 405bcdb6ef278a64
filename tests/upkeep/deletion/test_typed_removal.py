"""Deletions from the table delete the same rows from typed tables, also after a kill at any point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, DeletionRecord, request_deletion
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table_paths import Layout
from penstock.upkeep.compaction.typed_compaction import compact_typed
from penstock.upkeep.deletion.removal import execute_deletions, request_expired
from tests.landing.typed.test_typed_tables import kill_before_landed
from tests.landing.typed.typed_life import WINDOW, Life, event, land_pairs, uuids
from tests.landing.writing.messages import AT, source


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return land_pairs(tmp_path / "tables", ("t0", "t1", "t0"))


def equal_uuids(layout: Layout) -> list[str]:
    assert uuids(layout.typed("click")) == uuids(layout.landed)
    return uuids(layout.landed)


@pytest.mark.parametrize(
    ("where", "remaining"),
    [
        ("uuid in ('a0', 'b2')", ["a1", "a2", "b0", "b1"]),
        ("topic = 't1'", ["a0", "a2", "b0", "b2"]),
        ("kind = 'event' and type = 'click' and uuid = 'a0'", ["a1", "a2", "b0", "b1", "b2"]),
        ("kind = 'message'", ["a0", "a1", "a2", "b0", "b1", "b2"]),
        ("type = 'view'", ["a0", "a1", "a2", "b0", "b1", "b2"]),
        ("date < '2027-01-01'", []),
        ("host = 'web-1' and date = '2026-02-02'", []),
    ],
)
def test_typed_table_loses_the_same_rows(layout: Layout, where: str, remaining: list[str]) -> None:
    request_deletion(layout, REQUESTED, parse_conditions(where))
    assert execute_deletions(layout, WINDOW) == 1
    assert equal_uuids(layout) == remaining
    compact_typed(layout)
    assert equal_uuids(layout) == remaining


def test_field_of_data_deletes_in_all_tables_with_a_certificate(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    life = Life(layout)
    payloads = [
        event(f"{kind[0]}{number}", kind, user={"id": user})
        for kind in ("click", "view")
        for number, user in enumerate("aba")
    ]
    life.land(0, [source(enumerate(payloads[:3]))])
    life.land(1, [source(enumerate(payloads[3:], 3))])
    request_deletion(layout, REQUESTED, parse_conditions("data.user.id = 'a' and topic = 't'"))
    assert execute_deletions(layout, WINDOW) == 1
    assert (uuids(layout.typed("click")), uuids(layout.landed), uuids(layout.landed, "view")) == (
        ["c1"],
        ["c1"],
        ["v1"],
    )
    certificate = DeletionRecord(layout).certificate(1)
    assert certificate["conditions"] == [["data.user.id", "in", ["a"]], ["topic", "in", ["t"]]]
    assert (certificate["tables"], certificate["topics"]) == ({"landed": 4, "events_click": 2}, {"t": 4})
    assert certificate["offsets"] == {"t": [[0, 1], [2, 4], [5, 6]]}
    assert len(certificate["replaced_files"]) == 2


def test_retention_by_type_applies_to_typed_table(layout: Layout) -> None:
    request_expired(layout, {"event/click": 86_400}, AT / 1_000_000 + 10 * 86_400)
    execute_deletions(layout, WINDOW)
    assert equal_uuids(layout) == []


def test_unconfigured_typed_table_loses_deleted_rows(layout: Layout) -> None:
    Life(layout, [])
    request_deletion(layout, REQUESTED, parse_conditions("uuid = 'a0'"))
    execute_deletions(layout, WINDOW)
    assert len(equal_uuids(layout)) == 5


def test_killed_deletion_is_repeated_for_later_rows(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    request_deletion(layout, REQUESTED, parse_conditions("host = 'web-1'"))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DeltaTable, "delete", killed)
    with pytest.raises(KeyboardInterrupt):
        execute_deletions(layout, WINDOW)
    monkeypatch.undo()
    Life(layout).land(3, [source([(9, event("c"))])])
    execute_deletions(layout, WINDOW)
    assert equal_uuids(layout) == []


def test_rows_of_uncommitted_batch_stay(layout: Layout) -> None:
    rows = [source([(9, event("c"))])]
    kill_before_landed(Life(layout), 3, rows)
    request_deletion(layout, REQUESTED, parse_conditions("host = 'web-1'"))
    execute_deletions(layout, WINDOW)
    assert (uuids(layout.landed), uuids(layout.typed("click"))) == ([], ["c"])
    Life(layout).land(3, rows)
    assert equal_uuids(layout) == ["c"]
