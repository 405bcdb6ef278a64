"""The columns of offsets are found by the names that connectors use, and explicit names win."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.audit.columns import NoOffsets, OffsetColumns, find_columns, stored_columns


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        (["id", "topic", "partition", "offset"], OffsetColumns("offset", "partition", "topic")),
        (
            ["kafka_topic", "kafka_partition", "kafka_offset"],
            OffsetColumns("kafka_offset", "kafka_partition", "kafka_topic"),
        ),
        (["_offset", "_partition", "_topic", "offset"], OffsetColumns("_offset", "_partition", "_topic")),
        (
            ["__kafka_metadata", "__kafka_metadata.offset", "__kafka_metadata.partition"],
            OffsetColumns("__kafka_metadata.offset", "__kafka_metadata.partition"),
        ),
        (
            ["record_metadata.offset", "record_metadata.topic"],
            OffsetColumns("record_metadata.offset", "", "record_metadata.topic"),
        ),
        (
            ["__connect_topic", "__connect_partition", "__connect_offset", "id"],
            OffsetColumns("__connect_offset", "__connect_partition", "__connect_topic"),
        ),
        (["__source_offset", "__source_partition"], OffsetColumns("__source_offset", "__source_partition")),
    ],
    ids=str,
)
def test_columns_are_found_by_their_names(available: list[str], expected: OffsetColumns) -> None:
    assert find_columns(available) == expected


def test_explicit_columns_win_and_must_exist() -> None:
    available = ["position", "part", "offset"]
    assert find_columns(available, "position", "part") == OffsetColumns("position", "part")
    with pytest.raises(NoOffsets, match="no column 'nope'; its columns are position, part, offset"):
        find_columns(available, "nope")


@pytest.mark.parametrize("name", ["meta->'$.source.offset'", "meta->>'$.source.offset'", "meta->$.source.offset"])
def test_field_of_a_json_column_is_named_as_in_sql(name: str) -> None:
    columns = find_columns(["id", "meta"], name, "meta->$.part")
    assert columns == OffsetColumns("meta->'$.source.offset'", "meta->'$.part'")
    assert stored_columns(columns.names) == ["meta"]


@pytest.mark.parametrize(
    "name",
    [
        "meta->offset",
        "meta->'$.offset",
        "meta->$",
        "meta->$.a'b",
        "nosuch->$.offset",
        "a->$.b; DROP",
        "meta->'$.b') + (c->'$.d'",
        "meta->'$.b'->'$.c'",
    ],
)
def test_other_expressions_and_columns_are_refused(name: str) -> None:
    with pytest.raises(NoOffsets):
        find_columns(["id", "meta"], name)


@given(st.text())
def test_any_text_is_a_column_or_refused(text: str) -> None:
    with contextlib.suppress(NoOffsets):
        assert find_columns(["meta", text], text).offset.startswith(text.partition("->")[0])


def test_table_without_offsets_names_its_columns_and_the_option() -> None:
    with pytest.raises(NoOffsets, match=r"among id, total; name it by --offset COLUMN"):
        find_columns(["id", "total"])
