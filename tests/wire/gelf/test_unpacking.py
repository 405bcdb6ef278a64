"""Decompression of GELF messages within bounds."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.gelf.unpacking import Refusal, is_compressed, unpack


@pytest.mark.parametrize("level", range(10))
def test_zlib_and_gzip_are_recognised_by_their_first_bytes(level: int) -> None:
    text = b'{"short_message":"a"}' * 50
    for packed in (zlib.compress(text, level), gzip.compress(text, level)):
        assert is_compressed(packed)
        assert unpack(packed, len(text)) == text
        assert unpack(packed, len(text) - 1) == Refusal.OVERSIZE
        assert unpack(packed[:-5], len(text)) == Refusal.DAMAGED
        assert unpack(packed + b"more", len(text)) == Refusal.DAMAGED


@pytest.mark.parametrize("text", [b"{", b"{}", b' {"a":1}', b"[1]", b"", b"x", b"<14>", b"\n\n"])
def test_json_is_not_recognised_as_compressed(text: bytes) -> None:
    assert not is_compressed(text)


def test_bomb_takes_no_more_memory_than_a_message() -> None:
    bomb = zlib.compress(bytes(64 << 20), 9)
    assert len(bomb) < 65_536
    tracemalloc.start()
    assert unpack(bomb, 1 << 20) == Refusal.OVERSIZE
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


@given(st.binary(max_size=100), st.sampled_from([b"", b"\x78\x9c", b"\x1f\x8b\x08\0\0\0\0\0\0\3"]))
def test_any_bytes_are_unpacked_or_refused(data: bytes, head: bytes) -> None:
    content = unpack(head + data, 1000)
    assert isinstance(content, Refusal) or len(content) <= 1000
