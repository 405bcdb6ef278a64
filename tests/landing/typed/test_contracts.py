"""Contracts of columns: rules on whole columns, and what violates them."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import load
from penstock.config.keys.typed import ColumnConfig
from penstock.landing.rows.payload_fault import find_fault
from penstock.landing.rows.type_schemas import first_misfit, meets_schema
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column, Rule
from penstock.landing.typed.columns import TypedTable, configured_tables
from penstock.landing.typed.contracts import meets, rules_of
from penstock.upkeep.typed.differences import find_misfits
from tests.landing.typed.typed_life import Life, event, kill_before_landed
from tests.landing.writing.messages import source

COLUMNS = """columns={
    ms={type="int", min=0, max=100, enum=[0, 1, 5, 100, 200]},
    code={type="string", pattern="^[A-Z]{2}$", default="XX"},
    price={type="decimal(10,2)", min="0.50", max=9},
    part={type="double", max=1.5},
    day={type="date", min="2026-01-01"},
    at={type="timestamp", max="2026-01-01T01:00:00+01:00"}
}"""


def configured(**keys: str) -> TypedTable:
    """Return the table of ``COLUMNS``."""
    options = [f"pipeline.typed.t.{key}={text}" for key, text in keys.items()]
    columns = " ".join(COLUMNS.split())
    (table,) = configured_tables(load(None, [f"pipeline.typed.t.{columns}", *options], environment={}).pipeline)
    return table


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "ms": st.one_of(st.sampled_from([0, 1, 2, 5, 99, 100, 101, 200, -1]), st.just("1")),
    "code": st.sampled_from(["DE", "D", "de", "DEU", "ÄÖ", "DE\n", "", 7]),
    "price": st.sampled_from(["0.49", "0.50", 0.5, 9, "9.01", "-1", "x"]),
    "part": st.sampled_from([1, 1.5, 1.51, -7.0, "1"]),
    "day": st.sampled_from(["2025-12-31", "2026-01-01", "2026-02-30"]),
    "at": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000001Z", "2025-01-01T00:00:00+05:00"]),
}
EVENTS = st.lists(st.fixed_dictionaries({}, optional=FIELDS), min_size=1, max_size=8)


def violated(event: dict[str, Any]) -> set[str]:
    """Return the fields of the right type that violate their rules, read row by row."""
    bad = set()
    if type(ms := event.get("ms")) is int and not (0 <= ms <= 100 and ms in (0, 1, 5, 100, 200)):
        bad.add("ms")
    if isinstance(code := event.get("code"), str) and not re.fullmatch("[A-Z]{2}", code):
        bad.add("code")
    if event.get("price") in ("0.49", "9.01", "-1"):
        bad.add("price")
    if event.get("part") == 1.51:
        bad.add("part")
    if event.get("day") == "2025-12-31":
        bad.add("day")
    if event.get("at") == "2026-01-01T00:00:00.000001Z":
        bad.add("at")
    return bad


MISFITS = {"ms": "1", "code": 7, "price": "x", "part": "1", "day": "2026-02-30"}


def test_default_of_a_decimal_has_all_of_its_digits() -> None:
    key = 'pipeline.typed.t.columns={n={type="decimal(38,0)", default="123456789012345678901234567890"}}'
    small = 'pipeline.typed.u.columns={n={type="decimal(38,0)", default=18446744073709551616}}'
    tables = configured_tables(load(None, [key, small], environment={}).pipeline)
    defaults = [table.compute(pa.array(["{}"]))["n"].to_pylist() for table in tables]
    assert defaults == [[Decimal(123456789012345678901234567890)], [Decimal(18446744073709551616)]]


@given(EVENTS)
def test_violations_go_to_the_rest_like_a_plain_reading(events: list[dict[str, Any]]) -> None:
    columns = configured().compute(pa.array([json.dumps(event) for event in events]))
    for n, fields in enumerate(events):
        bad = violated(fields) | {name for name, misfit in MISFITS.items() if fields.get(name) == misfit}
        rest = json.loads(columns["rest"][n].as_py() or "{}")
        assert rest == {name: fields[name] for name in bad}
        for name in FIELDS:
            expected_null = name in bad or (name not in fields and name != "code")
            assert (columns[name][n].as_py() is None) == expected_null, name


@given(EVENTS)
def test_violations_are_quarantined_apart_from_misfits(events: list[dict[str, Any]]) -> None:
    texts = pa.array([json.dumps(event) for event in events])
    contracts = configured(on_violation="quarantine")
    assert meets_schema(texts, contracts).tolist() == [not violated(event) for event in events]
    types = configured(on_misfit="quarantine")
    fits = [not any(event.get(name) == misfit for name, misfit in MISFITS.items()) for event in events]
    assert meets_schema(texts, types).tolist() == fits


def test_fault_names_the_rule() -> None:
    table = configured(on_violation="quarantine")
    needs = {}
    for data in ('{"ms":-1}', '{"ms":101}', '{"ms":2}', '{"code":"x"}', '{"price":"0.49"}'):
        rule = first_misfit("t", data, [table])
        assert rule is not None
        needs[data] = rule.needs
    assert list(needs.values()) == [
        "at least 0",
        "at most 100",
        "one of 0, 1, 5, 100, 200",
        'a match of "^[A-Z]{2}$"',
        'at least "0.50"',
    ]


def test_quarantined_event_shows_value_and_rule() -> None:
    payload = b'{"type":"t","uuid":"a","data":{"ms":-1}}'
    fault = find_fault("contract.t.ms.min", payload, [configured(on_violation="quarantine")])
    assert fault.text == "data.ms is number -1, it must be at least 0, at character 37"


def test_fault_is_of_the_table_in_the_reason() -> None:
    tables = configured_tables(
        load(
            None,
            [
                'pipeline.typed.first={type="t", on_violation="quarantine", columns={ms={type="int", min=5}}}',
                'pipeline.typed.second={type="t", on_violation="quarantine", columns={ms={type="int", min=0, max=3}}}',
            ],
            environment={},
        ).pipeline
    )
    payload = b'{"type":"t","uuid":"a","data":{"ms":4}}'
    assert "at least 5" in find_fault("contract.first.ms.min", payload, tables).text
    assert "at most 3" in find_fault("contract.second.ms.max", payload, tables).text


def test_landed_violations_are_in_the_rest_or_in_quarantine(tmp_path: Path) -> None:
    rows = [(0, event("a", "t", ms=1)), (1, event("b", "t", ms=2, code="de")), (2, event("c", "t", ms="1"))]
    expected = {
        "rest": ([("a", 1, None), ("b", None, '{"ms":2,"code":"de"}'), ("c", None, '{"ms":"1"}')], []),
        "quarantine": ([("a", 1, None), ("c", None, '{"ms":"1"}')], [(1, "contract.t.ms.enum")]),
    }
    for place, (typed, quarantined) in expected.items():
        layout = Layout.for_tables(tmp_path / place)
        layout.tables.mkdir()
        table = configured(on_violation=f'"{place}"')
        Life(layout, [table]).land(0, [source(rows)])
        # A pipeline that was killed does the batch again.
        Life(layout, [table]).land(0, [source(rows)])
        files = f"read_parquet('{layout.typed('t')}/**/*.parquet', union_by_name=true)"
        assert duckdb.sql(f"SELECT uuid, ms, rest FROM {files} ORDER BY uuid").fetchall() == typed
        landed = f"read_parquet('{layout.landed}/**/*.parquet', union_by_name=true, hive_partitioning=true)"
        query = f"SELECT \"offset\", reason FROM {landed} WHERE kind = 'quarantine'"
        assert duckdb.sql(query).fetchall() == quarantined


def counted_violations(layout: Layout) -> dict[int, Any]:
    """Return the violations that the commit of each batch states, as another program reads them."""
    history = deltalake.DeltaTable(str(layout.landed)).history()
    described = [json.loads(commit["penstock"]) for commit in history if "penstock" in commit]
    return {commit["batch"]: commit.get("violations") for commit in described}


def test_commit_counts_values_in_the_rest_by_rule(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    bad = [event("a", "t", ms=-1), event("b", "t", ms=300, code="de"), event("c", "t", ms=2), event("d", "t", ms="1")]
    first, second = source(list(enumerate(bad))), source(list(enumerate([bad[0], *bad], 10)))
    other = TypedTable("u", "t", (Column("code", "string", "code", rules=(Rule("enum", ('"DE"',)),)),))
    life = Life(layout, [configured(), other])
    # Duplicates, of the batch, another task and another batch, are in no table and are not counted.
    kill_before_landed(life, 0, [first])
    life = Life(layout, [configured(), other])
    life.land(0, [first], [second])
    life.land(1, [source(list(enumerate([*bad, event("e", "t", ms=100, code="DE")], 20)))])
    life.land(2, [source([(30, event("f", "t", ms=-2))])])
    of_ms = {"contract.t.ms.min": 1, "contract.t.ms.max": 1, "contract.t.ms.enum": 3}
    assert counted_violations(layout) == {
        0: {**of_ms, "contract.t.code.pattern": 1, "contract.u.code.enum": 1},
        1: None,
        2: {"contract.t.ms.min": 1, "contract.t.ms.enum": 1},
    }


def test_commit_counts_no_event_that_goes_to_quarantine(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    life = Life(layout, [configured(on_violation='"quarantine"')])
    life.land(0, [source([(0, event("a", "t", ms=-1)), (1, event("b", "t", ms=1))])])
    assert counted_violations(layout) == {0: None}


def test_sample_reports_violations_by_rule(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    life = Life(layout, [TypedTable("t", "t", (Column("ms", "int", "ms"),))])
    life.land(0, [source([(n, event(f"u{n}", "t", ms=ms)) for n, ms in enumerate([-1, 1, 101, "1"])])])
    misfits = {misfit.needs: misfit.events for misfit in find_misfits(layout, configured(), 100, 1)}
    assert misfits == {"int": 1, "at least 0": 1, "at most 100": 1, "one of 0, 1, 5, 100, 200": 2}


def test_column_without_contract_has_no_rules() -> None:
    (table,) = configured_tables(load(None, ['pipeline.typed.t.columns={a="int"}'], environment={}).pipeline)
    assert table.columns == (Column("a", "int", "a"),)
    assert table.strict_contracts is False
    assert configured().columns[0].rules[:2] == (Rule("min", ("0",)), Rule("max", ("100",)))


@pytest.mark.parametrize("bound", [2**63, 2**64, 10**37])
def test_bounds_of_decimals_have_all_their_digits(bound: int) -> None:
    (rule,) = rules_of(ColumnConfig(type="decimal(38,0)", max=bound))
    values = pa.array([Decimal(1), Decimal(bound), Decimal(bound + 1), None], pa.decimal128(38, 0))
    assert meets(rule, "decimal(38,0)", values).tolist() == [True, True, False, True]
