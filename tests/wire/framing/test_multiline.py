"""Lines of one connection that are one message."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.framing.line_framing import Lines
from penstock.wire.framing.multiline import INDENTED, LineJoiner

TRACE = [b"<14>first", b"\tat one", b" at two", b"<14>second", b"<14>third", b"  at three"]


def joined(rounds: list[list[bytes]], begins: str = INDENTED, max_lines: int = 500, size: int = 1000) -> list[bytes]:
    joiner = LineJoiner(begins, max_lines, size)
    got = [joiner.feed(Lines(pa.array(lines, pa.binary()))) for lines in rounds]
    got.append(joiner.flush())
    messages = [message for each in got for message in each.lines.to_pylist()]
    assert sum(each.joined for each in got) == sum(map(len, rounds)) - len(messages)
    assert (joiner.held_lines, joiner.held_bytes) == (0, 0)
    return messages


def test_indented_lines_belong_to_the_message_before_them() -> None:
    expected = [b"<14>first\n\tat one\n at two", b"<14>second", b"<14>third\n  at three"]
    assert joined([TRACE]) == joined([[line] for line in TRACE]) == expected


def test_a_pattern_says_what_begins_a_message() -> None:
    sent = [b"<1>a", b"b", b"", b"<2>c", b"d"]
    assert joined([sent], r"\A<[0-9]+>") == [b"<1>a\nb\n", b"<2>c\nd"]


def test_the_first_line_begins_a_message_whatever_it_is() -> None:
    assert joined([[b" a", b" b"], [b"c"]]) == [b" a\n b", b"c"]


def test_the_last_message_is_held_until_another_one_begins() -> None:
    joiner = LineJoiner(INDENTED, 500, 1000)
    assert joiner.feed(Lines(pa.array(TRACE, pa.binary()))).lines.to_pylist()[-1] == b"<14>second"
    assert (joiner.held_lines, joiner.held_bytes) == (2, len(b"<14>third\n  at three\n"))
    assert joiner.feed(Lines(pa.array([], pa.binary()), overlong=3)).overlong == 3
    assert joiner.feed(Lines(pa.array([b"x"]), overlong=1)).overlong == 1
    assert joiner.flush().lines.to_pylist() == [b"x"]


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_a_message_has_limits(pieces: int) -> None:
    lines = [b"a", b" b", b" c", b" d", b" e"]
    rounds = [lines[begin : begin + pieces] for begin in range(0, 5, pieces)]
    assert joined(rounds, max_lines=2) == [b"a\n b", b" c\n d", b" e"]
    assert joined(rounds, size=7) == [b"a\n b\n c", b" d\n e"]
    assert joined(rounds, size=1) == lines


@given(
    st.lists(st.lists(st.sampled_from([b"a", b" b", b"", b"\tlonger", b"c" * 9]), max_size=8), max_size=6),
    st.integers(2, 5),
    st.integers(9, 30),
)
def test_nothing_is_lost_and_how_lines_arrive_makes_no_difference(
    rounds: list[list[bytes]], max_lines: int, size: int
) -> None:
    lines = [line for each in rounds for line in each]
    messages = joined(rounds, max_lines=max_lines, size=size)
    assert messages == joined([lines], max_lines=max_lines, size=size)
    assert b"\n".join(messages) == b"\n".join(lines)
    assert all(message.count(b"\n") < max_lines and len(message) <= size for message in messages)
