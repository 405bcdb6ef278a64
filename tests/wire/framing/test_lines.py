"""Lines of TCP connections, by newline and by octet counting."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import open_books
from penstock.wire.framing import lines as lines_module
from penstock.wire.framing.line_framing import DelimitedStream, Lines
from penstock.wire.framing.lines import SETTLE_TIME_S, STALL_TIME_S, UNDECIDED_BYTES, LineSplitter, separate_commands
from penstock.wire.plog.commands import Command
from penstock.wire.plog.statistics import Statistics


def split(chunks: Iterable[bytes], max_line: int = 100, framing: str = "lf") -> tuple[list[bytes], int]:
    splitter = LineSplitter(max_line, framing)  # type: ignore[arg-type]
    got = [*(splitter.feed(chunk) for chunk in chunks), splitter.finish()]
    assert all(each.lines.type == pa.binary() for each in got)
    return [line for each in got for line in each.lines.to_pylist()], sum(each.overlong for each in got)


def measured(chunks: Iterable[bytes], max_line: int, framing: str) -> tuple[list[bytes], int, int]:
    splitter = LineSplitter(max_line, framing)  # type: ignore[arg-type]
    got = [*(splitter.feed(chunk) for chunk in chunks), splitter.finish()]
    lines = [line for each in got for line in each.lines.to_pylist()]
    return lines, sum(each.overlong for each in got), sum(each.skipped_bytes for each in got)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks = []
    for size in sizes:
        chunks.append(data[:size])
        data = data[size:]
    return [*chunks, data]


def test_lines_end_with_newlines_and_the_last_one_needs_none() -> None:
    assert split([b"one\r\ntwo\n\n\r\nth", b"ree\r", b"\nlast"]) == ([b"one", b"two", b"", b"", b"three", b"last"], 0)


def test_a_line_may_have_max_line_bytes_without_its_end() -> None:
    sent = b"x" * 4 + b"\n" + b"y" * 4 + b"\r\n" + b"z" * 5 + b"\r\n" + b"\rab\r\n"
    for chunks in ([sent], [bytes([byte]) for byte in sent]):
        assert split(chunks, 4) == ([b"xxxx", b"yyyy", b"\rab"], 1)


def test_an_overlong_line_is_dropped_once_and_the_connection_goes_on() -> None:
    assert split([b"x" * 50, b"x" * 60, b"x" * 500, b"\nafter\n"]) == ([b"after"], 1)
    assert split([b"x" * 101]) == ([], 1)
    assert split([b"x" * 100]) == ([b"x" * 100], 0)


def test_an_overlong_line_is_not_held() -> None:
    splitter = LineSplitter(1000)
    for _ in range(1000):
        splitter.feed(b"x" * 900)
        assert splitter.unfinished <= 1001
    assert splitter.unfinished == 0


def test_a_line_in_many_small_pieces_is_not_read_again_and_again() -> None:
    splitter = LineSplitter(1 << 20)
    begin = time.process_time()
    for _ in range(1 << 16):
        splitter.feed(b"0123456789abcdef"[:15])
    assert time.process_time() - begin < 5
    assert splitter.feed(b"\n").lines[0].as_py() == b"0123456789abcde" * (1 << 16)


def test_small_piece_of_a_long_line_copies_no_pending_bytes() -> None:
    stream = DelimitedStream(4 << 20, b"\n")
    stream.feed(b"x" * (1 << 20))
    peaks = []
    tracemalloc.start()
    # The pending bytes move to larger memory once in many pieces.
    for _ in range(8):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        stream.feed(b"0123456789")
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    assert min(peaks) < 1 << 16


def test_messages_may_say_their_length() -> None:
    assert split([b"5 hello3 a\nb0 x"], framing="octet") == ([b"hello", b"a\nb", b"0 x"], 0)
    assert split([b"5 he", b"ll", b"o1", b"1 hello ", b"world<1>x\n"], framing="octet") == (
        [b"hello", b"hello world", b"<1>x"],
        0,
    )


@pytest.mark.parametrize("chunks", [[b"5 hello\n3 abc\n<1>x\n"], [b"5 hello", b"\n3 abc", b"\n", b"<1>x\n"]])
def test_a_newline_behind_a_message_that_said_its_length_is_no_message(chunks: list[bytes]) -> None:
    assert split(chunks, framing="octet") == ([b"hello", b"abc", b"<1>x"], 0)


def test_each_line_tells_its_framing_by_its_first_character() -> None:
    sent = b"<13>a\n4 <1>b<13>c\r\n12345678901 no count\n2026-01-01 neither\n3 xyz\n<13>d"
    assert split([sent], framing="octet") == (
        [b"<13>a", b"<1>b", b"<13>c", b"12345678901 no count", b"2026-01-01 neither", b"xyz", b"<13>d"],
        0,
    )


def test_newline_framing_knows_no_counts() -> None:
    assert split([b"5 hello\n"]) == ([b"5 hello"], 0)


def test_a_length_over_the_limit_is_text_up_to_the_next_end() -> None:
    splitter = LineSplitter(10, "octet")
    lines = splitter.feed(b"9999999999 " + b"x" * 30)
    assert (lines.overlong, splitter.unfinished) == (1, 0)
    lines = splitter.feed(b"x" * 10_000 + b"\n2 ab")
    assert (lines.lines.to_pylist(), lines.overlong) == ([b"ab"], 0)
    assert split([b"11 hello ", b"wor", b"ld\n2 ab"], 10, "octet") == ([b"ab"], 1)


@pytest.mark.parametrize("framing", ["lf", "nul", "octet", "auto"])
def test_the_bytes_of_overlong_lines_are_counted(framing: str) -> None:
    end = b"\0" if framing == "nul" else b"\n"
    sent = b"<1>" + b"x" * 500 + end + b"y" * 101 + end + b"<1>z" + end
    for size in (1, 7, 1000):
        splitter = LineSplitter(100, framing)  # type: ignore[arg-type]
        lines = [splitter.feed(sent[begin : begin + size]) for begin in range(0, len(sent), size)] + [splitter.finish()]
        assert [line for each in lines for line in each.lines.to_pylist()] == [b"<1>z"]
        assert (sum(each.overlong for each in lines), sum(each.skipped_bytes for each in lines)) == (2, 604)


def test_a_wrong_length_costs_a_message_and_not_the_connection() -> None:
    frames = b"".join(b"%d <13>message %d" % (len(str(i)) + 12, i) for i in range(3))
    expected = [b"<13>message 0", b"<13>message 1", b"<13>message 2"]
    for garbage in (b"", b"garbage", b"garbage\n", b"0 ", b"\0\r\n\n", b"99999999999999 <1>x"):
        text = [garbage.strip(b"\n0 ")] if garbage.strip(b"\r\n\0") else []
        assert split([frames, garbage, frames], framing="octet") == (expected + text + expected, 0)
        assert split([frames + garbage + frames], framing="auto") == (expected + text + expected, 0)


def test_a_counted_message_over_the_limit_costs_itself_alone() -> None:
    message = b"<13>" + b"x" * 200 + b" port 22"
    sent = b"6 <13>ab6 <13>cd%d %b35 <13>%b6 <13>ef" % (len(message), message, b"y" * 31)
    expected = [b"<13>ab", b"<13>cd", b"<13>" + b"y" * 31, b"<13>ef"]
    for framing in ("octet", "auto"):
        for size in (1, 10, 1000):
            chunks = [sent[begin : begin + size] for begin in range(0, len(sent), size)]
            assert split(chunks, 100, framing) == (expected, 1)


@pytest.mark.parametrize("framing", ["octet", "auto"])
@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 9, 1000])
def test_an_overlong_counted_message_is_skipped_to_its_end(framing: str, before: int, size: int) -> None:
    """The text of the message has lines, and looks like counted messages of others."""
    long = b"<13>" + b"x\n9 <1>forged" * 20
    messages = [*[b"<13>a\nb"] * before, long, b"<13>c", b"<13>d"]
    stream = b"".join(b"%d %b" % (len(message), message) for message in messages)
    lines, overlong, skipped = measured(cut(stream, [size] * (len(stream) // size)), 50, framing)
    assert (lines, overlong, skipped) == ([message for message in messages if message != long], 1, len(long))


@pytest.mark.parametrize("line", [b"<13>other %d\n", b"other %d\n", b" <13>other %d\n", b"<13>other %d\0"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_overlong_count_of_a_first_line_hides_no_lines_behind_it(line: bytes, size: int) -> None:
    """An application that can write the first line writes a length that is a multiple of ``max_line``."""
    stream, end = b"".join(line % number for number in range(100)), line[-1:]
    others = stream.split(end)[:-1]
    first = b"1500 <13>hello"
    assert measured(cut(first + end + stream, [size] * 3000), 100, "auto") == ([first, *others], 0, 0)
    long = first + b"x" * 300
    lines, overlong, skipped = measured(cut(long + end + stream, [size] * 3000), 100, "auto")
    assert (lines, overlong, skipped) == (others, 1, len(long))


@pytest.mark.parametrize("length", [200, 1500, 40_000, 400_000])
@pytest.mark.parametrize("size", [7, 10_000])
def test_an_overlong_first_message_without_a_line_end_is_skipped_to_its_end(length: int, size: int) -> None:
    messages = [b"<13>" + b"x" * (length - 4), b"<13>a\nb", b"<13>c"]
    stream = b"".join(b"%d %b" % (len(message), message) for message in messages)
    lines, overlong, skipped = measured(cut(stream, [size] * (len(stream) // size)), length // 10, "auto")
    assert (lines, overlong, skipped >= length) == (messages[1:], 1, True)


def test_an_overlong_count_hides_no_lines_of_a_connection_that_has_others() -> None:
    """An application that can write a line writes a length that is a multiple of ``max_line``."""
    for framing, text in (("auto", b"<13>a\n<13>b\n"), ("octet", b"5 <13>atext\n"), ("auto", b"5 <13>a5 <13>btext\n")):
        lines, overlong, _ = measured([text, b"500 <13>hello\n", b"<13>c\n<13>d\n"], 100, framing)
        assert (lines[-3:], overlong) == ([b"500 <13>hello", b"<13>c", b"<13>d"], 0)
    lines, overlong, _ = measured([b"5 <13>a5 <13>b", b"9999999 <13>hello\n", b"<13>c\n<13>d\n"], 100, "auto")
    assert (lines[-3:], overlong) == ([b"9999999 <13>hello", b"<13>c", b"<13>d"], 0)


def test_a_length_may_arrive_in_pieces_longer_than_a_line() -> None:
    assert split([b"12", b"3 \na"], 1, "octet") == split([b"123 \na"], 1, "octet") == ([b"a"], 1)


def test_a_message_cut_short_by_the_end_counts_as_far_as_it_came() -> None:
    assert split([b"10 hello"], framing="octet") == ([b"hello"], 0)
    assert split([b"10"], framing="octet") == ([b"10"], 0)


TEXT = st.lists(
    st.sampled_from(
        [b"a", b"\r", b"\n", b"\n", b"12", b"3 ", b" ", b"\0", b"<1>", b"<13>", b"6 <1>aaa", b"<1>aa\n", b"0 "]
    )
    | st.integers(14, 18).map(lambda count: b"0 " * count),
    max_size=60,
).map(b"".join)
WINDOWS = (4, UNDECIDED_BYTES)


@pytest.mark.parametrize("framing", ["lf", "nul", "octet", "auto"])
@given(
    data=TEXT,
    sizes=st.lists(st.integers(0, 9), max_size=30),
    max_line=st.integers(1, 40),
    window=st.sampled_from(WINDOWS),
)
def test_lines_do_not_depend_on_the_sizes_of_reads(
    framing: str, data: bytes, sizes: list[int], max_line: int, window: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "UNDECIDED_BYTES", window)
        assert measured(cut(data, sizes), max_line, framing) == measured([data], max_line, framing)


LINE = st.one_of(
    st.builds(
        lambda count, text: b"%d %b" % (count, text), st.integers(0, 10**11), st.sampled_from([b"", b"<13>x", b"y"])
    ),
    st.sampled_from([b"<13>Oct 11 22:14:15 h a: x", b"text", b"5 <1>aa", b"5 <1>aaa"]),
)


@given(st.lists(LINE, max_size=20), st.lists(st.integers(0, 40), max_size=20), st.booleans())
def test_lines_that_begin_with_digits_come_out_line_by_line(
    lines: list[bytes], sizes: list[int], settles: bool
) -> None:
    lines = [b"<13>Oct 11 22:14:15 h app: start", *lines]
    splitter, texts = LineSplitter(1000, "auto"), list[bytes]()
    for chunk in cut(b"".join(line + b"\n" for line in lines), sizes):
        texts += splitter.feed(chunk).lines.to_pylist()
        texts += splitter.settle().lines.to_pylist() if settles else []
    assert texts + splitter.finish().lines.to_pylist() == lines


OTHERS = [b"<%d>Oct 11 22:14:15 h app%d: of another sender, who has %d lines" % (i, i, i) for i in range(10, 40)]
HOSTILE_LINES = st.one_of(
    LINE,
    st.builds(lambda count, pri: b"%d <%d>x" % (count, pri), st.integers(1, 2000), st.integers(0, 200)),
    st.sampled_from([b"x\0<13>y", b"\0", b"\0\0STAT", b"<", b"<13>", b"", b"\r", b"9999999999 <13>y", b"1000 <13>x"]),
)


@given(
    # Two counted messages, exactly one behind the other, are believed; one line is not, whatever it is.
    st.one_of(
        st.lists(st.tuples(st.integers(1, len(OTHERS)), HOSTILE_LINES), max_size=12),
        st.lists(st.tuples(st.just(0), HOSTILE_LINES), max_size=1),
    ),
    st.lists(st.integers(0, 300), max_size=20),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
)
def test_no_line_of_another_sender_is_lost_or_merged(
    written: list[tuple[int, bytes]], sizes: list[int], end: bytes, settles: bool
) -> None:
    lines = list(OTHERS)
    for index, line in sorted(written, reverse=True):
        lines.insert(index, line)
    splitter, texts = LineSplitter(2000, "auto"), list[bytes]()
    for chunk in cut(b"".join(line + end for line in lines), sizes):
        texts += splitter.feed(chunk).lines.to_pylist()
        texts += splitter.settle().lines.to_pylist() if settles else []
    texts += splitter.finish().lines.to_pylist()
    assert [text for text in texts if text in OTHERS] == OTHERS


def test_a_number_in_front_of_a_line_withholds_nothing() -> None:
    splitter = LineSplitter(1 << 20, "auto")
    splitter.feed(b"<13>Oct 11 22:14:15 h app: start\n")
    assert splitter.settle().lines.to_pylist() == [b"<13>Oct 11 22:14:15 h app: start"]
    for line in (b"5000 requests served", b"<11>Oct 11 22:14:16 h app: alarm", b"9999999999 y", b"5000 <13>x", b"12"):
        assert splitter.feed(line + b"\n").lines.to_pylist() == [line]


def test_one_counted_line_does_not_make_a_counted_connection() -> None:
    splitter = LineSplitter(1 << 20, "auto")
    splitter.feed(b"11 <13>abcdefg\n")
    assert (splitter.waits, splitter.patience_s) == (True, SETTLE_TIME_S)
    assert splitter.settle().lines.to_pylist() == [b"<13>abcdefg"]
    assert splitter.feed(b"of another\n5000 <13>x\nof a third\n").lines.to_pylist() == [
        *(b"of another", b"5000 <13>x", b"of a third")
    ]


def test_counted_messages_with_pauses_make_a_counted_connection() -> None:
    splitter = LineSplitter(1 << 20, "auto")
    assert len(splitter.feed(b"11 <13>abcdefg").lines) == 0
    assert splitter.settle().lines.to_pylist() == [b"<13>abcdefg"]
    assert len(splitter.feed(b"\r\n").lines) == len(splitter.settle().lines) == 0
    assert splitter.feed(b"11 <13>abc\ndef\r\n").lines.to_pylist() == [b"<13>abc\ndef"]
    assert len(splitter.feed(b"1").lines) == 0
    assert splitter.feed(b"8 <13>x\n<13>y\n<13>z\n").lines.to_pylist() == [b"<13>x\n<13>y\n<13>z\n"]


def test_a_first_length_that_nothing_confirms_holds_lines_back_for_a_short_time_only() -> None:
    splitter = LineSplitter(1 << 20, "auto")
    assert len(splitter.feed(b"9000 <13>x\nof another\n").lines) == 0
    assert (splitter.waits, splitter.patience_s) == (True, STALL_TIME_S)
    assert splitter.settle().lines.to_pylist() == [b"9000 <13>x", b"of another"]
    assert splitter.feed(b"of a third\n").lines.to_pylist() == [b"of a third"]


def test_a_nul_in_a_first_line_does_not_merge_the_lines_of_others() -> None:
    splitter = LineSplitter(1 << 20, "auto")
    assert splitter.feed(b"<13>x\0<13>y\n<13>a\n<13>b\n").lines.to_pylist() == [b"<13>x", b"<13>y", b"<13>a"]
    assert splitter.settle().lines.to_pylist() == [b"<13>b"]


@given(TEXT, st.integers(1, 12))
def test_every_line_is_there_or_counted(data: bytes, max_line: int) -> None:
    together = [line.removesuffix(b"\r") for line in data.split(b"\n")[:-1]] + data.split(b"\n")[-1:]
    fitting = [line for line in together[:-1] if len(line) <= max_line]
    last = [line for line in together[-1:] if 0 < len(line) <= max_line]
    assert split([data], max_line) == (fitting + last, sum(len(line) > max_line for line in together))


@given(st.lists(st.binary(max_size=30), max_size=10), st.lists(st.integers(0, 20), max_size=20))
def test_counted_messages_may_hold_anything(messages: list[bytes], sizes: list[int]) -> None:
    messages = [message for message in messages if message and message[0] != 10]
    data = b"".join(b"%d %b" % (len(message), message) for message in messages)
    assert split(cut(data, sizes), framing="octet") == (messages, 0)


def test_lines_have_a_book_of_their_own() -> None:
    lines = pa.array([b"one", b"\0\0stat please", b"\0reserved", b"\0\0nope", b"", b"\x01two"])
    statistics = Statistics()
    messages, commands, counts = separate_commands(Lines(lines, 2), statistics, keeps_empty=True)
    assert (statistics.v0_commands, statistics.unknown_command, statistics.v0_invalid_type) == (1, 1, 1)
    assert messages.to_pylist() == [b"one", b"", b"\x01two"]
    assert commands == [Command(1, "STAT", b" please")]
    expected = {"lines": 8, "line.message": 3, "line.command": 3, "line.overlong": 2, "seen": 3, "accepted": 3}
    assert counts.pruned() == expected
    assert open_books(counts) == []


def test_an_empty_line_is_no_message_but_for_plog() -> None:
    lines = Lines(pa.array([b"", b"one", b"", b"\0\0STAT", b""]), overlong=1, skipped_bytes=70)
    messages, commands, counts = separate_commands(lines, Statistics())
    assert (messages.to_pylist(), commands) == ([b"one"], [Command(1, "STAT", b"")])
    assert counts.pruned() == {
        "lines": 6,
        "line.message": 1,
        "line.command": 1,
        "line.empty": 3,
        "line.overlong": 1,
        "seen": 1,
        "accepted": 1,
        "skipped_bytes": 70,
    }
    assert open_books(counts) == []


def test_no_lines_have_no_counts() -> None:
    messages, commands, counts = separate_commands(Lines(pa.array([], pa.binary())), Statistics())
    assert (len(messages), commands, counts.pruned()) == (0, [], {})


RECORDS = [b"<14>one", b"<14>Traceback (most recent call last):\n  File x\nValueError: two", b"<14>three"]


@pytest.mark.parametrize("sizes", [[], [7], [8], [9], [47], [48], [1] * 200])
def test_nul_is_recognised_as_what_ends_the_messages_of_a_connection(sizes: list[int]) -> None:
    data = b"".join(record + b"\0" for record in RECORDS)
    assert split(cut(data, sizes), framing="auto") == (RECORDS, 0)


def test_a_traceback_first_does_not_make_newlines_the_end() -> None:
    records = [RECORDS[1], RECORDS[0]]
    assert split([b"".join(record + b"\0" for record in records)], framing="auto") == (records, 0)
    assert split([RECORDS[1][:39], RECORDS[1][39:] + b"\0"], framing="auto") == ([RECORDS[1]], 0)


def test_a_nul_inside_a_line_does_not_end_it() -> None:
    assert split([b"<14>a\0b\n<14>c\n"], framing="auto") == ([b"<14>a\0b", b"<14>c"], 0)


def test_the_first_messages_fix_the_framing_of_a_connection() -> None:
    for sent, lines in (
        (b"no priority\nnone here\n", [b"no priority", b"none here"]),
        (b"5 <1>aa6 <1>bbb", [b"<1>aa", b"<1>bbb"]),
        (b"<1>a\n5 <1>bb<1>c\n", [b"<1>a", b"5 <1>bb<1>c"]),
        (b"5 <1>aa\r\n6 <1>bbb\r\n", [b"<1>aa", b"<1>bbb"]),
        (b"\n\r\n5 <1>aa6 <1>bbb", [b"", b"", b"<1>aa", b"<1>bbb"]),
        (b"\n<1>a\n5 <1>bb\n", [b"", b"<1>a", b"5 <1>bb"]),
        (b"5 <1>aa\0006 <1>bbb\0", [b"<1>aa", b"<1>bbb"]),
        (b"5 <1>aa\n<1>b\n5 <1>cc\n", [b"5 <1>aa", b"<1>b", b"5 <1>cc"]),
        (b"5 <1>aaaaa\n<1>b\n", [b"5 <1>aaaaa", b"<1>b"]),
        (b"2 <1>a\n101 <1>b\n05 <1>cc\n5  <1>d\n", [b"2 <1>a", b"101 <1>b", b"05 <1>cc", b"5  <1>d"]),
        (b"5 <1>aa6 <1>bbb404 not found\n5 <1>cc", [b"<1>aa", b"<1>bbb", b"404 not found", b"<1>cc"]),
        (b"<1>a\n", [b"<1>a"]),
    ):
        assert split([sent], framing="auto") == (lines, 0)


def test_silence_ends_what_may_be_whole() -> None:
    for sent, framing in ((b"<1>a\n", "lf"), (b"<1>a\0", "nul")):
        splitter = LineSplitter(100, "auto")
        assert len(splitter.feed(sent).lines) == 0
        assert splitter.waits
        assert splitter.settle().lines.to_pylist() == [b"<1>a"], framing
        assert not splitter.waits
        assert splitter.feed(sent + sent).lines.to_pylist() == [b"<1>a", b"<1>a"]


def test_framing_is_decided_after_a_limited_number_of_bytes() -> None:
    splitter = LineSplitter(1 << 20, "auto")
    line = b"<1>" + b"\n" * 20_000
    assert len(splitter.feed(line).lines) == 0
    assert len(splitter.feed(b"\n" * 20_000).lines) == 40_000


def test_an_overlong_first_message_is_dropped_alone() -> None:
    message = b"<1>" + b"x" * 50_000
    for end in (b"\0", b"\n"):
        sent = message + end + b"<1>a" + end + b"<1>b" + end
        assert split([sent], 1000, "auto") == split(cut(sent, [7000] * 8), 1000, "auto") == ([b"<1>a", b"<1>b"], 1)


def test_a_first_message_in_pieces_waits_for_its_end_and_not_for_a_time() -> None:
    splitter = LineSplitter(100, "auto")
    splitter.feed(b"<1>a\nbc")
    assert splitter.patience_s == STALL_TIME_S
    assert splitter.feed(b"d\0<1>e\0").lines.to_pylist() == [b"<1>a\nbcd", b"<1>e"]


def test_a_setting_says_what_ends_messages() -> None:
    assert split([b"<1>a\nb\0002 cd\0"], framing="nul") == ([b"<1>a\nb", b"2 cd"], 0)
    assert split([b"<1>a\0<1>b\n"], framing="lf") == ([b"<1>a\0<1>b"], 0)
    assert split([b"x" * 50, b"x" * 60, b"\0after\r\0"], framing="nul") == ([b"after\r"], 1)


PROXY_V1 = b"PROXY TCP6 ::1 2001:db8::2 20000 4514"
PROXY_V2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(10) + b"\r\n"


@pytest.mark.parametrize("framing", ["auto", "octet"])
@pytest.mark.parametrize(
    ("beginning", "header"),
    [(PROXY_V1 + b"\r\n", [PROXY_V1]), (PROXY_V2, [PROXY_V2[:-2]]), (b"\xef\xbb\xbf", [])],
)
@given(st.lists(st.integers(1, 9), max_size=20))
def test_counts_are_read_behind_the_header_of_a_proxy_and_a_byte_order_mark(
    framing: str, beginning: bytes, header: list[bytes], sizes: list[int]
) -> None:
    messages = [b"<13>a 12 <14>b", b"<13>c\nd", b"<13>e"]
    stream = beginning + b"".join(b"%d %b" % (len(message), message) for message in messages)
    assert split(cut(stream, sizes), framing=framing) == ([*header, *messages], 0)


@pytest.mark.parametrize("framing", ["lf", "nul"])
@pytest.mark.parametrize(("beginning", "header"), [(PROXY_V1 + b"\r\n", PROXY_V1), (PROXY_V2, PROXY_V2[:-2])])
@given(st.lists(st.integers(1, 9), max_size=20))
def test_lines_are_read_behind_the_header_of_a_proxy(
    framing: str, beginning: bytes, header: bytes, sizes: list[int]
) -> None:
    end = b"\n" if framing == "lf" else b"\0"
    stream = beginning + b"<13>a" + end + b"b" + end + b"\xef\xbb\xbfc" + end
    assert split(cut(stream, sizes), framing=framing) == ([header, b"<13>a", b"b", b"\xef\xbb\xbfc"], 0)


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(0, 3), st.integers(0, 15))
def test_counts_of_zero_are_empty_lines(sizes: list[int], first: int, between: int) -> None:
    stream = b"0 " * first + b"5 <13>a" + b"0 " * between + b"8 <13>b\n\n0" + b"5 <13>c"
    lines, overlong = split(cut(stream, sizes), framing="auto")
    assert ([line for line in lines if line], overlong) == ([b"<13>a", b"<13>b\n\n0", b"<13>c"], 0)


@pytest.mark.parametrize("framing", ["octet", "auto"])
@given(st.integers(0, 60), st.lists(st.integers(1, 60), max_size=20))
def test_any_number_of_zeros_between_counted_messages_are_empty_lines(
    framing: str, zeros: int, sizes: list[int]
) -> None:
    stream = b"5 <13>a5 <13>b" + b"0 " * zeros + b"8 <13>b\n\n0"
    lines = [b"<13>a", b"<13>b", *[b""] * zeros, b"<13>b\n\n0"]
    assert split(cut(stream, sizes), framing=framing) == (lines, 0)


@pytest.mark.parametrize("zeros", [1, 15, 16, 17, 40, 400])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_zeros_behind_the_first_counted_message_do_not_decide_the_framing(zeros: int, size: int) -> None:
    stream = b"5 <13>a" + b"0 " * zeros + b"5 <13>b5 <13>c"
    splitter = LineSplitter(1000, "auto")
    lines = [
        line for at in range(0, len(stream), size) for line in splitter.feed(stream[at : at + size]).lines.to_pylist()
    ]
    lines += splitter.finish().lines.to_pylist()
    assert [line for line in lines if line] == [b"<13>a", b"<13>b", b"<13>c"]


@pytest.mark.parametrize(("begin", "filler"), [(b"5 <13>a", b"0 "), (b"", b"\0")])
def test_endless_zeros_are_not_searched_again_with_each_chunk(begin: bytes, filler: bytes) -> None:
    splitter = LineSplitter(1 << 20, "auto")
    splitter.feed(begin)
    for _ in range(200):
        splitter.feed(filler * 1000)
    assert not splitter.is_undecided


def test_zeros_of_text_behind_a_number_stay_text() -> None:
    line = b"5 <13>a" + b"0 " * 20 + b"errors"
    splitter = LineSplitter(1000, "auto")
    lines = splitter.feed(line + b"\n<13>b\n").lines.to_pylist() + splitter.finish().lines.to_pylist()
    assert lines == [line, b"<13>b"]


@given(st.integers(1, 60), st.lists(st.integers(1, 60), max_size=20))
def test_zeros_before_text_are_text_or_empty_lines(zeros: int, sizes: list[int]) -> None:
    stream = b"7 <13>abc" + b"0 " * zeros + b"errors\n7 <13>def"
    lines, overlong = split(cut(stream, sizes), framing="octet")
    empty = max(zeros - 15, 0)
    text = b"0 " * (zeros - empty) + b"errors"
    assert (lines, overlong) == ([b"<13>abc", *[b""] * empty, text, b"<13>def"], 0)


@given(st.lists(st.integers(1, 9), max_size=20), st.lists(st.sampled_from([b"\0", b"\n", b"\r\n"]), max_size=6))
def test_ends_of_both_kinds_before_the_first_count_are_empty_lines(sizes: list[int], ends: list[bytes]) -> None:
    stream = b"".join(ends) + b"5 <13>a7 <13>b\nc"
    assert split(cut(stream, sizes), framing="auto") == ([*[b""] * len(ends), b"<13>a", b"<13>b\nc"], 0)


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(1, 20))
def test_nuls_before_the_first_count_are_empty_lines(sizes: list[int], nuls: int) -> None:
    stream = b"\0" * nuls + b"5 <13>a7 <13>b\nc"
    assert split(cut(stream, sizes), framing="auto") == ([*[b""] * nuls, b"<13>a", b"<13>b\nc"], 0)


@pytest.mark.parametrize("text", [b"PROXY TCP4 is up", b"PROX", b"\r\n\r\n\0\r\nQUI", b"\xef\xbb", b"PROXY " * 20])
def test_text_that_begins_as_the_header_of_a_proxy_is_kept(text: bytes) -> None:
    lines, overlong = split(cut(text, [1] * len(text)), 200, "auto")
    assert b"".join(lines) == text.replace(b"\r\n", b"")
    assert not overlong


@pytest.mark.parametrize("text", [b"PROXY abc\0more\0", b"PROXY UNKNOWN abc\0more\r\n\0"])
def test_nul_ends_a_first_message_that_begins_as_the_header_of_a_proxy(text: bytes) -> None:
    lines = text.split(b"\0")[:2]
    assert LineSplitter(100, "nul").feed(text).lines.to_pylist() == lines
    for size in range(len(text)):
        assert split([text[:size], text[size:]], framing="nul") == (lines, 0)


def test_a_header_of_a_proxy_over_the_limit_is_dropped_and_counted() -> None:
    assert measured([PROXY_V1 + b"\r\n5 <13>a5 <13>b"], 20, "auto") == ([b"<13>a", b"<13>b"], 1, len(PROXY_V1))
