"""Decompression within bounds."""

from __future__ import annotations

import contextlib
import gzip
import time
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Literal

import crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.unpacking import (
    DEFLATE,
    PART_BYTES,
    SNAPPY_MAGIC,
    ZLIB_OR_GZIP,
    Bomb,
    CutShort,
    Inflater,
    NotPacked,
    all_unpacked,
    arrow_parts,
    first_unpacked,
    framed_snappy_parts,
    snappy_block,
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


@given(RAW, st.integers(1, 9))
def test_inflater_decompresses_a_stream_that_comes_in_pieces(text: bytes, step: int) -> None:
    packed, inflater = gzip.compress(text) + gzip.compress(text), Inflater(2 * len(text))
    parts = [part for begin in range(0, len(packed), step) for part in inflater.feed(packed[begin : begin + step])]
    inflater.finish()
    assert b"".join(parts) == 2 * text


def test_inflater_reads_output_that_is_buffered_at_the_end() -> None:
    for size in range(3 * PART_BYTES - 20, 3 * PART_BYTES + 20):
        assert all_unpacked(gzip.compress(bytes(size), 9), size) == bytes(size)


def test_inflater_reports_a_missing_end_after_the_last_piece() -> None:
    inflater = Inflater(1000)
    assert b"".join(inflater.feed(gzip.compress(b"text")[:-1])) == b"text"
    with pytest.raises(CutShort):
        inflater.finish()


def test_bytes_behind_the_first_stream_are_returned() -> None:
    assert first_unpacked(gzip.compress(b"one") + b"more", 3) == (b"one", b"more")


def test_truncated_stream_is_distinguished_from_a_damaged_one() -> None:
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


def framed_snappy(*chunks: bytes) -> bytes:
    """``chunks`` compressed, and one behind each that readers skip."""
    framed = SNAPPY_MAGIC
    for chunk in chunks:
        crc = crc32c.crc32c(chunk)
        packed = ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")
        packed += pa.compress(chunk, codec="snappy", asbytes=True)
        framed += b"\0" + len(packed).to_bytes(3, "little") + packed + b"\xfe\x01\0\0x"
    return framed


@given(st.lists(RAW, max_size=4))
def test_frames_and_chunks_hold_what_was_packed(texts: list[bytes]) -> None:
    content = b"".join(texts)
    zstd, lz4 = (b"".join(pa.compress(text, codec=c, asbytes=True) for text in texts) for c in ("zstd", "lz4"))
    for data, unpack in (
        (zstd, lambda most: arrow_parts(zstd, most, "zstd")),
        (lz4, lambda most: arrow_parts(lz4, most, "lz4")),
        (framed_snappy(*texts), lambda most: framed_snappy_parts(framed_snappy(*texts), most)),
    ):
        assert b"".join(unpack(len(content))) == content
        if content:
            assert data
            with pytest.raises(Bomb):
                list(unpack(len(content) - 1))


@given(RAW | RAW.map(framed_snappy) | RAW.map(lambda text: SNAPPY_MAGIC + text), st.integers(0, 60))
def test_any_bytes_are_unpacked_within_bounds_or_refused_by_all_formats(data: bytes, most: int) -> None:
    for unpack in (
        lambda: b"".join(arrow_parts(data, most, "zstd")),
        lambda: b"".join(arrow_parts(data, most, "lz4")),
        lambda: b"".join(framed_snappy_parts(data, most)),
        lambda: snappy_block(data, most),
    ):
        with contextlib.suppress(Bomb, NotPacked):
            assert len(unpack()) <= most


def test_damaged_chunks_of_snappy_are_told() -> None:
    packed = framed_snappy(b"text " * 100)
    with pytest.raises(CutShort):
        list(framed_snappy_parts(packed[:40], 1000))
    with pytest.raises(NotPacked, match="incorrect data check"):
        list(framed_snappy_parts(packed[:14] + b"\0" + packed[15:], 1000))
    with pytest.raises(Bomb):
        list(framed_snappy_parts(SNAPPY_MAGIC + b"\xfe\0\0\0" * 200_000, 1000))


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_bomb_of_frames_takes_no_more_memory_than_is_allowed(compression: Literal["zstd", "lz4"]) -> None:
    bomb = pa.compress(bytes(256 << 20), codec=compression, asbytes=True)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    with pytest.raises(Bomb):
        list(arrow_parts(bomb, 1 << 20, compression))
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
    assert pa.total_allocated_bytes() <= before
