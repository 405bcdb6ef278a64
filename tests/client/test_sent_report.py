"""Errors for reports that the ledger refuses."""

from __future__ import annotations

from hypothesis import given

from penstock.client.sent_report import refusal_in
from tests.fuzzed import DEEP, json_texts


def test_refusal_has_the_text_of_the_ledger() -> None:
    assert refusal_in(b'{"error": "no such listener", "code": 5}') == "no such listener"
    assert refusal_in(b" Bad Gateway\n") == "Bad Gateway"
    assert refusal_in(DEEP[:1000]).startswith("[[[")


@given(json_texts("error"))
def test_random_answer_gives_a_text(data: bytes) -> None:
    assert isinstance(refusal_in(data), str)
