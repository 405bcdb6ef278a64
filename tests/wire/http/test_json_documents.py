"""JSON as agents send it: each document is an unchanged message, and a bad one is refused by its line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.http.json_documents import JsonProtocol
from penstock.wire.requests import Refused
from tests.fuzzed import json_texts
from tests.wire.sample_requests import (
    EXACT,
    answer_document,
    assert_accepted_or_refused,
    make_request,
    refusal_of,
    rows,
)


@pytest.mark.parametrize(
    ("body", "payloads"),
    [
        (b'{"a": 1}\n{"b":2}\n', [b'{"a": 1}', b'{"b":2}']),
        (b'{"a": 1}\r\n\r\n"text"', [b'{"a": 1}', b'"text"']),
        (b'[{"a": 1}, 2]', [b'{"a":1}', b"2"]),
        (b'{\n  "a": 1\n}\n', [b'{\n  "a": 1\n}']),
        (b"[]", []),
        (b"[1,2]\n[3]", [b"1", b"2", b"3"]),
        (b"[\n1\n,2]\n[3]", [b"1", b"2", b"3"]),
        (b'[1,2]\n{"a":1}\n[]', [b"1", b"2", b'{"a":1}']),
        (b'{"a":1}\n[1,{"b": 2.0}]\n"x"', [b'{"a":1}', b"1", b'{"b":2.0}', b'"x"']),
    ],
)
def test_documents_by_line_in_an_array_or_alone_are_messages(body: bytes, payloads: list[bytes]) -> None:
    received = JsonProtocol().receive(make_request("/", body))
    assert [payload for payload, _ in rows(received)] == payloads
    assert answer_document(received) == {"accepted": len(payloads), "refused": 0}


def test_lines_that_are_no_json_are_refused_and_named() -> None:
    received = JsonProtocol().receive(make_request("/", b'{"a":1}\nnope\n{"b":2}\n{"c":'))
    assert [payload for payload, _ in rows(received)] == [b'{"a":1}', b'{"b":2}']
    texts = {2: "not valid JSON at column 1: expecting value", 4: "not valid JSON at column 6: expecting value"}
    syntax = [{"document": number, "reason": "syntax", "text": text} for number, text in texts.items()]
    assert answer_document(received) == {"accepted": 2, "refused": 2, "errors": syntax}
    assert received.counts == {"seen": 4, "accepted": 2, "refused.syntax": 2}


@pytest.mark.parametrize("cut", [b'{"a":', b'{"a": [', b'{"a": [{"b": 1}, ', b'{"a": "b', b'{"a": 1, "b'])
@pytest.mark.parametrize("line", [b'{"b":2}', b'{"b":{}}', b'{"b":[1]}'])
def test_lines_behind_a_first_one_that_is_cut_are_messages(line: bytes, cut: bytes) -> None:
    for lines, number_of_cuts in (([cut, line], 1), ([cut, line, line], 1), ([cut, cut, line], 2)):
        received = JsonProtocol().receive(make_request("/", b"\n".join(lines)))
        assert [payload for payload, _ in rows(received)] == lines[number_of_cuts:]
        assert received.counts["refused.syntax"] == number_of_cuts


def test_request_without_an_acceptable_document_is_refused() -> None:
    assert refusal_of(JsonProtocol(), make_request("/", b"nope")).status == 400
    assert refusal_of(JsonProtocol(), make_request("/", b"[nope,")).status == 400
    assert refusal_of(JsonProtocol(), make_request("/", b'"' + b"x" * 100 + b'"', max_message_bytes=50)).status == 413


@given(st.lists(json_texts("type", "uuid"), max_size=4).map(b"\n".join))
def test_any_bytes_are_documents_or_refused(data: bytes) -> None:
    assert_accepted_or_refused(JsonProtocol(), make_request("/", data))


@given(st.recursive(st.none(), lambda inner: st.lists(inner, min_size=1, max_size=1), max_leaves=1))
def test_depth_is_no_matter(value: object) -> None:
    assert_accepted_or_refused(JsonProtocol(), make_request("/", b"[" * 400 + json.dumps(value).encode() + b"]" * 400))


@pytest.mark.parametrize("text", EXACT)
def test_documents_are_stored_as_sent(text: str) -> None:
    for body in (f"[1, {text} , 2]", f"1\n{text}\n2"):
        received = JsonProtocol().receive(make_request("/", body.encode()))
        assert [payload.decode() for payload, _ in rows(received)] == ["1", text, "2"]
        assert answer_document(received) == {"accepted": 3, "refused": 0}


@pytest.mark.parametrize(
    "bad", ["NaN", '{"a":Infinity}', "nope", '{"a":nope}', "[" * 1100 + "]" * 1100, '{"a" 1}', '{"a":[1,}']
)
def test_a_bad_document_is_named_and_the_others_are_taken(bad: str) -> None:
    bodies = [f'{{"a":1}}\n{bad}\n{{"b":1.10}}']
    if bad.count("[") == bad.count("]"):
        bodies.append(f'[{{"a":1}},{bad},{{"b":1.10}}]')
    for body in bodies:
        received = JsonProtocol().receive(make_request("/", body.encode()))
        assert [payload for payload, _ in rows(received)] == [b'{"a":1}', b'{"b":1.10}']
        (error,) = answer_document(received)["errors"]
        assert (error["document"], error["reason"]) == (2, "syntax")
        assert error["text"].startswith(("not valid JSON", "nested deeper"))
        assert received.counts == {"seen": 3, "accepted": 2, "refused.syntax": 1}


def test_documents_behind_a_list_are_accepted_or_refused() -> None:
    received = JsonProtocol().receive(make_request("/", b'[1]\n[{"a":1.10},2]'))
    assert [payload for payload, _ in rows(received)] == [b"1", b'{"a":1.10}', b"2"]
    assert answer_document(JsonProtocol().receive(make_request("/", b"[1] x")))["refused"] == 1


def test_bad_line_between_arrays_does_not_hide_the_next_array() -> None:
    received = JsonProtocol().receive(make_request("/", b"[1,2]\nabc\n[3]\n[4,nope]\n[5]"))
    assert [payload for payload, _ in rows(received)] == [b"1", b"2", b"3", b"5"]
    assert [error["document"] for error in answer_document(received)["errors"]] == [2, 4]
    assert received.counts == {"seen": 6, "accepted": 4, "refused.syntax": 2}


@pytest.mark.parametrize("body", [b"", b"\n"])
def test_request_without_a_body_is_refused(body: bytes) -> None:
    with pytest.raises(Refused, match="the body is empty") as refused:
        JsonProtocol().receive(make_request("/", body))
    assert refused.value.status == 400
