"""Answers of the log's API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.client import ClientError
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
