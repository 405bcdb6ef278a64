"""Answers of the log's API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import ClientError, Exhausted, OutOfSequence, StoredAlready, TopicExists
from penstock.client.log import admin_calls, calls
from penstock.client.log.calls import Call
from tests.fuzzed import RAW

EACH: list[Callable[[], Call[Any]]] = [
    lambda: calls.append("t", []),
    lambda: calls.begin(None),
    lambda: calls.commit("x"),
    lambda: calls.get("t", 0, 10, None),
    lambda: calls.get_batch("t", 0, 10, None),
    calls.names,
    lambda: admin_calls.describe(["t"]),
    lambda: admin_calls.cursors("t"),
    lambda: admin_calls.verify("t", 0, 1),
    lambda: admin_calls.compact("t"),
    admin_calls.cleanup,
]


@given(st.sampled_from(EACH), RAW)
def test_random_answer_is_decoded_or_an_error_of_the_client(make: Callable[[], Call[Any]], data: bytes) -> None:
    call = make()
    try:
        call.answered(data)
    except ClientError as error:
        assert call.method in str(error)  # noqa: PT017 some bytes are an answer


STORED = "producer 'p': 0 is stored already, with other rows (2 at offset 0): these 1 are not stored"


@pytest.mark.parametrize(
    ("call", "code", "details", "kind"),
    [
        (calls.append("t", []), grpc.StatusCode.ALREADY_EXISTS, STORED, StoredAlready),
        (calls.commit("x"), grpc.StatusCode.ALREADY_EXISTS, STORED, StoredAlready),
        (calls.append("t", []), grpc.StatusCode.FAILED_PRECONDITION, STORED, StoredAlready),
        (calls.commit("x"), grpc.StatusCode.FAILED_PRECONDITION, STORED, StoredAlready),
        (calls.append("t", []), grpc.StatusCode.FAILED_PRECONDITION, "producer 'p': 4 leaves a gap", OutOfSequence),
        (admin_calls.create("t", {}), grpc.StatusCode.ALREADY_EXISTS, "there is a topic 't' already", TopicExists),
    ],
)
def test_number_stored_with_other_rows_has_its_own_error(
    call: Call[Any], code: grpc.StatusCode, details: str, kind: type[ClientError]
) -> None:
    error = calls.failure(code, details, "127.0.0.1:1", call)
    assert (type(error), str(error)) == (kind, details)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("CLIENT: Sent message", "send fewer or smaller messages"),
        ("SERVER: Received message", "send fewer or smaller messages"),
        ("CLIENT: Received message", "ask for fewer entries"),
    ],
)
def test_error_of_an_oversize_call_names_both_sizes_and_the_next_step(words: str, advice: str) -> None:
    details = f"{words} larger than max (90000053 vs. 67108864)"
    error = calls.failure(grpc.StatusCode.RESOURCE_EXHAUSTED, details, "127.0.0.1:1")
    assert type(error) is Exhausted
    limit = "90000053 bytes are more than the 67108864 bytes that one call may have"
    assert str(error) == f"{limit}: {advice} at a time"
