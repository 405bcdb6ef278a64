"""Redaction by patterns and keyed hashes: redacted text is nowhere in the row, and the rest is unchanged."""

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


def land(rules: TransformRules, *payloads: bytes, codec: str = "plog") -> list[dict[str, Any]]:
    rules.check()
    transformation = Transformation(rules.steps())
    parts = transformation.apply(table_rows(source(enumerate(payloads), codec=codec).rows, Rules(), AT))
    rows = [{**row, "kind": str(kind)} for kind, part in parts for row in part.to_pylist()]
    assert transformation.failures() == []
    return sorted(rows, key=lambda row: row["offset"])


def event_with_data(data: str, more: str = "") -> bytes:
    return f'{{"type":"a","uuid":"u","timestamp":1,{more}"data":{data}}}'.encode()


def patterns(*expressions: str) -> TransformRules:
    return TransformRules(patterns=expressions)


def hashes(*fields: str) -> TransformRules:
    return TransformRules(fields=fields, salt=SALT)


def hashed(value: str) -> str:
    return hmac.new(SALT, value.encode(), hashlib.sha256).hexdigest()[:32]


def test_pattern_is_replaced_in_payload_and_data() -> None:
    (row,) = land(
        patterns(MAIL), event_with_data('{"to": "ann@example.org, bob", "n": 1.10}', '"host":"ann@example.org",')
    )
    assert row["payload"] == event_with_data('{"to": "***, bob", "n": 1.10}', '"host":"***",')
    assert (row["data"], row["host"], row["reason"]) == ('{"to":"***, bob","n":1.10}', "***", "redacted")


@pytest.mark.parametrize("text", ["ann\\u0040example.org", "\\u0061nn@example.org", "x\\nann@example.org"])
def test_pattern_matches_escaped_letters(text: str) -> None:
    (row,) = land(patterns(MAIL), event_with_data(f'{{"to":"{text}","n":[1.10,"\\u00e9"]}}'))
    for text_of_data in (row["data"], json.dumps(json.loads(row["payload"])["data"])):
        parsed = json.loads(text_of_data)
        assert "***" in parsed["to"]
        assert "ann" not in parsed["to"]
        assert parsed["n"] == [1.1, "é"]
    assert '[1.10,"\\u00e9"]' in row["data"]


@pytest.mark.parametrize(("codec", "expected"), [("gelf", "message"), ("json", "message"), ("raw", "quarantine")])
def test_pattern_matches_escaped_letters_in_json_of_other_protocols(codec: str, expected: str) -> None:
    """kurrent-io/kcap-cli#681, MCKRUZ/microsoft-agentic-harness#391: senders escape letters, and PHP slashes."""
    sent = rb' {"m":["ann\u0040example.org",1.10,4111111111111111],"u":"https:\/\/ann:pw\u0040h","ok":"\u00fc"}'
    (row,) = land(patterns(MAIL, CARD, 'https?://[^ "]*'), sent.strip(), codec=codec)
    assert row["payload"] == rb'{"m":["***",1.10,"***"],"u":"***","ok":"\u00fc"}'
    assert row["kind"] == expected


@pytest.mark.parametrize("escape", [r"", r"\n", r"\u0041"])
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r'"password":\s*"[^"]*"', '{"user":"ann",***,"note":"NOTE"}'),
        (r"password.*", '{"user":"ann","***'),
        (r"^.*hunter2.*$", "***"),
        (r"hunter2", '{"user":"ann","password":"***","note":"NOTE"}'),
    ],
)
def test_pattern_over_several_contents_matches_in_json_of_other_protocols(
    pattern: str, expected: str, escape: str
) -> None:
    """A sender must not switch redaction off by an escape."""
    sent = '{"user":"ann","password":"hunter2","note":"NOTE"}'.replace("NOTE", f"x{escape}")
    (row,) = land(patterns(pattern), sent.encode(), codec="gelf")
    assert row["payload"] == expected.replace("NOTE", f"x{escape}").encode()
    rows = source([(0, b"x")]).rows
    notes = pa.array([[("list", sent)]], rows.schema.field("annotations").type)
    rows = rows.set_column(rows.schema.get_field_index("annotations"), "annotations", notes)
    ((_, redacted),) = Transformation(patterns(pattern).steps()).apply(table_rows(rows, Rules(), AT))
    assert redacted["annotations"].to_pylist() == [[("list", row["payload"].decode())]]


def test_pattern_matches_escaped_letters_in_annotations_that_are_json() -> None:
    rows = source([(0, b"x")]).rows
    notes = pa.array(
        [[("list", '["ann\\u0040example.org","\\u00e9"]'), ("text", "a\\b")]], rows.schema.field("annotations").type
    )
    rows = rows.set_column(rows.schema.get_field_index("annotations"), "annotations", notes)
    ((_, redacted),) = Transformation(patterns(MAIL).steps()).apply(table_rows(rows, Rules(), AT))
    assert redacted["annotations"].to_pylist() == [[("list", '["***","\\u00e9"]'), ("text", "a\\b")]]


def test_replaced_number_becomes_a_string() -> None:
    (row,) = land(patterns(CARD), event_with_data('{"card":4111111111111111,"other":[4111111111111111,12],"ok":true}'))
    assert json.loads(row["data"]) == {"card": "***", "other": ["***", 12], "ok": True}
    assert json.loads(row["payload"])["data"] == json.loads(row["data"])


@pytest.mark.parametrize(
    ("pattern", "sent", "expected"),
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
def test_pattern_matches_only_contents(pattern: str, sent: str, expected: Any) -> None:
    for data in (sent, sent.replace(",", ", ").replace("1, 2", "1,2")):
        (row,) = land(patterns(pattern), event_with_data(data))
        assert json.loads(row["data"]) == expected


@pytest.mark.parametrize("replacement", ["0", "", "null", "NaN", "-inf", "true", "1e5"])
def test_replacement_is_always_quoted(replacement: str) -> None:
    (row,) = land(TransformRules(patterns=("41+",), replacement=replacement), event_with_data("[4111,[5,4111],6]"))
    assert json.loads(row["data"]) == [replacement, [5, replacement], 6]


def test_matching_key_is_replaced() -> None:
    (row,) = land(patterns(MAIL), event_with_data('{"ann@example.org":1}'))
    assert row["data"] == '{"***":1}'


def test_all_kinds_of_rows_are_redacted() -> None:
    rows = land(patterns(MAIL), b"from ann@example.org", b"{bad ann@example.org", b"\xff\x00 ann@example.org", b"none")
    assert [row["payload"] for row in rows] == [b"from ***", b"{bad ***", b"\xff\x00 ***", b"none"]
    assert [(row["kind"], row["reason"]) for row in rows] == [
        ("message", "redacted"),
        ("quarantine", "bad_json"),
        ("message", "redacted"),
        ("message", None),
    ]
    (row,) = land(patterns(MAIL), b"<34>1 - h app - - - from ann@example.org", codec="syslog")
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


def test_all_text_columns_are_redacted() -> None:
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


@pytest.mark.parametrize(
    ("replacement", "expected"), [("***", "mail ***"), ("", "mail "), ("\t", "redacted"), ("x" * 300, "redacted")]
)
def test_type_is_redacted_and_stays_a_type(replacement: str, expected: str) -> None:
    rules = TransformRules(patterns=(MAIL,), replacement=replacement)
    sent = [b'{"type":"mail ann@example.org","uuid":"u","timestamp":1}', b'{"type":"a","uuid":"v","timestamp":1}']
    rows = land(rules, *sent)
    assert [(row["kind"], row["type"], row["reason"]) for row in rows] == [
        ("event", expected, "redacted"),
        ("event", "a", None),
    ]
    assert b"ann@" not in rows[0]["payload"]


def test_type_that_is_redacted_altogether_stays_a_type() -> None:
    (row,) = land(TransformRules(patterns=(MAIL,), replacement=""), b'{"type":"a@b","uuid":"u","timestamp":1}')
    assert (row["kind"], row["type"]) == ("event", "redacted")


def test_syslog_columns_are_redacted() -> None:
    header = b'<34>1 - h@x.org a@x.org p@x.org m@x.org [o who@x.org="w@x.org"] from f@x.org'
    given_rows = source([(0, header)], codec="syslog").rows
    annotations = build_annotations(pa.array([header]), np.array([AT]), UTC)
    given_rows = given_rows.set_column(given_rows.schema.get_field_index("annotations"), "annotations", annotations)
    ((_, rows),) = Transformation(patterns(r"[a-z]+@[a-z.]+").steps()).apply(table_rows(given_rows, Rules(), AT))
    (row,) = rows.to_pylist()
    assert [row[name] for name in ("host", "app_name", "procid", "msgid", "message")] == ["***"] * 4 + ["from ***"]
    assert "x.org" not in str(row)


def test_fields_are_hashed_in_payload_data_and_column() -> None:
    data = '{ "user" : { "id" : "caf\\u00e9" , "n": 17.50 }, "list":[{"id":"a"},{"id":null},5], "id":"stays" }'
    fields = ("data.user.id", "data.user.n", "data.list.id", "host")
    (row,) = land(hashes(*fields), event_with_data(data, '"host":"web-1",'))
    expected = {
        "user": {"id": hashed("café"), "n": hashed("17.50")},
        "list": [{"id": hashed("a")}, {"id": None}, 5],
        "id": "stays",
    }
    assert json.loads(row["data"]) == expected
    payload = json.loads(row["payload"])
    assert payload == {"type": "a", "uuid": "u", "timestamp": 1, "host": hashed("web-1"), "data": expected}
    assert (row["host"], row["reason"]) == (hashed("web-1"), "redacted")


def test_repeated_and_escaped_keys_are_hashed() -> None:
    (row,) = land(hashes("data.user"), event_with_data('{"user":"a","\\u0075ser":"b","user":{"x": 1}}'))
    expected = [hashed("a"), hashed("b"), hashed('{"x":1}')]
    assert row["data"] == f'{{"user":"{expected[0]}","\\u0075ser":"{expected[1]}","user":"{expected[2]}"}}'
    assert row["payload"] == event_with_data(row["data"])


def test_keys_with_special_characters_are_hashed() -> None:
    keys = ["it's", "a/b~c", "(x)*[y", "é ü", "0"]
    for key in keys:
        for text in (f'{{"{key}":"v"}}', f'{{"{key}": "v"}}', f'{{"x":["{key}"],"{key}":"v"}}'):
            (row,) = land(hashes(f'data."{key}"'), event_with_data(text))
            assert json.loads(row["data"])[key] == hashed("v")
            assert json.loads(row["payload"])["data"] == json.loads(row["data"])


def test_same_value_of_other_key_stays() -> None:
    (row,) = land(hashes("data.user"), event_with_data('{"user":"ann","name":"ann","x":{"user":"ann"}}'))
    assert row["data"] == f'{{"user":"{hashed("ann")}","name":"ann","x":{{"user":"ann"}}}}'
    (row,) = land(hashes("data.user"), event_with_data('{"user":"ann","name":"ann"}'))
    assert row["data"] == f'{{"user":"{hashed("ann")}","name":"ann"}}'


@pytest.mark.parametrize("number", ["17", "-5", "1.50", "1e3", "true", "123456789012345678901234567890"])
@pytest.mark.parametrize("colon", [":", ": ", " :\t"])
def test_numbers_are_hashed_by_their_text(number: str, colon: str) -> None:
    for more in ("", ',"n":1', ',"m":"17"', ',"user2":17'):
        (row,) = land(hashes("data.user"), event_with_data(f'{{"user"{colon}{number}{more}}}'))
        assert row["data"] == f'{{"user":"{hashed(number)}"{more}}}'
        assert row["payload"] == event_with_data(f'{{"user"{colon}"{hashed(number)}"{more}}}')


@pytest.mark.parametrize("salt", [b"s", b"s" * 64, b"s" * 65, bytes(range(256))])
def test_hashes_are_hmac_sha256_with_any_key(salt: bytes) -> None:
    (row,) = land(TransformRules(fields=("data.user",), salt=salt), event_with_data('{"user":"ann"}'))
    assert json.loads(row["data"])["user"] == hmac.new(salt, b"ann", hashlib.sha256).hexdigest()[:32]


def test_row_without_the_field_is_unchanged() -> None:
    payloads = [
        event_with_data("null"),
        event_with_data("[1]"),
        event_with_data('"user"'),
        b'{"type":"a","uuid":"u","timestamp":1}',
        b"text",
    ]
    rows = land(hashes("data.user", "host"), *payloads)
    assert [(row["payload"], row["reason"]) for row in rows] == [(payload, None) for payload in payloads]


def test_quarantined_json_is_hashed() -> None:
    bad = b'{"type":"a","uuid":"u","timestamp":"x","data":{"user":"ann"}}'
    (row,) = land(hashes("data.user"), bad)
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
def test_any_json_stays_json_without_redacted_text(rows: list[tuple[Any, bool, int | None]]) -> None:
    payloads = [
        event_with_data(json.dumps(value, ensure_ascii=ascii_only, indent=indent)) for value, ascii_only, indent in rows
    ]
    rules = TransformRules(patterns=(MAIL,), fields=("data.user",), salt=SALT)
    for row, (value, _, _) in zip(land(rules, *payloads), rows, strict=True):
        data, payload = json.loads(row["data"] or "null"), json.loads(row["payload"])
        assert payload["data"] == data
        if "ann@" not in json.dumps(value):
            assert data == _hashed_by_hand(value)
        assert "ann@" not in json.dumps(data)


def _hashed_by_hand(value: Any) -> Any:
    if isinstance(value, list):
        return [_hashed_by_hand(element) for element in value]
    if not isinstance(value, dict):
        return value
    return {key: _value_by_hand(element) if key == "user" else element for key, element in value.items()}


def _value_by_hand(value: Any) -> Any:
    if value is None:
        return None
    return hashed(value) if isinstance(value, str) else _AnyHash()


class _AnyHash:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and len(other) == 32

    def __hash__(self) -> int:
        return 0


def test_contents_and_members_are_replaced() -> None:
    text = ' {"a" : ["x",1.50, null ], "b":"x"}\n'
    assert with_contents(text, lambda contents: [content.replace("x", 'é"') for content in contents]) == (
        ' {"a" : ["é\\"",1.50, null ], "b":"é\\""}\n'
    )
    assert with_members(text, ["a"], lambda content: content.upper()) == ' {"a" : ["X",1.50, NULL ], "b":"x"}\n'


def test_invalid_pattern_raises_its_key() -> None:
    with pytest.raises(BadTransform, match=r"^pipeline\.redact\.patterns: '\('"):
        patterns("(").check()
