"""The strict check of events in Python."""

from __future__ import annotations

import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.event_rules import Event, Reason, is_safe_type, judge
from tests.spark.spark_payloads import EVENTS, QUARANTINED


@pytest.mark.parametrize("payload", EVENTS, ids=range(len(EVENTS)))
def test_a_valid_event_is_one(payload: bytes) -> None:
    assert isinstance(judge(payload), Event)


@pytest.mark.parametrize(("reason", "payload"), QUARANTINED, ids=range(len(QUARANTINED)))
def test_anything_else_has_its_reason(reason: str, payload: bytes) -> None:
    assert judge(payload) == Reason(reason)


def test_type_and_uuid_are_those_of_the_event() -> None:
    assert judge(b'{"type":"\\u00e9","uuid":"a\\"b","timestamp":1}') == Event("é", 'a"b')


def test_a_type_that_is_not_in_the_list_is_not_allowed() -> None:
    payload = b'{"type":"b","uuid":"u","timestamp":1}'
    assert judge(payload, ("a",)) == Reason.TYPE_NOT_ALLOWED
    assert isinstance(judge(payload, ("a", "b")), Event)


def test_deep_nesting_is_judged_in_any_thread_and_leaves_the_recursion_limit_alone() -> None:
    limit = sys.getrecursionlimit()
    deep = b'{"type":"a","uuid":"u","timestamp":1,"data":' + b"[" * 998 + b"]" * 998 + b"}"
    answers: list[Event | Reason] = []
    thread = threading.Thread(target=lambda: answers.append(judge(deep)))
    thread.start()
    thread.join()
    assert isinstance(answers[0], Event)
    assert judge(b"{" + b'"a":[' * 100_000) == Reason.BAD_JSON
    assert sys.getrecursionlimit() == limit


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything(tail: bytes) -> None:
    assert isinstance(judge(b"{" + tail), Event | Reason)


@given(st.text(max_size=100))
def test_a_safe_type_is_never_empty_too_long_or_with_control_characters(name: str) -> None:
    if is_safe_type(name):
        assert 0 < len(name.encode()) <= 80
        assert not any(ord(letter) < 32 or ord(letter) == 127 for letter in name)
