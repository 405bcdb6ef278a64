"""Redaction by patterns and keyed hashes: what it names is nowhere in the row any more, and the rest is as it was."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.rows.table_rows import Rules, table_rows
from penstock.landing.transform.json_texts import with_contents, with_members
from penstock.landing.transform.rules import BadTransform, Transformation, TransformRules
from penstock.wire.syslog.codec import build_annotations
from tests.landing.writing.messages import AT, source, stamp

MAIL = r"[a-z.]+@[a-z.]+"
CARD = r"\b[0-9]{4}-?[0-9]{4}-?[0-9]{4}-?[0-9]{4}\b"
SALT = b"pepper"


def landed(rules: TransformRules, *payloads: bytes, codec: str = "plog") -> list[dict[str, Any]]:
    rules.check()
    transformation = Transformation(rules.steps())
    parts = transformation.apply(table_rows(source(enumerate(payloads), codec=codec).rows, Rules(), AT))
    rows = [{**row, "kind": str(kind)} for kind, part in parts for row in part.to_pylist()]
    assert transformation.failures() == []
    return sorted(rows, key=lambda row: row["offset"])


def of(data: str, more: str = "") -> bytes:
    return f'{{"type":"a","uuid":"u","timestamp":1,{more}"data":{data}}}'.encode()


def patterns(*wanted: str) -> TransformRules:
    return TransformRules(patterns=wanted)


def hashes(*fields: str) -> TransformRules:
    return TransformRules(fields=fields, salt=SALT)


def hashed(value: str) -> str:
    return hmac.new(SALT, value.encode(), hashlib.sha256).hexdigest()[:32]


def test_a_pattern_goes_from_payload_and_data_and_the_rest_stays_letter_by_letter() -> None:
    (row,) = landed(patterns(MAIL), of('{"to": "ann@example.org, bob", "n": 1.10}', '"host":"ann@example.org",'))
    assert row["payload"] == of('{"to": "***, bob", "n": 1.10}', '"host":"***",')
    assert (row["data"], row["host"], row["reason"]) == ('{"to":"***, bob","n":1.10}', "***", "redacted")


@pytest.mark.parametrize("text", ["ann\\u0040example.org", "\\u0061nn@example.org", "x\\nann@example.org"])
def test_an_escaped_letter_is_no_way_around_a_pattern(text: str) -> None:
    (row,) = landed(patterns(MAIL), of(f'{{"to":"{text}","n":[1.10,"\\u00e9"]}}'))
    for found in (row["data"], json.dumps(json.loads(row["payload"])["data"])):
        told = json.loads(found)
        assert "***" in told["to"]
        assert "ann" not in told["to"]
        assert told["n"] == [1.1, "é"]
    assert '[1.10,"\\u00e9"]' in row["data"]


def test_what_was_a_number_is_a_string_then_and_json_stays_json() -> None:
    (row,) = landed(patterns(CARD), of('{"card":4111111111111111,"other":[4111111111111111,12],"ok":true}'))
    assert json.loads(row["data"]) == {"card": "***", "other": ["***", 12], "ok": True}
    assert json.loads(row["payload"])["data"] == json.loads(row["data"])


@pytest.mark.parametrize(
    ("pattern", "sent", "wanted"),
    [
        ("^ann$", '["ann","anne","x ann"]', ["***", "anne", "x ann"]),
        ("ann.*", '["ann e","x"]', ["***", "x"]),
        ("x.*y", '["x","y","xy"]', ["x", "y", "***"]),
        ("[^a]+", '["bab","a"]', ["***a***", "a"]),
        ("true|null|[{},:]", '{"a":true,"b":[null],"c":"true"}', {"a": True, "b": [None], "c": "***"}),
        ("1,2", '[1,2,"1,2"]', [1, 2, "***"]),
        (r"\bann\b", '["ann","x-ann","anna"]', ["***", "x-***", "anna"]),
    ],
)
def test_a_pattern_is_looked_for_in_contents_alone(pattern: str, sent: str, wanted: Any) -> None:
    for data in (sent, sent.replace(",", ", ").replace("1, 2", "1,2")):
        (row,) = landed(patterns(pattern), of(data))
        assert json.loads(row["data"]) == wanted


@pytest.mark.parametrize("replacement", ["0", "", "null", "NaN", "-inf", "true", "1e5"])
def test_a_replacement_that_could_stand_without_quotes_has_them(replacement: str) -> None:
    (row,) = landed(TransformRules(patterns=("41+",), replacement=replacement), of("[4111,[5,4111],6]"))
    assert json.loads(row["data"]) == [replacement, [5, replacement], 6]


def test_a_key_that_matches_goes_too() -> None:
    (row,) = landed(patterns(MAIL), of('{"ann@example.org":1}'))
    assert row["data"] == '{"***":1}'


def test_messages_syslog_quarantine_and_bytes_that_are_no_text_are_redacted() -> None:
    rows = landed(
        patterns(MAIL), b"from ann@example.org", b"{bad ann@example.org", b"\xff\x00 ann@example.org", b"none"
    )
    assert [row["payload"] for row in rows] == [b"from ***", b"{bad ***", b"\xff\x00 ***", b"none"]
    assert [(row["kind"], row["reason"]) for row in rows] == [
        ("message", "redacted"),
        ("quarantine", "bad_json"),
        ("message", "redacted"),
        ("message", None),
    ]
    (row,) = landed(patterns(MAIL), b"<34>1 - h app - - - from ann@example.org", codec="syslog")
    assert (row["message"], row["payload"][-8:]) == ("from ***", b"from ***")
    assert "example" not in str(row)


def test_annotations_and_key_are_redacted() -> None:
    given_rows = source([(0, b"x"), (1, b"y")]).rows
    notes = pa.array([[("a", "ann@example.org"), ("b", "c")], None], given_rows.schema.field("annotations").type)
    keys = pa.array([b"ann@example.org", None], pa.binary())
    for name, column in (("annotations", notes), ("key", keys)):
        given_rows = given_rows.set_column(given_rows.schema.get_field_index(name), name, column)
    ((_, rows),) = Transformation(patterns(MAIL).steps()).apply(table_rows(given_rows, Rules(), AT))
    assert rows["annotations"].to_pylist() == [[("a", "***"), ("b", "c")], None]
    assert rows["key"].to_pylist() == [b"***", None]
    assert rows["timestamp"].to_pylist() == [stamp(AT)] * 2


def test_names_of_annotations_and_all_texts_of_a_row_are_redacted() -> None:
    given_rows = source([(0, b"x")]).rows
    names = [("jim@example.com", "1"), ("ann@example.org", "2"), ("trace_id", "t@example.org")]
    texts = [("span_id", "s@example.org"), ("host", "h@example.org"), ("severity_text", "v@example.org")]
    columns = {
        "annotations": pa.array([[*names, *texts]], given_rows.schema.field("annotations").type),
        "type_url": pa.array(["u@example.org"]),
        "codec": pa.array(["hec"]),
    }
    for name, column in columns.items():
        given_rows = given_rows.set_column(given_rows.schema.get_field_index(name), name, column)
    ((_, rows),) = Transformation(patterns(MAIL).steps()).apply(table_rows(given_rows, Rules(), AT))
    (row,) = rows.to_pylist()
    assert row["annotations"][0] == ("***", "1\0002")
    assert [row[name] for name in ("type_url", "trace_id", "span_id", "host", "severity")] == ["***"] * 5
    assert "example" not in str(row)


def test_a_syslog_parameter_and_all_columns_of_syslog_are_redacted() -> None:
    header = b'<34>1 - h@x.org a@x.org p@x.org m@x.org [o who@x.org="w@x.org"] from f@x.org'
    given_rows = source([(0, header)], codec="syslog").rows
    said = build_annotations(pa.array([header]), np.array([AT]), UTC)
    given_rows = given_rows.set_column(given_rows.schema.get_field_index("annotations"), "annotations", said)
    ((_, rows),) = Transformation(patterns(r"[a-z]+@[a-z.]+").steps()).apply(table_rows(given_rows, Rules(), AT))
    (row,) = rows.to_pylist()
    assert [row[name] for name in ("host", "app_name", "procid", "msgid", "message")] == ["***"] * 4 + ["from ***"]
    assert "x.org" not in str(row)


def test_fields_become_keyed_hashes_in_payload_data_and_column_alike() -> None:
    data = '{ "user" : { "id" : "caf\\u00e9" , "n": 17.50 }, "list":[{"id":"a"},{"id":null},5], "id":"stays" }'
    fields = ("data.user.id", "data.user.n", "data.list.id", "host")
    (row,) = landed(hashes(*fields), of(data, '"host":"web-1",'))
    wanted = {
        "user": {"id": hashed("café"), "n": hashed("17.50")},
        "list": [{"id": hashed("a")}, {"id": None}, 5],
        "id": "stays",
    }
    assert json.loads(row["data"]) == wanted
    payload = json.loads(row["payload"])
    assert payload == {"type": "a", "uuid": "u", "timestamp": 1, "host": hashed("web-1"), "data": wanted}
    assert (row["host"], row["reason"]) == (hashed("web-1"), "redacted")


def test_a_key_that_stands_there_twice_or_escaped_is_hashed_each_time() -> None:
    (row,) = landed(hashes("data.user"), of('{"user":"a","\\u0075ser":"b","user":{"x": 1}}'))
    wanted = [hashed("a"), hashed("b"), hashed('{"x":1}')]
    assert row["data"] == f'{{"user":"{wanted[0]}","\\u0075ser":"{wanted[1]}","user":"{wanted[2]}"}}'
    assert row["payload"] == of(row["data"])


def test_keys_with_any_letters_are_found() -> None:
    keys = ["it's", "a/b~c", "(x)*[y", "é ü", "0"]
    for key in keys:
        for text in (f'{{"{key}":"v"}}', f'{{"{key}": "v"}}', f'{{"x":["{key}"],"{key}":"v"}}'):
            (row,) = landed(hashes(f"data.{key}"), of(text))
            assert json.loads(row["data"])[key] == hashed("v")
            assert json.loads(row["payload"])["data"] == json.loads(row["data"])


def test_the_same_value_elsewhere_stays() -> None:
    (row,) = landed(hashes("data.user"), of('{"user":"ann","name":"ann","x":{"user":"ann"}}'))
    assert row["data"] == f'{{"user":"{hashed("ann")}","name":"ann","x":{{"user":"ann"}}}}'
    (row,) = landed(hashes("data.user"), of('{"user":"ann","name":"ann"}'))
    assert row["data"] == f'{{"user":"{hashed("ann")}","name":"ann"}}'


@pytest.mark.parametrize("number", ["17", "-5", "1.50", "1e3", "true", "123456789012345678901234567890"])
@pytest.mark.parametrize("colon", [":", ": ", " :\t"])
def test_numbers_are_hashed_as_they_were_written(number: str, colon: str) -> None:
    for more in ("", ',"n":1', ',"m":"17"', ',"user2":17'):
        (row,) = landed(hashes("data.user"), of(f'{{"user"{colon}{number}{more}}}'))
        assert row["data"] == f'{{"user":"{hashed(number)}"{more}}}'
        assert row["payload"] == of(f'{{"user"{colon}"{hashed(number)}"{more}}}')


@pytest.mark.parametrize("salt", [b"s", b"s" * 64, b"s" * 65, bytes(range(256))])
def test_hashes_are_hmac_sha256_with_any_key(salt: bytes) -> None:
    (row,) = landed(TransformRules(fields=("data.user",), salt=salt), of('{"user":"ann"}'))
    assert json.loads(row["data"])["user"] == hmac.new(salt, b"ann", hashlib.sha256).hexdigest()[:32]


def test_what_has_no_such_field_is_as_it_was() -> None:
    payloads = [of("null"), of("[1]"), of('"user"'), b'{"type":"a","uuid":"u","timestamp":1}', b"text"]
    rows = landed(hashes("data.user", "host"), *payloads)
    assert [(row["payload"], row["reason"]) for row in rows] == [(payload, None) for payload in payloads]


def test_events_in_quarantine_are_hashed_where_they_are_json() -> None:
    bad = b'{"type":"a","uuid":"u","timestamp":"x","data":{"user":"ann"}}'
    (row,) = landed(hashes("data.user"), bad)
    assert (row["reason"], row["payload"]) == ("bad_timestamp", bad.replace(b"ann", hashed("ann").encode()))


KEYS = st.text(max_size=3) | st.just("user")
LEAVES: Any = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(["ann@example.org", "a b"])
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(JSON, st.booleans(), st.sampled_from([None, 1])), min_size=1, max_size=8))
def test_whatever_json_comes_it_stays_json_without_what_was_to_go(rows: list[tuple[Any, bool, int | None]]) -> None:
    payloads = [of(json.dumps(value, ensure_ascii=ascii_only, indent=indent)) for value, ascii_only, indent in rows]
    rules = TransformRules(patterns=(MAIL,), fields=("data.user",), salt=SALT)
    for row, (value, _, _) in zip(landed(rules, *payloads), rows, strict=True):
        data, payload = json.loads(row["data"] or "null"), json.loads(row["payload"])
        assert payload["data"] == data
        if "ann@" not in json.dumps(value):
            assert data == _hashed_by_hand(value)
        assert "ann@" not in json.dumps(data)


def _hashed_by_hand(value: Any) -> Any:
    if isinstance(value, list):
        return [_hashed_by_hand(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: _value_by_hand(one) if key == "user" else one for key, one in value.items()}


def _value_by_hand(value: Any) -> Any:
    if value is None:
        return None
    return hashed(value) if isinstance(value, str) else _AnyHash()


class _AnyHash:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and len(other) == 32

    def __hash__(self) -> int:
        return 0


def test_contents_and_members_are_changed_in_place() -> None:
    text = ' {"a" : ["x",1.50, null ], "b":"x"}\n'
    assert with_contents(text, lambda all_of: [one.replace("x", 'é"') for one in all_of]) == (
        ' {"a" : ["é\\"",1.50, null ], "b":"é\\""}\n'
    )
    assert with_members(text, ["a"], lambda one: one.upper()) == ' {"a" : ["X",1.50, NULL ], "b":"x"}\n'


def test_a_pattern_that_is_none_is_told_with_its_key() -> None:
    with pytest.raises(BadTransform, match=r"^pipeline\.redact\.patterns: '\('"):
        patterns("(").check()
