"""Journals: a damaged line costs that line, a damaged end is cut, and nothing is written by halves."""

from __future__ import annotations

import errno
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.files.checked_lines import Damage, append_lines, encode_line, read_lines, read_lines_from
from penstock.files.errors import UnknownFormat
from penstock.testing.crashes import CrashingFileSystem

TEXTS = ["one", "zwei \U0001f600", '0123abcd{"v":1}', "line\nend", "five"]
WRITTEN = [{"number": number, "text": text} for number, text in enumerate(TEXTS)]


def numbers(path: Path, **more: Any) -> list[int]:
    return list(read_lines(path, lambda document: int(document["number"]), **more))


def test_what_was_appended_is_read_in_order(tmp_path: Path) -> None:
    append_lines(tmp_path / "j", WRITTEN[:2])
    append_lines(tmp_path / "j", WRITTEN[2:])
    assert list(read_lines(tmp_path / "j", dict)) == WRITTEN
    assert (tmp_path / "j").read_bytes().count(b"\n") == len(WRITTEN)


def test_where_there_is_no_file_there_is_nothing(tmp_path: Path) -> None:
    assert numbers(tmp_path / "none", repair=True) == []


def test_reading_goes_on_where_it_ended(tmp_path: Path) -> None:
    append_lines(tmp_path / "j", WRITTEN[:2])
    at = [position for position, _ in read_lines_from(tmp_path / "j", dict)][-1]
    append_lines(tmp_path / "j", WRITTEN[2:3])
    assert [document for _, document in read_lines_from(tmp_path / "j", dict, at)] == WRITTEN[2:3]


def test_lines_of_before_without_a_checksum_are_read(tmp_path: Path) -> None:
    (tmp_path / "j").write_text("".join(json.dumps(document) + "\n" for document in WRITTEN[:3]))
    append_lines(tmp_path / "j", WRITTEN[3:])
    assert list(read_lines(tmp_path / "j", dict)) == WRITTEN


def test_a_damaged_line_in_the_middle_costs_that_line_and_is_told_with_the_files_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append_lines(tmp_path / "j", WRITTEN)
    data = (tmp_path / "j").read_bytes()
    at = data.index(b"zwei")
    (tmp_path / "j").write_bytes(data[:at] + b"\xff\xfe" + data[at + 2 :])
    assert numbers(tmp_path / "j", repair=True) == [0, 2, 3, 4]
    assert len(caplog.messages) == 1
    assert str(tmp_path / "j") in caplog.messages[0]


def test_a_torn_end_is_cut_by_the_owner_alone(tmp_path: Path) -> None:
    append_lines(tmp_path / "j", WRITTEN)
    whole = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(whole[:-3])
    found: list[Damage] = []
    assert numbers(tmp_path / "j", damaged=found.append) == [0, 1, 2, 3]
    assert found == [], "it may be about to be written"
    assert numbers(tmp_path / "j", repair=True, damaged=found.append) == [0, 1, 2, 3]
    begin = len(whole) - len(encode_line(WRITTEN[-1]))
    assert found == [Damage(tmp_path / "j", begin, len(whole) - 3, cut=True, torn=True)]
    assert (tmp_path / "j").read_bytes() == whole[:begin]


def test_what_is_appended_behind_a_torn_end_is_a_line_of_its_own(tmp_path: Path) -> None:
    append_lines(tmp_path / "j", WRITTEN[:2])
    (tmp_path / "j").write_bytes((tmp_path / "j").read_bytes()[:-3])
    append_lines(tmp_path / "j", WRITTEN[2:])
    assert numbers(tmp_path / "j") == [0, 2, 3, 4]


def test_an_object_that_is_none_of_the_kind_is_passed_over_and_never_cut(tmp_path: Path) -> None:
    append_lines(tmp_path / "j", [*WRITTEN, {"other": 1}])
    size = (tmp_path / "j").stat().st_size
    found: list[Damage] = []
    assert numbers(tmp_path / "j", repair=True, damaged=found.append) == [0, 1, 2, 3, 4]
    assert (len(found), (tmp_path / "j").stat().st_size) == (1, size)


def test_a_later_format_is_named_and_not_taken_for_damage(tmp_path: Path) -> None:
    text = b'{"v":2,"number":7}'
    (tmp_path / "j").write_bytes(encode_line(WRITTEN[0]) + b"%08x%s\n" % (crc32c(text), text))
    with pytest.raises(UnknownFormat, match="lines of format 2, this Penstock knows 1"):
        numbers(tmp_path / "j", repair=True)


@given(st.data())
def test_any_flipped_bit_costs_at_most_the_line_it_is_in(data: st.DataObject) -> None:
    lines = [encode_line(document) for document in WRITTEN]
    written = bytearray(b"".join(lines))
    bit = data.draw(st.integers(0, 8 * len(written) - 1))
    written[bit // 8] ^= 1 << bit % 8
    hit = next(n for n in range(len(lines)) if bit // 8 < sum(map(len, lines[: n + 1])))
    found, damages = read_damaged(bytes(written))
    assert [document for document in WRITTEN if document not in found] in ([], [WRITTEN[hit]])
    assert all(document in WRITTEN for document in found)
    assert damages or found == WRITTEN


@given(st.data())
def test_any_truncation_costs_the_lines_behind_it(data: st.DataObject) -> None:
    lines = [encode_line(document) for document in WRITTEN]
    cut = data.draw(st.integers(0, sum(map(len, lines))))
    whole = sum(sum(map(len, lines[: n + 1])) <= cut for n in range(len(lines)))
    found, damages = read_damaged(b"".join(lines)[:cut])
    assert found == WRITTEN[:whole]
    assert bool(damages) == (cut > sum(map(len, lines[:whole])))


@given(st.data())
def test_zeroed_bytes_cost_the_lines_they_touch(data: st.DataObject) -> None:
    lines = [encode_line(document) for document in WRITTEN]
    whole = b"".join(lines)
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, len(whole)))
    found, _ = read_damaged(whole[:begin] + bytes(end - begin) + whole[end:])
    ends = [sum(map(len, lines[: n + 1])) for n in range(len(lines))]
    untouched = [
        d for d, line, stop in zip(WRITTEN, lines, ends, strict=True) if stop <= begin or stop - len(line) >= end
    ]
    assert [document for document in untouched if document not in found] == []
    assert all(document in WRITTEN for document in found)


@given(
    st.binary()
    | st.lists(st.sampled_from([b"{}", b"[", b"\n", b"\xff", b"{" * 5000, b'00000000{"v":1}'])).map(b"".join)
)
def test_bytes_of_any_kind_raise_nothing(data: bytes) -> None:
    read_damaged(data)


def read_damaged(data: bytes) -> tuple[list[dict[str, Any]], list[Damage]]:
    """As the owner reads it; once more it is read without any damage at its end."""
    with tempfile.TemporaryDirectory() as folder:
        path, damages = Path(folder, "j"), list[Damage]()
        path.write_bytes(data)
        found = list(read_lines(path, dict, repair=True, damaged=damages.append))
        again = list[Damage]()
        assert list(read_lines(path, dict, repair=True, damaged=again.append)) == found
        assert not any(damage.cut for damage in again)
        return found, damages


@pytest.mark.parametrize("operation", ["write", "sync", "sync_directory"])
def test_where_an_append_fails_the_file_is_as_before_and_the_next_one_is_whole(tmp_path: Path, operation: str) -> None:
    fs = CrashingFileSystem(tmp_path)
    if operation != "sync_directory":
        append_lines(tmp_path / "j", WRITTEN[:1], fs)
    before = list(read_lines(tmp_path / "j", dict))
    fs.failures = {operation: errno.EIO}
    with pytest.raises(OSError, match="Input/output"):
        append_lines(tmp_path / "j", WRITTEN[1:3], fs)
    assert list(read_lines(tmp_path / "j", dict)) == before
    fs.failures = {}
    append_lines(tmp_path / "j", WRITTEN[3:], fs)
    fs.crash()
    assert list(read_lines(tmp_path / "j", dict)) == [*before, *WRITTEN[3:]]


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_at_any_point_keeps_what_was_appended_and_nothing_by_halves(tmp_path: Path, seed: int) -> None:
    for stop_after in range(30):
        folder = tmp_path / str(stop_after)
        folder.mkdir()
        fs = CrashingFileSystem(folder, seed)
        fs.stop_after = stop_after
        kept, asked = 0, 0
        try:
            for document in WRITTEN:
                asked += 1
                append_lines(folder / "j", [document], fs)
                kept += 1
        except OSError:
            fs.crash()
        found = numbers(folder / "j", repair=True)
        assert found in ([*range(kept)], [*range(asked)])


def test_what_could_be_neither_synced_nor_cut_off_is_no_line(tmp_path: Path) -> None:
    fs, path = CrashingFileSystem(tmp_path), tmp_path / "j"
    append_lines(path, WRITTEN[:1], fs)
    fs.failures = dict.fromkeys(("sync", "truncate"), errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        append_lines(path, WRITTEN[1:2], fs)
    assert numbers(path) == [0]
    fs.failures = {}
    append_lines(path, WRITTEN[2:3], fs)
    assert numbers(path) == [0, 2]
