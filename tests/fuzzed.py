"""Input of property tests for parsers: random bytes, and bytes that pass the first check."""

from __future__ import annotations

import json
from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st

from penstock.files.checked_lines import encode_line

Bytes = st.SearchStrategy[bytes]
DEEP = b"[" * 20_000
"""Deeper than any parser follows."""
RAW: Bytes = st.binary(max_size=200) | st.just(DEEP)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
"""Any value, numbers that are none among them."""


def objects(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    """Generate objects that have some of these keys, with random values."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(keys, JSON))


def json_texts(*keys: str) -> Bytes:
    """Generate JSON and other texts, often an object with some of these keys."""
    return RAW | (JSON | objects(*keys)).map(lambda value: json.dumps(value).encode())


def documents(*keys: str) -> Bytes:
    """Generate files of ``files.checked_document`` and damaged ones, often with a valid checksum."""
    return RAW | json_texts(*keys).map(lambda text: b"%08x" % crc32c(text) + text)


def journals(*keys: str) -> Bytes:
    """Generate files of ``files.checked_lines`` and damaged ones."""
    line = RAW.map(lambda data: data + b"\n") | RAW | objects(*keys).map(encode_line)
    return st.lists(line, max_size=4).map(b"".join)
