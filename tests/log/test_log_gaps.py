"""Gaps and their file."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.files import OS
from penstock.log.gaps import Gap, Gaps, line, parse, uncovered
from penstock.testing import CrashingFileSystem

ONE = Gap(3, 9, "corrupt", {"events": {60: 4, 120: 2}})
TWO = Gap(9, 12, "expired unread", {})
ENDS = [(ONE, len(line(ONE)) - 1), (TWO, len(line(ONE) + line(TWO)) - 1)]


def test_gaps_are_there_when_the_file_is_opened_again(tmp_path):
    gaps = Gaps(OS, tmp_path)
    gaps.add([TWO])
    gaps.add([ONE, Gap(5, 5, "nothing")])
    assert gaps.all() == Gaps(OS, tmp_path).all() == [ONE, TWO]


@given(st.integers(0, 2 * len(line(ONE))))
def test_a_file_cut_anywhere_has_the_gaps_of_its_whole_lines(cut):
    assert parse((line(ONE) + line(TWO))[:cut]) == [gap for gap, end in ENDS if cut >= end]


@given(st.integers(0, len(line(ONE)) - 2), st.integers(1, 255))
def test_a_flipped_byte_costs_its_line_only(position, mask):
    bad = bytearray(line(ONE))
    bad[position] ^= mask
    assert parse(bytes(bad) + line(TWO)) == [TWO]


@given(st.binary())
def test_any_bytes_are_read_without_an_error(data):
    assert parse(data) == []


def test_what_is_added_behind_a_torn_line_stands_on_a_line_of_its_own(tmp_path):
    (tmp_path / "gaps.jsonl").write_bytes(line(ONE)[:-5])
    Gaps(OS, tmp_path).add([TWO])
    assert Gaps(OS, tmp_path).all() == [TWO]


def test_a_gap_that_cannot_be_synced_is_not_added(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    gaps = Gaps(fs, tmp_path)
    gaps.add([ONE])
    fs.free = 10
    with pytest.raises(OSError, match="No space"):
        gaps.add([TWO])
    assert gaps.all() == Gaps(OS, tmp_path).all() == [ONE]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=6), st.integers(0, 40), st.integers(0, 40))
def test_uncovered_are_the_offsets_of_a_range_that_are_in_no_gap(steps, begin, end):
    gaps, at = [], 0
    for skip, size in steps:
        gaps.append(Gap(at + skip, at + skip + size, "x"))
        at = gaps[-1].end
    covered = {offset for gap in gaps for offset in range(gap.begin, gap.end)}
    found = [offset for b, e in uncovered(gaps, begin, end) for offset in range(b, e)]
    assert found == [offset for offset in range(begin, end) if offset not in covered]


def test_the_parts_of_a_gap_come_to_its_counts_together():
    gap = Gap(10, 20, "expired_unread", {"b": {60: 3, 120: 1}, "a": {60: 4}})
    whole = {("a", 60): 4, ("b", 60): 3, ("b", 120): 1, ("", 0): 2}
    assert gap.places(10, 20) == gap.places(0, 99) == whole
    assert (gap.places(10, 15), gap.places(20, 30)) == ({("a", 60): 4, ("b", 60): 1}, {})
    for middle in range(10, 21):
        parts = Counter(gap.places(10, middle))
        parts.update(gap.places(middle, 20))
        assert parts == whole


def test_what_was_received_comes_back():
    received = {"a": {60: {"taken": 5, "accepted": 3}}}
    for gap in (Gap(0, 3, "deleted", {"a": {60: 3}}, received), Gap(3, 4, "corrupt"), Gap(4, 5, "deleted", {}, {})):
        assert parse(line(gap)) == [gap]
