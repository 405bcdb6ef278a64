"""What is told where the ledger takes no report."""

from __future__ import annotations

from hypothesis import given

from penstock.client.sent_report import refusal_in
from tests.fuzzed import DEEP, json_texts


def test_a_refusal_is_told_in_its_own_words() -> None:
    assert refusal_in(b'{"error": "no such listener", "code": 5}') == "no such listener"
    assert refusal_in(b" Bad Gateway\n") == "Bad Gateway"
    assert refusal_in(DEEP[:1000]).startswith("[[[")


@given(json_texts("error"))
def test_any_answer_is_a_text(data: bytes) -> None:
    assert isinstance(refusal_in(data), str)
