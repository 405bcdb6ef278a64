"""Differences between the configuration, the table and the events, with their consequences in words."""

from __future__ import annotations

from pathlib import Path

from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column, Rule
from penstock.landing.typed.columns import TypedTable
from penstock.upkeep.typed.changed_rows import find_changed_rows
from penstock.upkeep.typed.differences import differences
from penstock.upkeep.typed.found_fields import find_fields, recent_data
from penstock.upkeep.typed.refill import refill
from tests.landing.typed.typed_life import CLICK, Life, event
from tests.landing.writing.messages import AT, DAY, source


def describe_differences(layout: Layout, table: TypedTable, rows: int = 100) -> dict[str, tuple[str, ...]]:
    data = recent_data(layout, "click", rows)
    nested = [column.path for column in table.columns if len(column.path) > 1]
    fields = find_fields(data, nested, [column.type for column in table.columns])
    changed = find_changed_rows(layout, table, rows)
    rows_of_fields = differences(layout, table, fields, len(data), table.violations(data), changed)
    return {row.name: tuple(row.document().values())[1:] for row in rows_of_fields}


def test_matching_fields_have_no_consequence(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    Life(layout).land(
        0, [source([(0, event("a", path="/", ms=1)), (1, event("b", "view", more=1)), (2, event("c", ms=2))])]
    )
    assert describe_differences(layout, CLICK) == {
        "path": ("string", "string", "string in 50 % of the events", ""),
        "ms": ("int", "int", "bigint in every event", ""),
    }


def test_consequence_of_each_difference_is_named(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    Life(layout).land(0, [source([(0, event("a", path="/", ms="1", more=[1])), (1, event("b", path=2, ms=2))])])
    columns = (Column("ms", "bigint", "ms"), Column("more", "json", "more"), Column("never", "date", "never"))
    differing_fields = describe_differences(layout, TypedTable("click", "click", columns))
    assert differing_fields["ms"] == (
        "bigint",
        "int",
        "json in every event",
        "the pipeline does not start until `penstock tables refill` has changed the type",
    )
    assert differing_fields["more"][3] == "is added at the next start of the pipeline"
    assert differing_fields["never"][2] == ""
    assert differing_fields["path"] == ("", "string", "json in every event", "no longer configured: null in new rows")
    assert describe_differences(layout, CLICK)["path"][3] == "1 of 2 do not fit: rest"
    assert describe_differences(layout, CLICK)["more"] == ("", "", "json in 50 % of the events", "no column: rest")
    strict = TypedTable("click", "click", (Column("path", "string", "path"), Column("ms", "int", "ms", True)), True)
    assert describe_differences(layout, strict)["path"][3] == "1 of 2 do not fit: quarantine"


def test_nested_field_is_compared_by_its_path(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    columns = (Column("id", "string", "user.id"), Column("never", "int", "user.never"))
    table = TypedTable("click", "click", columns)
    rows = [(0, event("a", user={"id": "x"})), (1, event("b", user={"id": 1})), (2, event("c", **{"user.id": 2}))]
    Life(layout, [table]).land(0, [source(rows)])
    assert describe_differences(layout, table) == {
        "id": ("string", "string", "json in 66.7 % of the events", "1 of 2 do not fit: rest"),
        "never": ("int", "int", "", ""),
        '"user.id"': ("", "", "bigint in 33.3 % of the events", "no column: rest"),
    }


def test_decimals_arrays_and_structs_are_compared(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    columns = (Column("price", "decimal(6,2)", "price"), Column("tags", "array<json>", "tags"))
    structs = Column("user", "struct<id:string,seen:array<struct<n:bigint>>>", "user")
    table = TypedTable("click", "click", (*columns, Column("sizes", "array<int>", "sizes"), structs))
    user = {"id": "u", "seen": [{"n": 1}, {}]}
    rows = [
        event("a", price=1.25, tags=[1], sizes=[1, None], user=user),
        event("b", price="2.50", tags=[{}], sizes=["1"]),
    ]
    Life(layout, [table]).land(0, [source(list(enumerate([*rows, event("c", price=1.255)])))])
    assert describe_differences(layout, table) == {
        "price": ("decimal(6,2)", "decimal(6,2)", "json in every event", "1 of 3 do not fit: rest"),
        "tags": ("array<json>", "array<string>", "json in 66.7 % of the events", ""),
        "sizes": ("array<int>", "array<int>", "json in 66.7 % of the events", "1 of 2 do not fit: rest"),
        "user": (structs.type, structs.type, "json in 33.3 % of the events", ""),
    }


def test_differences_cover_only_recent_events(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    life = Life(layout)
    life.land(0, [source([(n, event(f"a{n}", old=1)) for n in range(5)])])
    life.land(1, [source([(n + 5, event(f"b{n}", new=1)) for n in range(5)], at=AT + DAY)])
    assert "old" not in describe_differences(layout, CLICK, 5)
    assert describe_differences(layout, CLICK, 6)["old"][2] == "bigint in 16.7 % of the events"


def test_changed_contract_is_a_difference_until_a_refill(tmp_path: Path) -> None:
    def with_rules(*rules: Rule, strict: bool = False) -> TypedTable:
        return TypedTable("click", "click", (Column("ms", "int", "ms", rules=rules),), strict_contracts=strict)

    layout, loose, tight = Layout.for_tables(tmp_path), Rule("max", ("9",)), Rule("max", ("3",))
    Life(layout, [with_rules(loose)]).land(0, [source([(n, event(f"u{n}", ms=n)) for n in range(12)])])
    assert describe_differences(layout, with_rules(loose))["ms"][3] == "2 violate max: rest"
    changes = "stored rows differ: `penstock tables refill click` changes them"
    for table, expected in [
        (with_rules(tight), f"8 violate max: rest; 6 {changes}"),
        (with_rules(tight, strict=True), f"8 violate max: quarantine; 6 {changes}"),
        (with_rules(), f"2 {changes}"),
    ]:
        assert describe_differences(layout, table)["ms"][3] == expected
    refill(layout, with_rules(tight))
    assert describe_differences(layout, with_rules(tight))["ms"][3] == "8 violate max: rest"
    assert describe_differences(layout, with_rules(loose))["ms"][3] == f"2 violate max: rest; 6 {changes}"
