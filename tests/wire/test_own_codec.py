"""Codecs of one's own: what they make of a round, and what becomes of it where they fail."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.keys import listeners
from penstock.counts import open_books
from penstock.records import annotated, body
from penstock.wire.codecs import CODECS, ENTRY_POINTS
from penstock.wire.datagrams import Datagrams
from penstock.wire.own_codec import OwnDecoder


class Letters:
    """Payloads that are letters, with the first one; others are refused."""

    def decode(self, payloads: pa.Array[Any]) -> pa.RecordBatch:
        found: Any = pc.extract_regex(payloads, r"\A(?P<first>[a-z])[a-z]*\z")
        return annotated(pc.if_else(found.is_valid(), payloads, None), {"first": pc.struct_field(found, "first")})


class Failing:
    def __init__(self, result: Any) -> None:
        self._result = result

    def decode(self, payloads: pa.Array[Any]) -> pa.RecordBatch:
        if isinstance(self._result, Exception):
            raise self._result
        batch: pa.RecordBatch = self._result
        return batch


def test_rows_have_their_fields_and_what_is_refused_is_counted() -> None:
    decoded = OwnDecoder(Letters()).decode(Datagrams.from_bytes([b"ab", b"", b"1", b"cd"]), 0.0)
    assert [(row["payload"], dict(row["annotations"])) for row in decoded.body.to_pylist()] == [
        (b"ab", {"first": "a"}),
        (b"cd", {"first": "c"}),
    ]
    assert decoded.rows.tolist() == [0, 3]
    assert (decoded.counts["refused.damaged"], decoded.counts["empty"], decoded.counts["accepted"]) == (1, 1, 2)
    assert open_books(decoded.counts) == []


@pytest.mark.parametrize(
    "result",
    [
        RuntimeError("a mistake"),
        body([b"only one"]),
        pa.record_batch({"payload": pa.array([b"a", b"b"])}),
        body([b"x" * 10_000] * 2),
        None,
    ],
    ids=["raises", "another number", "another schema", "too much", "nothing"],
)
def test_a_mistake_in_a_codec_loses_nothing(result: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    decoded = OwnDecoder(Failing(result)).decode_lines(pa.array([b"a", b"b"]))
    assert decoded.body["payload"].to_pylist() == [b"a", b"b"]
    assert "stored undecoded" in caplog.text


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_any_bytes_are_a_row_or_refused(datagrams: list[bytes]) -> None:
    decoded = OwnDecoder(Letters()).decode(Datagrams.from_bytes(datagrams), 0.0)
    assert open_books(decoded.counts) == []
    assert decoded.body.num_rows == decoded.counts["accepted"] == len(decoded.rows)


def test_the_configuration_knows_the_same_codecs() -> None:
    assert (tuple(CODECS), ENTRY_POINTS) == (listeners.CODECS, listeners.OWN_CODECS)
