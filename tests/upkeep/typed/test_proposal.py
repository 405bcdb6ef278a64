"""Proposed columns for landed events can be configured, and all of these events fit."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import PipelineConfig
from penstock.landing.rows.type_schemas import meets_schema
from penstock.landing.typed.columns import configured_tables
from penstock.upkeep.typed.found_fields import find_fields
from penstock.upkeep.typed.proposal import column_names, propose, table_name
from tests.landing.typed.test_columns import JSON, TEXT


def propose_table(objects: list[Any], of_type: str = "click") -> str:
    texts = pa.array([json.dumps(fields, separators=(",", ":")) for fields in objects])
    return propose(of_type, find_fields(texts), len(texts))


def test_proposed_types_are_narrowest_for_all_values() -> None:
    first = {
        "path": "/",
        "ms": 1,
        "share": 1,
        "ok": True,
        "at": "2026-01-01T00:00:00Z",
        "day": "2026-01-01",
        "user": {},
    }
    second = {"path": "2026-01-01", "ms": 1 << 40, "share": 0.5, "mixed": 1, "nothing": None}
    assert propose_table([first, second, {"mixed": "a", "path": None}, [1]]).splitlines() == [
        "# proposed from 4 events that landed",
        "[pipeline.typed.click]",
        "",
        "[pipeline.typed.click.columns]",
        'mixed = "json"  # in 50 % of the events',
        'ms = "bigint"  # in 50 % of the events',
        'path = "string"  # in 50 % of the events',
        'share = "double"  # in 50 % of the events',
        'at = "timestamp"  # in 25 % of the events',
        'day = "date"  # in 25 % of the events',
        'ok = "boolean"  # in 25 % of the events',
        'user = "json"  # in 25 % of the events',
        "# 1 more fields have only null, or are in fewer events: they are in rest",
    ]


def test_invalid_column_names_are_replaced() -> None:
    assert list(column_names(["host", "Host", "a b", "a.b", "", "1", "é", "Path", "path"])) == [
        "data_host",
        "data_Host_2",
        "a_b",
        "a_b_2",
        "data_",
        "data_1",
        "data__",
        "Path",
        "path_2",
    ]
    assert [table_name(event_type) for event_type in ("click", "Page.View", "1", "é")] == [
        "click",
        "page_view",
        "t_1",
        "t__",
    ]
    text = propose_table([{"host": 1}], "Page.View")
    assert 'type = "Page.View"\n' in text
    assert 'data_host = { type = "bigint", field = "host" }  # in every event\n' in text


@given(
    st.lists(st.dictionaries(TEXT, JSON, max_size=4), min_size=1, max_size=4),
    st.text(st.characters(codec="utf-8"), min_size=1),
)
def test_all_events_fit_proposed_columns(objects: list[dict[str, Any]], of_type: str) -> None:
    pipeline_keys = tomllib.loads(propose_table(objects, of_type))["pipeline"]
    (table,) = configured_tables(PipelineConfig.model_validate(pipeline_keys))
    assert table.type == of_type
    texts = pa.array([json.dumps(fields, separators=(",", ":")) for fields in objects])
    assert meets_schema(texts, table).tolist() == [True] * len(objects)
