"""Framing of GELF over TCP: NUL or LF by the first message, for any division into reads."""

from __future__ import annotations

import json
import zlib
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import open_books
from penstock.wire.framing.line_framing import Lines
from penstock.wire.framing.lines import separate_commands
from penstock.wire.gelf.splitter import GelfSplitter
from penstock.wire.plog.statistics import Statistics

MESSAGES = [json.dumps({"version": "1.1", "host": "h", "short_message": f"m{number}"}).encode() for number in range(3)]
PRETTY = [json.dumps({"version": "1.1", "_list": [{"a": number}]}, indent=1).encode() for number in range(3)]


def feed_all(splitter: GelfSplitter, pieces: list[bytes]) -> list[Lines]:
    return [*(splitter.feed(piece) for piece in pieces), splitter.finish()]


def lines_of(parts: list[Lines]) -> list[bytes]:
    return [bytes(line) for line in pa.concat_arrays([part.lines for part in parts]).to_pylist() if line]


def cut(stream: bytes, size: int) -> list[bytes]:
    return [stream[begin : begin + size] for begin in range(0, len(stream), size)]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("messages", [MESSAGES, PRETTY, [b"no json", *MESSAGES]], ids=["flat", "pretty", "no json"])
def test_messages_that_end_with_nul_are_separated(messages: list[bytes], size: int) -> None:
    stream = b"".join(message + b"\0" for message in messages)
    assert lines_of(feed_all(GelfSplitter(10_000), cut(stream, size))) == messages


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("first", [b"", b"no json", b'{"host": cut off', b'{"a":"' + b"x" * 200])
def test_messages_that_end_with_lf_are_separated(first: bytes, end: bytes, size: int) -> None:
    messages = [first, *MESSAGES] if first else MESSAGES
    stream = b"".join(message + end for message in messages)
    assert lines_of(feed_all(GelfSplitter(10_000), cut(stream, size))) == messages


def test_newline_before_nul_belongs_to_the_message() -> None:
    stream = b"".join(message + b"\n\0" for message in MESSAGES)
    assert lines_of(feed_all(GelfSplitter(10_000), cut(stream, 1))) == [message + b"\n" for message in MESSAGES]


def test_first_line_is_released_after_a_pause() -> None:
    splitter = GelfSplitter(10_000)
    assert lines_of([splitter.feed(MESSAGES[0] + b"\n")]) == []
    assert splitter.waits
    assert lines_of([splitter.settle()]) == [MESSAGES[0]]
    assert lines_of([splitter.feed(MESSAGES[1] + b"\n")]) == [MESSAGES[1]]


def test_pause_within_a_document_of_several_lines_decides_nothing() -> None:
    splitter = GelfSplitter(10_000)
    splitter.feed(PRETTY[0][:20])
    assert not splitter.waits
    assert lines_of([splitter.settle(), splitter.feed(PRETTY[0][20:] + b"\0")]) == [PRETTY[0]]


def test_message_without_an_end_is_complete_at_the_end_of_the_connection() -> None:
    for message in (MESSAGES[0], PRETTY[0]):
        assert lines_of(feed_all(GelfSplitter(10_000), [message])) == [message]


@pytest.mark.parametrize("end", [b"\n", b"\0"])
@pytest.mark.parametrize("message", [b'{"a":"' + b"x" * 40_000 + b'"}', b"{" + b"\n" * 40_000 + b"}"])
def test_overlong_first_message_is_dropped_and_counted(message: bytes, end: bytes) -> None:
    if end == b"\n" and b"\n" in message:
        return  # lines cannot carry it
    stream = message + end + MESSAGES[0] + end
    for size in (100, 10_000, len(stream)):
        parts = feed_all(GelfSplitter(1000), cut(stream, size))
        assert lines_of(parts) == [MESSAGES[0]]
        assert sum(part.overlong for part in parts) == 1


@pytest.mark.parametrize("level", range(1, 10))
@pytest.mark.parametrize("size", [1, 1000])
def test_compressed_connection_is_refused_at_every_level(level: int, size: int) -> None:
    stream = zlib.compress(b"\0".join(MESSAGES), level)
    parts = feed_all(GelfSplitter(10_000), cut(stream, size))
    assert lines_of(parts) == []
    assert sum(part.skipped_bytes for part in parts) == len(stream)
    counts = [separate_commands(part, Statistics(), reserves=False)[2] for part in parts]
    assert sum(count["refused.compressed"] for count in counts) == 1
    assert not any(open_books(count) for count in counts)


STREAMS = st.lists(
    st.sampled_from([*MESSAGES[:1], *PRETTY[:1], b"{", b"}", b"\n", b"\0", b"\r\n", b"x", b"x^"]), max_size=9
)


@given(STREAMS.map(b"".join), st.lists(st.integers(0, 200), max_size=6))
def test_reads_do_not_change_the_messages(stream: bytes, cuts: list[int]) -> None:
    bounds = sorted({0, len(stream), *(min(position, len(stream)) for position in cuts)})
    pieces = [stream[begin:end] for begin, end in pairwise(bounds)]
    together = lines_of(feed_all(GelfSplitter(150), [stream]))
    assert lines_of(feed_all(GelfSplitter(150), pieces)) == together


@pytest.mark.parametrize("pause", [False, True])
def test_first_line_that_is_too_long_takes_no_other_line(pause: bool) -> None:
    splitter = GelfSplitter(600)
    first = splitter.feed(b'{"short_message":"%s"}\n' % (b"x" * 700))
    settled = splitter.settle() if pause else None
    later = splitter.feed(b'{"short_message":"a"}\n{"short_message":"b"}\n')
    assert later.lines.to_pylist() == [b'{"short_message":"a"}', b'{"short_message":"b"}']
    assert first.overlong + later.overlong + (settled.overlong if settled else 0) == 1
    assert splitter.finish().skipped_bytes == 0
