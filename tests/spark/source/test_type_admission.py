"""Finding the types of events in whole columns, and letting them in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType

from penstock.landing.admitted_types import TypeRegistry
from penstock.spark.source import type_admission
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.type_admission import AdmittingReader, admitted, top_types
from tests.spark.spark_helpers import append

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just("type"), inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECTS = st.lists(st.tuples(st.text(max_size=5) | st.just("type"), VALUES), max_size=5).map(dict)


def types_of(*payloads: bytes | None) -> list[bytes | None]:
    return top_types(pa.array(payloads, pa.binary())).to_pylist()


@given(OBJECTS, st.sampled_from([None, 1]), st.booleans())
def test_the_type_found_is_the_one_a_json_parser_finds(fields: dict[str, Any], indent: int | None, ascii: bool) -> None:
    payload = json.dumps(fields, indent=indent, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    expected = fields.get("type")
    try:
        wanted = expected.encode() if isinstance(expected, str) else None
        payload.decode()
    except UnicodeError:
        return
    assert types_of(payload) == [wanted]


@given(st.lists(st.none() | st.binary(max_size=40) | st.binary(max_size=40).map(lambda tail: b"{" + tail), max_size=5))
def test_no_bytes_raise_anything(payloads: list[bytes | None]) -> None:
    assert len(types_of(*payloads)) == len(payloads)


def test_a_type_inside_another_field_is_not_the_events() -> None:
    assert types_of(b'{"data":{"type":"x"},"type":"y"}', b'{"data":"\\"type\\":\\"x\\"","type":"y"}') == [b"y", b"y"]


def test_every_layout_is_found_in_one_column() -> None:
    found = types_of(
        b'{"type":"a"}',
        b'{ "type" : "b", "x":1}',
        b'{"x":[1],"type":"c"}',
        b'{"x":1,"type":"d"}',
        b'{"type":5}',
        b"e",
        None,
    )
    assert found == [b"a", b"b", b"c", b"d", None, None, None]


def test_types_beyond_the_limit_and_types_that_cannot_name_a_folder_are_not_let_in(tmp_path: Path) -> None:
    payloads = pa.array(
        [b'{"type":"a"}', b'{"type":"a\\n"}', b'{"type":"a\xff"}', b'{"type":"b"}', b'{"type":"a"}', b"x"]
    )
    answer = admitted(payloads, TypeRegistry(tmp_path, 1))
    assert answer.to_pylist() == ["a", None, None, None, "a", None]


@pytest.fixture
def reader(topics: Path, tmp_path: Path) -> AdmittingReader:
    append(topics, "t", [b"x"] * 5)
    schema = StructType([StructField(name, StringType()) for name in ("topic", "refill", "admitted")])
    options = SourceOptions.of({"path": str(topics)})
    return AdmittingReader(
        options, schema, (tmp_path / "types", 5), 1000.0, tmp_path / "hold", (tmp_path / "refills", False)
    )


def test_while_the_clock_is_behind_what_landed_nothing_is_taken(
    reader: AdmittingReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type_admission.time, "time", lambda: 900.0)
    assert reader.latestOffset({"t": 1}, ReadAllAvailable()) == {"t": 1}
    monkeypatch.setattr(type_admission.time, "time", lambda: 1000.0 - type_admission.CLOCK_TOLERANCE)
    assert reader.latestOffset({"t": 1}, ReadAllAvailable()) == {"t": 5}


def test_a_clock_that_goes_back_later_is_noticed_too(reader: AdmittingReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type_admission.time, "time", lambda: 5000.0)
    assert reader.latestOffset({}, ReadAllAvailable()) == {"t": 5}
    monkeypatch.setattr(type_admission.time, "time", lambda: 4000.0)
    assert reader.latestOffset({"t": 2}, ReadAllAvailable()) == {"t": 2}


def test_nothing_is_taken_while_the_reader_is_held(reader: AdmittingReader, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    assert reader.latestOffset({"t": 1}, ReadAllAvailable()) == {"t": 1}
    (tmp_path / "hold").unlink()
    assert reader.latestOffset({"t": 1}, ReadAllAvailable()) == {"t": 5}
