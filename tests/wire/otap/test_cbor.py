"""CBOR as JSON: examples of RFC 8949, appendix A, and bytes that are not CBOR."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.otap.cbor import MAX_DEPTH, document_of
from penstock.wire.protobuf import Malformed

LIMIT = 1000
EXAMPLES = [
    ("00", 0),
    ("17", 23),
    ("1818", 24),
    ("1903e8", 1000),
    ("1a000f4240", 1000000),
    ("1b000000e8d4a51000", 1000000000000),
    ("20", -1),
    ("3903e7", -1000),
    ("3b7fffffffffffffff", -(1 << 63)),
    ("f90000", 0.0),
    ("f93e00", 1.5),
    ("fa47c35000", 100000.0),
    ("fb3ff199999999999a", 1.1),
    ("f97c00", "inf"),
    ("f97e00", "nan"),
    ("f4", False),
    ("f5", True),
    ("f6", None),
    ("f7", None),
    ("4401020304", "AQIDBA=="),
    ("60", ""),
    ("6449455446", "IETF"),
    ("62c3bc", "ü"),
    ("80", []),
    ("8301820203820405", [1, [2, 3], [4, 5]]),
    ("a0", {}),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}),
    ("5f42010243030405ff", "AQIDBAU="),
    ("7f657374726561646d696e67ff", "streaming"),
    ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
    ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
]


@pytest.mark.parametrize(("encoded", "document"), EXAMPLES)
def test_value_is_read(encoded: str, document: Any) -> None:
    assert document_of(bytes.fromhex(encoded), LIMIT)[0] == document


@pytest.mark.parametrize(
    ("encoded", "text"),
    [("a2616101616102", '{"a":1,"a":2}'), ("bf616d81a2616101616102ff", '{"m":[{"a":1,"a":2}]}')],
)
def test_map_keeps_a_repeated_key(encoded: str, text: str) -> None:
    assert orjson.dumps(document_of(bytes.fromhex(encoded), LIMIT)[0]).decode() == text


@pytest.mark.parametrize(
    ("encoded", "error"),
    [
        ("", "cut short"),
        ("18", "cut short"),
        ("6161ff", "bytes follow"),
        ("9f", "cut short"),
        ("9bffffffffffffffff00", "cut short"),
        ("5bffffffffffffffff00", "cut short"),
        ("1bffffffffffffffff", "64 bits"),
        ("c074", "a tag"),
        ("a10102", "not a text"),
        ("61ff", "not UTF-8"),
        ("1c", "no known form"),
        ("e0", "simple value"),
        ("7f4161ff", "another type"),
        ("81" * (MAX_DEPTH + 1) + "00", "levels"),
    ],
)
def test_other_bytes_are_malformed(encoded: str, error: str) -> None:
    with pytest.raises(Malformed, match=error):
        document_of(bytes.fromhex(encoded), LIMIT)


def test_items_are_counted_and_bounded() -> None:
    lists = b"\x9f" + b"\x80" * 9 + b"\xff"
    assert document_of(lists, 10) == ([[]] * 9, 10)
    with pytest.raises(Malformed, match="too many items"):
        document_of(lists, 9)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_document_or_malformed(data: bytes) -> None:
    try:
        document, _ = document_of(data, LIMIT)
    except Malformed:
        return
    assert json.loads(json.dumps(document)) == document
