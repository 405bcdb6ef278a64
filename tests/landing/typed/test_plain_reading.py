"""Events land in typed tables as an independent plain reading says, also after changes of columns and a refill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.syntax.json_path import format_path
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.rows.json_events import EventRules, event_columns
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.upkeep.compaction.typed_compaction import compact_all
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.typed.refill import refill
from tests.landing.typed.plain_reading import (
    ABSENT,
    Plain,
    documents,
    is_same,
    normalize,
    parse,
    read_columns,
    read_rest,
    without_blanks,
)
from tests.landing.typed.typed_life import WINDOW, Life, read
from tests.landing.writing.messages import source

NAMES = ("a", "b", "c", "d", "0", "é", "x.y", "id", "age", "~", "/", "", "\n")
KINDS = (
    *("string", "boolean", "int", "bigint", "double", "date", "timestamp", "json"),
    *("decimal(10,2)", "decimal(38,20)", "decimal(18,0)", "decimal(2,2)"),
    *("array<string>", "array<int>", "array<double>", "array<json>", "array<timestamp>", "array<decimal(20,5)>"),
    *("struct<id:string,age:int>", "struct<a:decimal(20,4),b:double,c:json>", "array<struct<id:string,age:int>>"),
)
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple)
ADDED = (Plain("price", "decimal(20,4)", ("age",)), Plain("tags", "array<string>", ("0",)))
FIRST = (Plain("place", "string", ("a",)), Plain("ms", "int", ("b",)), Plain("user_id", "string", ("c", "id")))
WITH_OLD = (*FIRST, Plain("old", "json", ("d",)))
WITHOUT_OLD = (*FIRST, *ADDED, Plain("country", "string", ("é",), "unknown"))
"""A column was dropped, and three were added."""
REFILLED = (
    Plain("spot", "string", ("a",), "nowhere"),
    Plain("ms", "bigint", ("b",)),
    Plain("user", "struct<id:string,age:int>", ("c",)),
    Plain("price", "decimal(38,10)", ("age",)),
    Plain("tags", "array<json>", ("0",)),
    Plain("day", "timestamp", ("x.y",)),
)
"""A column has another name, others are wider, of another type, or gone."""


def typed_table(columns: Sequence[Plain]) -> TypedTable:
    texts = {column: '"' + column.default + '"' if column.default else "" for column in columns}
    parts = (Column(c.name, c.kind, format_path(c.path), default=texts[c]) for c in columns)
    return TypedTable("t", "t", tuple(parts))


def payload(uuid: str, data: str) -> bytes:
    return f'{{"type":"t","uuid":"{uuid}","timestamp":1,"data":{data}}}'.encode()


def check_row(columns: Sequence[Plain], text: str, row: Mapping[str, Any]) -> None:
    document = parse(text)
    expected = read_columns(columns, document)
    for column in columns:
        assert is_same(column.kind, expected[column.name], row[column.name]), (column, text, row[column.name])
    rest = ABSENT if row["rest"] is None else parse(row["rest"])
    expected_rest = read_rest(columns, document)
    if rest is ABSENT or expected_rest is ABSENT:
        assert rest is expected_rest, (columns, text, row["rest"])
    else:
        assert normalize(rest) == normalize(expected_rest), (columns, text, row["rest"])


def check_data(text: str, data: str) -> None:
    """Check that ``landed`` has the text that was sent, without blanks; a whole -0 may be 0."""
    sent = without_blanks(text)
    assert data == sent or data == sent.replace("-0", "0") or data.replace("-0", "0") == sent.replace("-0", "0")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(documents(NAMES), min_size=1, max_size=6),
    st.lists(st.tuples(PATHS, st.sampled_from(KINDS)), max_size=5),
    st.sampled_from([1, 20]),
)
def test_any_columns_and_rest_are_as_a_plain_reading_says(
    texts: list[str], chosen: list[tuple[tuple[str, ...], str]], times: int
) -> None:
    texts = texts * times
    columns = [Plain(f"c{n}", kind, path) for n, (path, kind) in enumerate(chosen)]
    events = event_columns(pa.array([payload("u", text) for text in texts], pa.binary()), EventRules())
    computed = typed_table(columns).compute(events["data"])
    for row, text in enumerate(texts):
        check_data(text, events["data"][row].as_py())
        check_row(columns, text, {name: cells[row].as_py() for name, cells in computed.items()})


@settings(max_examples=3, deadline=None)
@given(st.lists(st.lists(documents(NAMES), min_size=3, max_size=6), min_size=3, max_size=3))
def test_tables_are_as_a_plain_reading_says_after_changes_of_columns(batches: list[list[str]]) -> None:
    with TemporaryDirectory() as folder:
        check_changes(Layout.for_tables(Path(folder) / "tables"), [texts * 6 for texts in batches])


def check_changes(layout: Layout, batches: Sequence[Sequence[str]]) -> None:
    texts = {f"u{number}-{n}": text for number, batch in enumerate(batches) for n, text in enumerate(batch)}
    sent = [[(uuid, text) for uuid, text in texts.items() if uuid.startswith(f"u{n}-")] for n in range(len(batches))]

    def land(number: int, columns: Sequence[Plain]) -> None:
        rows = [(100 * number + n, payload(uuid, text)) for n, (uuid, text) in enumerate(sent[number])]
        Life(layout, [typed_table(columns)]).land(number, [source(rows)])

    land(0, WITH_OLD)
    land(1, WITHOUT_OLD)
    compact_all(layout)
    rows = {row["uuid"]: row for row in read(layout.typed("t"))}
    assert rows.keys() == {uuid for batch in sent[:2] for uuid, _ in batch}
    for (batch, columns), absent in zip(
        zip(sent, (WITH_OLD, WITHOUT_OLD), strict=False), (ADDED, ("old",)), strict=True
    ):
        for uuid, text in batch:
            check_row(columns, text, rows[uuid])
            assert all(rows[uuid][getattr(name, "name", name)] is None for name in absent)
    assert refill(layout, typed_table(REFILLED), drop=True) == len(rows)
    land(2, REFILLED)
    request_deletion(layout, REQUESTED, parse_conditions("uuid in ('u0-0', 'u2-1')"))
    assert execute_deletions(layout, WINDOW) == 1
    compact_all(layout)
    rows = {row["uuid"]: row for row in read(layout.typed("t"))}
    assert rows.keys() == texts.keys() - {"u0-0", "u2-1"}
    for uuid, row in rows.items():
        check_row(REFILLED, texts[uuid], row)
    for row in read(layout.landed):
        check_data(texts[row["uuid"]], row["data"])
