"""Payloads of arbitrary bytes pass through redaction: each stays one row, and none fails."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.rows.table_rows import Rules, table_rows
from penstock.landing.transform.rules import Transformation, TransformRules
from tests.fuzzed import RAW
from tests.landing.writing.messages import source

RULES = TransformRules(patterns=("[a-c]+", "\\d{2,}"), fields=("data.user", "host"), salt=b"salt")
JSON_PREFIXED = st.builds(bytes.__add__, st.sampled_from([b"{", b'{"type":"a","uuid":"u","timestamp":1,"data":']), RAW)


@settings(max_examples=100, deadline=None)
@given(st.lists(RAW | JSON_PREFIXED, min_size=1, max_size=6), st.sampled_from(["plog", "syslog"]))
def test_any_payload_stays_one_row_and_fails_nothing(payloads: list[bytes], codec: str) -> None:
    transformation = Transformation(RULES.steps())
    parts = transformation.apply(table_rows(source(enumerate(payloads), codec=codec).rows, Rules(), 1))
    offsets = sorted(offset for _, part in parts for offset in part["offset"].to_pylist())
    assert offsets == list(range(len(payloads)))
    assert transformation.failures() == []
