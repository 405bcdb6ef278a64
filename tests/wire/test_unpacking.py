"""What senders compressed, within bounds."""

from __future__ import annotations

import contextlib
import gzip
import time
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.unpacking import (
    DEFLATE,
    ZLIB_OR_GZIP,
    Bomb,
    CutShort,
    NotPacked,
    all_unpacked,
    first_unpacked,
)
from tests.fuzzed import RAW

STREAMS = st.lists(RAW.map(gzip.compress) | RAW.map(zlib.compress), max_size=3).map(b"".join)


@given(RAW | STREAMS, st.sampled_from([ZLIB_OR_GZIP, DEFLATE]))
def test_any_bytes_are_unpacked_within_bounds_or_refused(data: bytes, window: int) -> None:
    with contextlib.suppress(Bomb, NotPacked):
        assert len(all_unpacked(data, 1000, window)) <= 1000


@given(st.lists(st.tuples(RAW, st.sampled_from([gzip.compress, zlib.compress])), max_size=4))
def test_streams_behind_each_other_hold_what_was_packed(parts: list[tuple[bytes, Callable[[bytes], bytes]]]) -> None:
    packed = b"".join(pack(text) for text, pack in parts)
    text = b"".join(text for text, _ in parts)
    assert all_unpacked(packed, len(text)) == text
    if text:
        with pytest.raises(Bomb):
            all_unpacked(packed, len(text) - 1)


def test_what_stands_behind_the_first_is_given_back() -> None:
    assert first_unpacked(gzip.compress(b"one") + b"more", 3) == (b"one", b"more")


def test_one_whose_end_is_missing_is_told_from_one_that_is_damaged() -> None:
    packed = gzip.compress(b"one" * 100)
    with pytest.raises(CutShort):
        all_unpacked(packed[:-1], 1000)
    with pytest.raises(NotPacked, match="incorrect data check"):
        all_unpacked(packed[:-8] + bytes(8), 1000)


def test_a_bomb_takes_no_more_memory_than_is_allowed() -> None:
    bomb = gzip.compress(b"x") + zlib.compress(bytes(64 << 20), 9)
    tracemalloc.start()
    with pytest.raises(Bomb):
        all_unpacked(bomb, 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_many_empty_streams_take_time_by_their_number_only() -> None:
    began = time.process_time()
    with pytest.raises(Bomb):
        all_unpacked(gzip.compress(b"") * 200_000, 100)
    assert all_unpacked(gzip.compress(b"a") * 50_000, 50_000) == b"a" * 50_000
    assert time.process_time() - began < 20
