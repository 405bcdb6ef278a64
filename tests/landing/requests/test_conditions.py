"""Tests of the conditions that select rows."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.event_rules import MessageKind
from penstock.landing.requests.conditions import (
    BEFORE,
    IN,
    NOT_IN,
    BadCondition,
    Condition,
    matching_rows,
    parse_conditions,
)
from penstock.landing.table.table_file import RowReader, TableFile
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.landing.writing.written_file import FileWriter
from tests.landing.table.table_rows import AT
from tests.spark.spark_helpers import HandWritten, landed_event, landed_message


def test_sql_conditions_are_parsed() -> None:
    assert parse_conditions("host = 'web-1'") == [Condition("host", IN, ("web-1",))]
    assert parse_conditions(" TYPE in ('a', 'it''s', '')  AND date < '2026-01-31' ") == [
        Condition("type", IN, ("a", "it's", "")),
        Condition("date", BEFORE, ("2026-01-31",)),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no condition at"),
        ("host = web", "no condition at"),
        ("payload = 'x'", "no condition on 'payload'"),
        ("host < 'a'", "applies to date only"),
        ("data = 'a'", "no condition on 'data'"),
        ("payload.id = 'a'", "no condition on 'payload.id'"),
        ("data.id < 'a'", "applies to date only"),
        ("date = 'today'", "is not a date"),
        ("host = 'a' or type = 'b'", "only `and` joins"),
        ("host = 'a' and", "no condition at"),
        ("host in ()", "no condition at"),
        ("data.admin('x')", "no condition at"),
        ("data.login ('x')", "no condition at"),
        ("data.a.in('x')", "no condition at"),
        ("data.user.\"id\".admin ('x')", "no condition at"),
        ("data.ain in ('x') and data.bin('x')", "no condition at"),
        ("hostin ('x')", "no condition at"),
    ],
)
def test_invalid_condition_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadCondition, match=reason):
        parse_conditions(text)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("data.admin in('x')", "data.admin"),
        ("data.in IN ('x')", "data.in"),
        ("data.\"a\"in('x')", 'data."a"'),
        ("type\tin('x')", "type"),
        ("data.login= 'x'", "data.login"),
    ],
)
def test_key_may_end_with_in(text: str, column: str) -> None:
    assert parse_conditions(text) == [Condition(column, IN, ("x",))]


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(BadCondition):
        parse_conditions(text)


@given(st.text())
def test_any_quoted_value_is_parsed(value: str) -> None:
    quoted = value.replace("'", "''")
    assert parse_conditions(f"uuid = '{quoted}'") == [Condition("uuid", IN, (value,))]


def test_rows_match_if_all_conditions_hold(tmp_path: Path) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    rows = [landed_event(0, "a", host="x"), landed_event(1, "b", host="y"), landed_event(2, "c", host=None)]
    table.commit({"t": 4}, [*rows, landed_message(3)])
    event, message = table.files
    landed = table.layout.landed

    def matches(name: str, *conditions: Condition) -> list[int]:
        return matching_rows(landed, TableFile(name), conditions).nonzero()[0].tolist()

    assert matches(event, Condition("host", IN, ("x", "y")), Condition("uuid", IN, ("b", "c"))) == [1]
    assert matches(event, Condition("host", NOT_IN, ("x",))) == [1, 2]
    assert matches(event, Condition("kind", IN, ("message",))) == []
    assert matches(message, Condition("kind", IN, ("message",)), Condition("date", BEFORE, ("9999-01-01",))) == [0]
    assert matches(message, Condition("date", BEFORE, ("2020-01-01",))) == []


@pytest.mark.parametrize("day", ["20260131", "2026-W05-6", "2026-01-31"])
def test_dates_are_compared_in_iso_format(day: str) -> None:
    (condition,) = parse_conditions(f"date < '{day}'")
    assert condition.holds_for_folder("2026-01-30")
    assert not condition.holds_for_folder("2026-01-31")
    assert not condition.holds_for_folder("2026-11-22")


@pytest.mark.parametrize("live", [None, [number % 3 != 1 for number in range(40)]])
def test_only_row_groups_that_may_match_are_read(
    live: list[bool] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = FileWriter(tmp_path, MessageKind.EVENT, AT.date())
    for group in range(4):
        base = {"topic": "t", "type": "x", "timestamp": AT, "landed_at": AT, "bucket": AT}
        rows = [{**base, "offset": n, "uuid": f"{n * 7919 % 40:02}"} for n in range(10 * group, 10 * group + 10)]
        writer.write(pa.RecordBatch.from_pylist(rows, schema=FILE_SCHEMA))
    name = writer.close().name
    mask = None if live is None else np.array(live)
    file = TableFile.listed(name, 0, mask)
    groups_read: list[int] = []
    read_group = RowReader.read_group

    def count(reader: RowReader, number: int, columns: Sequence[str]) -> pa.Table:
        groups_read.append(number)
        return read_group(reader, number, columns)

    monkeypatch.setattr(RowReader, "read_group", count)
    remaining = [n for n in range(40) if live is None or live[n]]
    for wanted in range(40):
        groups_read.clear()
        matches = matching_rows(tmp_path, file, parse_conditions(f"uuid = '{wanted:02}'"))
        expected = [index for index, n in enumerate(remaining) if n * 7919 % 40 == wanted]
        assert (len(matches), matches.nonzero()[0].tolist()) == (len(remaining), expected)
        assert len(groups_read) <= 2
    groups_read.clear()
    assert not matching_rows(tmp_path, file, parse_conditions("uuid = '25-absent'")).any()
    assert groups_read == []


DATA = [
    '{"user":{"id":"42"},"ok":true}',
    '{"user":{"id":42}}',
    '{"user":{"id":"\\u00342"}}',
    '{"user":{"id":"421"}}',
    '{"user":"42"}',
    '{"other":{"user":{"id":"42"}}}',
    "no json 42",
    None,
]


def matches(text: str, *data: str | None) -> list[int]:
    """Return the indices of the JSON texts for which a condition holds."""
    (condition,) = parse_conditions(text)
    half = len(data) // 2
    rows = pa.table({"data": pa.chunked_array([data[:half], data[half:]], pa.string())})
    return condition.holds_for_field(rows).nonzero()[0].tolist()


def test_field_of_data_is_compared_as_text() -> None:
    text = "data.user.id in ('42', 'it''s')"
    assert parse_conditions(text) == [Condition("data.user.id", IN, ("42", "it's"))]
    assert matches(text, *DATA) == [0, 1, 2]
    assert not matches("data.user.Id = '42'", *DATA)


def test_keys_of_a_field_are_quoted_as_in_the_configuration() -> None:
    data = ['{"http.method":"PUT"}', '{"http":{"method":"PUT"}}', '{"a \\" b":{"c":"PUT"}}', '{"c":"PUT"}']
    for text, rows in [('data."http.method"', [0]), ("data.http.method", [1]), (r'data."a \" b".c', [2])]:
        assert matches(f"{text} = 'PUT'", *data) == rows
    with pytest.raises(BadCondition, match="a quoted key is a string of JSON"):
        parse_conditions(r"""data."\x" = 'PUT' """)


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("1.10", ['{"f":1.10}', '{"f":"1.10"}', '{"f":1.1}', '{"f":1.100}']),
        ("1E2", ['{"f":1E2}', '{"f":"1E2"}', '{"f":100}', '{"f":100.0}']),
        ("1e400", ['{"f":1e400}', '{"f":"1e400"}', '{"f":1e401}']),
        ("0.1234567890123456789", ['{"f":0.1234567890123456789}', '{"f":"0.1234567890123456789"}', '{"f":0.1}']),
        (
            "123456789012345678901234567890",
            [
                '{"f":123456789012345678901234567890}',
                '{"f":"123456789012345678901234567890"}',
                '{"f":123456789012345678901234567891}',
            ],
        ),
        ("0", ['{"f":0}', '{"f":"0"}', '{"f":-0}', '{"f":0.0}', '{"f":0e0}']),
        ("-0", ['{"f":-0}', '{"f":"-0"}', '{"f":0}', '{"f":-0.0}']),
        ("-17", ['{"f":-17}', '{"f":"-17"}', '{"f":17}']),
        ("true", ['{"f":true}', '{"f":"true"}', '{"f":false,"g":true}']),
        ("null", ['{"f":"null","g":null}', '{"f":"nul\\u006c"}', '{"f":null}', '{"g":"null"}']),
        ("", ['{"f":""}', '{"\\u0066":""}', '{"f":null}', "{}", '{"f":" "}']),
        ("a/b", ['{"f":"a\\/b"}', '{"f":"a/b","f":"x"}', '{"f":"x","f":"a/b"}']),
        ('a"\\', ['{"f":"a\\"\\\\"}', '{"f":"a\\u0022\\u005c","g":1.5}', '{"f":"a"}']),
        ("é\U0001f600", ['{"f":"é\U0001f600"}', '{"f":"\\u00E9\\ud83d\\ude00"}', '{"f":"e"}']),
        ("a\0b", ['{"f":"a\\u0000b"}', '{"\\u0066":"a\\u0000b"}', '{"f":"a"}', '{"f":"ab"}']),
    ],
)
def test_value_of_any_json_type_is_compared_as_it_is_written(value: str, texts: list[str]) -> None:
    assert matches(f"data.f = '{value}'", *texts, None, "no json", value) == [0, 1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('{"b":1}', '{"a":{"b":1}}'),
        ('{"b": 1}', '{"a":{"b": 1}}'),
        ("{}", '{"a":{}}'),
        ("[]", '{"a":[]}'),
        ('["x"]', '{"a":["x"]}'),
        ('["1.5"]', '{"a":[1.5]}'),
        ("null", '{"a":null,"b":1.5}'),
    ],
)
def test_object_list_and_null_match_no_value(value: str, text: str) -> None:
    assert matches(f"data.a = '{value}'", text, json.dumps({"a": value})) == [1]


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("us\u00e9r.@id", ['{"us\u00e9r":{"@id":"x"}}', '{"us\\u00e9r":{"\\u0040id":"x"}}', '{"@id":"x"}']),
        ('"a/b"."~1"', ['{"a/b":{"~1":"x"}}', '{"a\\/b":{"\\u007e1":"x"}}', '{"a":{"b":{"/":"x"}}}']),
        ('"".""', ['{"":{"":"x"}}', '{"a":1.5,"":{"":"x"}}', '{"":"x"}', "{}"]),
        ('"\\u0000"', ['{"\\u0000":"x"}', '{"a":null,"\\u0000":"x"}', '{"":"x"}']),
        ("list.0", ['{"list":{"0":"x"}}', '{"list":{"00":1,"0":"x"}}', '{"list":["x"]}', '{"list":"x"}']),
        ('0."1".id', ['{"0":{"1":{"id":"x"}}}', '{"0":{"1":{"id":"\\u0078"}}}', '{"0":["y",{"id":"x"}]}']),
        ("*", ['{"*":"x"}', '{"a":"y","*":"x"}', '{"a":"x"}']),
        ("a.b", ['{"a":{"b":"x"},"a.b":"y"}', '{"a":{"b":"x","b":"y"}}', '{"a.b":"x"}', '{"A":{"b":"x"}}']),
    ],
)
def test_path_leads_through_any_key_and_no_list(path: str, texts: list[str]) -> None:
    assert matches(f"data.{path} = 'x'", *texts, '["x"]', '"x"') == [0, 1]


def test_field_is_looked_for_in_payloads_of_rows_without_data() -> None:
    (condition,) = parse_conditions("data.user.id = 'u1'")
    event = b'{"type":"","data":{"user":{"id":"u1"}}}'
    payloads = [event, b'{"user":{"id":"u1"}}', b"{bad u1", b"\xff u1", None, event.replace(b"u1", b"\\u00751")]
    rows = pa.table({"data": pa.nulls(6, pa.string()), "payload": pa.array(payloads, pa.binary())})
    assert condition.holds_for_field(rows).nonzero()[0].tolist() == [0, 5]


def test_payload_that_is_nearly_json_has_its_fields() -> None:
    """A correction may still make an event of it (``quarantine replay``), so an erasure must not leave it."""
    (condition,) = parse_conditions("data.user.id in ('u1', '17')")
    nearly = [b'{"data":{"user":{"id":"u1",}},}', b'{"data":{"user":{"id":17},"n":NaN,"m":-Infinity}}']
    broken = [b'{"data":{"user":{"id":"u1"}}', b'{"data":{"user":{"id":"u1"}}} and more', b"\xef\xbb\xbf" + nearly[0]]
    payloads = [*nearly, *broken]
    rows = pa.table({"data": pa.nulls(5, pa.string()), "payload": pa.array(payloads, pa.binary())})
    assert condition.holds_for_field(rows).nonzero()[0].tolist() == [0, 1]
