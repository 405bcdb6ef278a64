"""Connections that are compressed as a whole are refused by name; lines of other connections are unchanged."""

from __future__ import annotations

import gzip
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import open_books
from penstock.wire.framing.compressed_streams import UncompressedSplitter
from penstock.wire.framing.line_framing import Lines
from penstock.wire.framing.lines import LineSplitter, separate_commands
from penstock.wire.plog.statistics import Statistics

TEXT = b"".join(b"<13>Oct 11 22:14:15 h app: line %d\n" % number for number in range(207))


def fed(splitter: LineSplitter, pieces: list[bytes]) -> list[Lines]:
    return [*(splitter.feed(piece) for piece in pieces), splitter.finish()]


def lines_of(parts: list[Lines]) -> list[bytes]:
    return [bytes(line) for line in pa.concat_arrays([part.lines for part in parts]).to_pylist()]


@pytest.mark.parametrize("level", [0, *range(1, 10)])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_compressed_connection_is_one_refused_message_and_skipped_bytes(level: int, size: int) -> None:
    stream = zlib.compress(TEXT, level) if level else gzip.compress(TEXT)
    pieces = [stream[begin : begin + size] for begin in range(0, len(stream), size)]
    parts = fed(UncompressedSplitter(10_000, "auto"), pieces)
    assert lines_of(parts) == []
    assert sum(part.skipped_bytes for part in parts) == len(stream)
    books = [separate_commands(part, Statistics(), reserves=False)[2] for part in parts]
    assert sum(counts["refused.compressed"] for counts in books) == 1
    assert not any(open_books(counts) for counts in books)


@given(st.lists(st.sampled_from([b"x", b"x^", b"\n", b"<13>a\n", b"\x1f", b"text\n", b"\0"]), max_size=8))
def test_other_connections_are_split_as_before(pieces: list[bytes]) -> None:
    expected = lines_of(fed(LineSplitter(10_000, "lf"), [b"".join(pieces)]))
    actual = lines_of(fed(UncompressedSplitter(10_000, "lf"), pieces))
    assert [line for line in actual if line] == [line for line in expected if line]


def test_text_that_begins_like_zlib_is_released_after_a_pause() -> None:
    splitter = UncompressedSplitter(10_000, "lf")
    assert lines_of([splitter.feed(b"x^2 = 4\n")]) == []
    assert splitter.waits
    assert lines_of([splitter.settle()]) == [b"x^2 = 4"]
    assert lines_of([splitter.feed(b"y\n"), splitter.finish()]) == [b"y"]
