"""Cells, full values and columns of the grid of rows."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.components.message_view import MAX_CHARS
from penstock.console.components.result_grid import (
    MAX_CELL_CHARS,
    MAX_COLUMN_PX,
    MIN_COLUMN_PX,
    cell_text,
    column_definitions,
    full_text,
    row_json,
)
from tests.fuzzed import JSON, RAW

MOMENT = dt.datetime(2026, 11, 22, 10, 11, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b'{"a": 1}', '{"a": 1}'),
        (b"\xff\n", "\\xff\\x0a"),
        (None, ""),
        (MOMENT, "2026-11-22 10:11:12"),
        ({"k": [1]}, '{"k": [1]}'),
        ("y" * 5000, "y" * (MAX_CELL_CHARS - 1) + "…"),
    ],
)
def test_cell_is_one_short_readable_line(value: object, text: str) -> None:
    assert cell_text(value) == text


@given(RAW | JSON | st.text())
def test_any_value_is_shown(value: Any) -> None:
    assert len(cell_text(value).encode().splitlines()) <= 1
    assert isinstance(full_text(value), str)


def test_full_value_is_complete_and_json_is_indented() -> None:
    assert full_text("z" * 5000) == "z" * 5000
    assert full_text(b'{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert full_text("[" * 100_000) == "[" * 100_000
    assert full_text("z" * (MAX_CHARS + 1)).endswith("... and 1 more")


def test_row_is_a_json_object() -> None:
    row = pa.table({"a.b": [1], "payload": pa.array([b"text"]), "annotations": pa.array([{"k": "v"}])})
    assert json.loads(row_json(row)) == {"a.b": 1, "payload": "text", "annotations": {"k": "v"}}


def test_columns_are_as_wide_as_their_cells_within_limits() -> None:
    schema = pa.schema({"n": pa.int64(), "long": pa.string()})
    number, long = column_definitions(schema, [{"c0": "1", "c1": "y" * 200}])
    assert (number["width"], number["cellClass"]) == (MIN_COLUMN_PX, "n")
    assert long["width"] == MAX_COLUMN_PX
    assert "cellClass" not in long
