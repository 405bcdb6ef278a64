"""Gaps and their file."""

import errno
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.files.file_system import OS
from penstock.log import UnknownFormat
from penstock.log.store.gaps import (
    FILE_NAME,
    MIN_GAPS_SAVED,
    Gap,
    GapCache,
    Gaps,
    encode_gap,
    join_adjacent_gaps,
    load,
    uncovered,
)
from penstock.testing import CrashingFileSystem
from penstock.testing.simulation.machine import Machine
from tests.fuzzed import RAW, journals

ONE = Gap(3, 9, "corrupt", {"events": {60: 4, 120: 2}})
TWO = Gap(9, 12, "expired unread", {})
ONE_LATER = Gap(500, 501, "corrupt")
ENDS = [(ONE, len(encode_gap(ONE))), (TWO, len(encode_gap(ONE) + encode_gap(TWO)))]


def parse(data):
    """Return the gaps in a file of these bytes, read by its owner after another process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, FILE_NAME)
        path.write_bytes(data)
        gaps = load(path)
        assert Gaps(OS, path.parent).sorted() == gaps
        return gaps


def test_gaps_are_read_when_the_file_is_opened_again(tmp_path):
    gaps = Gaps(OS, tmp_path)
    gaps.add([TWO])
    gaps.add([ONE, Gap(5, 5, "nothing")])
    assert gaps.sorted() == Gaps(OS, tmp_path).sorted() == [ONE, TWO]


@given(st.integers(0, 2 * len(encode_gap(ONE))))
def test_truncated_file_has_the_gaps_of_its_complete_lines(cut):
    assert parse((encode_gap(ONE) + encode_gap(TWO))[:cut]) == [gap for gap, end in ENDS if cut >= end]


@given(st.integers(0, len(encode_gap(ONE)) - 2), st.integers(1, 255))
def test_flipped_byte_loses_only_its_line(position, mask):
    bad = bytearray(encode_gap(ONE))
    bad[position] ^= mask
    assert parse(bytes(bad) + encode_gap(TWO)) == [TWO]


@given(RAW | journals("begin", "end", "reason", "counts", "received"))
def test_random_bytes_are_read_without_an_error(data):
    assert all(isinstance(gap, Gap) for gap in parse(data))


@pytest.mark.parametrize("fails", [{"sync"}, {"sync", "truncate"}])
def test_gap_that_was_not_synced_is_absent_after_a_kill(tmp_path, fails):
    fs = CrashingFileSystem(tmp_path)
    gaps = Gaps(fs, tmp_path)
    gaps.add([ONE])
    fs.failures = dict.fromkeys(fails, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        gaps.add([TWO])
    assert gaps.sorted() == load(tmp_path / FILE_NAME) == [ONE]
    fs.failures = {}
    heir = Gaps(fs, tmp_path)
    assert heir.sorted() == [ONE]
    heir.add([ONE_LATER])
    assert Gaps(OS, tmp_path).sorted() == [ONE, ONE_LATER]


def test_gap_added_after_a_torn_line_has_its_own_line(tmp_path):
    (tmp_path / "gaps.jsonl").write_bytes(encode_gap(ONE)[:-5])
    Gaps(OS, tmp_path).add([TWO])
    assert Gaps(OS, tmp_path).sorted() == [TWO]


def test_gap_that_cannot_be_synced_is_not_added(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    gaps = Gaps(fs, tmp_path)
    gaps.add([ONE])
    fs.free = 10
    with pytest.raises(OSError, match="No space"):
        gaps.add([TWO])
    assert gaps.sorted() == Gaps(OS, tmp_path).sorted() == [ONE]


def test_gap_that_was_not_added_is_not_in_the_copy(tmp_path):
    """Order: the file before its copy, from which the next start restores gaps."""
    machine = Machine(tmp_path, 0)
    gaps = Gaps(machine.files, machine.topics)
    gaps.add([ONE])
    machine.files.failing["sync"] = errno.EIO, 1
    with pytest.raises(OSError, match="Input/output"):
        gaps.add([TWO])
    assert Gaps(OS, machine.topics).sorted() == load(machine.topics / FILE_NAME) == [ONE]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=6), st.integers(0, 40), st.integers(0, 40))
def test_uncovered_offsets_are_in_no_gap(steps, begin, end):
    gaps, end_of_gap = [], 0
    for skip, size in steps:
        gaps.append(Gap(end_of_gap + skip, end_of_gap + skip + size, "x"))
        end_of_gap = gaps[-1].end
    covered = {offset for gap in gaps for offset in range(gap.begin, gap.end)}
    uncovered_offsets = [offset for b, e in uncovered(gaps, begin, end) for offset in range(b, e)]
    assert uncovered_offsets == [offset for offset in range(begin, end) if offset not in covered]


def test_overlapping_gaps_lead_no_reader_back():
    gaps = [Gap(0, 12, "x"), Gap(3, 5, "x"), Gap(10, 14, "x")]
    assert list(uncovered(gaps, 1, 20)) == [(14, 20)]


def test_parts_of_a_gap_sum_to_its_counts():
    gap = Gap(10, 20, "expired_unread", {"b": {60: 3, 120: 1}, "a": {60: 4}})
    total_counts = {("a", 60): 4, ("b", 60): 3, ("b", 120): 1, ("", 0): 2}
    assert gap.rows_by_bucket(10, 20) == gap.rows_by_bucket(0, 99) == total_counts
    assert (gap.rows_by_bucket(10, 15), gap.rows_by_bucket(20, 30)) == ({("a", 60): 4, ("b", 60): 1}, {})
    for middle in range(10, 21):
        parts = Counter(gap.rows_by_bucket(10, middle))
        parts.update(gap.rows_by_bucket(middle, 20))
        assert parts == total_counts


def test_received_counts_are_read_back():
    received = {"a": {60: {"taken": 5, "accepted": 3}}}
    for gap in (Gap(0, 3, "deleted", {"a": {60: 3}}, received), Gap(3, 4, "corrupt"), Gap(4, 5, "deleted", {}, {})):
        assert parse(encode_gap(gap)) == [gap]


def test_line_of_another_format_is_refused_by_its_number(tmp_path):
    text = encode_gap(ONE)[8:-1].replace(b'"v":1', b'"v":2')
    for data in (b"%08x%s\n" % (crc32c(text), text),):
        (tmp_path / "gaps.jsonl").write_bytes(data)
        for read in (lambda: Gaps(OS, tmp_path), lambda: load(tmp_path / "gaps.jsonl")):
            with pytest.raises(UnknownFormat, match=r"gaps\.jsonl has .*format 2, this version of Penstock reads 1"):
                read()


steps = st.tuples(
    st.integers(0, 1),
    st.integers(1, 4),
    st.sampled_from(["expired_read", "expired_unread"]),
    st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.sampled_from([60, 120]), st.integers(1, 9), min_size=1)),
    st.booleans(),
)


def total(gaps):
    """Return all rows and counts of gaps, and the offsets of each reason."""
    rows, received, covered = Counter(), Counter(), {}
    for gap in gaps:
        rows.update({(s, b, gap.reason): n for s, buckets in gap.counts.items() for b, n in buckets.items()})
        for source, buckets in (gap.received or {}).items():
            received.update({(source, b, name): n for b, named in buckets.items() for name, n in named.items()})
        covered |= dict.fromkeys(range(gap.begin, gap.end), (gap.reason, gap.received is None))
    return rows, received, covered


@given(st.lists(steps, max_size=8), st.integers(0, 30))
def test_joined_gaps_have_the_same_totals(steps, through):
    gaps, end_of_gap = [], 0
    for skip, size, reason, counts, has_received in steps:
        received = {s: {b: {"accepted": n} for b, n in buckets.items()} for s, buckets in counts.items()}
        gaps.append(
            Gap(end_of_gap + skip, end_of_gap + skip + size, reason, counts, received if has_received else None)
        )
        end_of_gap = gaps[-1].end
    fewer = join_adjacent_gaps(gaps, through)
    assert total(fewer) == total(gaps)
    assert [gap for gap in fewer if gap.end > through] == [gap for gap in gaps if gap.end > through]
    below = [gap for gap in fewer if gap.end <= through]
    kinds = [(gap.reason, gap.received is None) for gap in below]
    assert all(
        a.end < b.begin or k != next_kind
        for a, b, k, next_kind in zip(below, below[1:], kinds, kinds[1:], strict=False)
    )


def test_many_gaps_are_joined_and_readers_see_them_before_and_after(tmp_path):
    gaps, path = Gaps(OS, tmp_path), tmp_path / "gaps.jsonl"
    for number in range(MIN_GAPS_SAVED):
        gaps.add([Gap(number, number + 1, "expired_read", {"a": {60: 1}}, {"a": {60: {"accepted": 1}}})])
        assert load(path) == gaps.sorted()
    gaps.join(MIN_GAPS_SAVED)
    assert len(gaps.sorted()) == MIN_GAPS_SAVED  # one too few
    gaps.add(
        [
            Gap(MIN_GAPS_SAVED, MIN_GAPS_SAVED + 1, "expired_read", {"a": {60: 1}}, {"a": {60: {"accepted": 1}}}),
            ONE_LATER,
        ]
    )
    gaps.join(MIN_GAPS_SAVED + 1)
    joined = Gap(0, 101, "expired_read", {"a": {60: 101}}, {"a": {60: {"accepted": 101}}})
    assert gaps.sorted() == load(path) == Gaps(OS, tmp_path).sorted() == [joined, ONE_LATER]
    path.write_bytes(path.read_bytes() + encode_gap(Gap(900, 901, "corrupt"))[:-1])  # without its end
    assert load(path) == [joined, ONE_LATER]
    path.write_bytes(encode_gap(ONE) * 50)
    assert load(path) == [ONE] * 50


def test_failed_join_leaves_the_gaps_unchanged(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    gaps = Gaps(fs, tmp_path)
    gaps.add([Gap(number, number + 1, "deleted") for number in range(MIN_GAPS_SAVED + 1)])
    before = gaps.sorted()
    fs.free = 20
    with pytest.raises(OSError, match="No space"):
        gaps.join(1000)
    fs.free = None
    assert gaps.sorted() == load(tmp_path / "gaps.jsonl") == before
    gaps.join(1000)
    assert gaps.sorted() == [Gap(0, MIN_GAPS_SAVED + 1, "deleted")]


def test_damaged_line_is_restored_from_the_copy_with_its_counts(tmp_path, caplog):
    expired = Gap(0, 3, "expired_unread", {"in": {60: 3}}, {"in": {60: {"taken": 3, "accepted": 3}}})
    corrupt = Gap(5, 6, "corrupt", {"in": {60: 1}}, {})
    Gaps(OS, tmp_path).add([expired, corrupt])
    complete = (tmp_path / "gaps.jsonl").read_bytes()
    for name in ("gaps.jsonl", "gaps.copy.jsonl"):
        for harmed in (complete[:30] + b"?" + complete[31:], complete[:-9], bytes(len(complete)), b""):
            (tmp_path / name).write_bytes(harmed)
            caplog.clear()
            assert GapCache().read(tmp_path / "gaps.jsonl") == [expired, corrupt]
            gaps = Gaps(OS, tmp_path)
            assert gaps.sorted() == [expired, corrupt]
            assert bool(caplog.messages) == (name == "gaps.jsonl")
            assert load(tmp_path / "gaps.jsonl") == [expired, corrupt]
            assert (tmp_path / "gaps.jsonl").read_bytes() == (tmp_path / "gaps.copy.jsonl").read_bytes() == complete


def test_copy_that_lags_repeats_no_gap(tmp_path):
    parts = [Gap(n, n + 1, "expired_read", {"in": {60: 1}}, {}) for n in range(4)]
    Gaps(OS, tmp_path).add(parts)
    (tmp_path / "gaps.jsonl").write_bytes(encode_gap(Gap(0, 4, "expired_read", {"in": {60: 4}}, {})))
    assert [(gap.begin, gap.end) for gap in Gaps(OS, tmp_path).sorted()] == [(0, 4)]


def test_copy_is_written_at_the_next_start_after_a_full_disk(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    gaps = Gaps(fs, tmp_path)
    gaps.add([Gap(0, 1, "corrupt")])
    complete = (tmp_path / "gaps.jsonl").read_bytes()
    for harmed in ("gaps.jsonl", "gaps.copy.jsonl"):
        (tmp_path / harmed).write_bytes(complete[1:])
        fs.free = 0
        assert Gaps(fs, tmp_path).sorted() == [Gap(0, 1, "corrupt")]
        fs.free = None
        Gaps(fs, tmp_path)
        assert [(tmp_path / name).read_bytes() for name in ("gaps.jsonl", "gaps.copy.jsonl")] == [complete, complete]
