"""Journals lose at most the damaged lines, and the owner cuts a damaged end."""

from __future__ import annotations

import errno
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


def test_lines_are_read_in_append_order(tmp_path: Path) -> None:
    append_lines(tmp_path / "j", WRITTEN[:2])
    append_lines(tmp_path / "j", WRITTEN[2:])
    assert list(read_lines(tmp_path / "j", dict)) == WRITTEN
    assert (tmp_path / "j").read_bytes().count(b"\n") == len(WRITTEN)


def test_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert numbers(tmp_path / "none", repair=True) == []


def test_reading_continues_at_a_position(tmp_path: Path) -> None:
    append_lines(tmp_path / "j", WRITTEN[:2])
    position = [position for position, _ in read_lines_from(tmp_path / "j", dict)][-1]
    append_lines(tmp_path / "j", WRITTEN[2:3])
    assert [document for _, document in read_lines_from(tmp_path / "j", dict, position)] == WRITTEN[2:3]


def test_damaged_line_is_skipped_and_logged_with_the_file_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append_lines(tmp_path / "j", WRITTEN)
    data = (tmp_path / "j").read_bytes()
    position = data.index(b"zwei")
    (tmp_path / "j").write_bytes(data[:position] + b"\xff\xfe" + data[position + 2 :])
    assert numbers(tmp_path / "j", repair=True) == [0, 2, 3, 4]
    assert len(caplog.messages) == 1
    assert str(tmp_path / "j") in caplog.messages[0]


def test_only_the_owner_cuts_a_torn_end(tmp_path: Path) -> None:
    append_lines(tmp_path / "j", WRITTEN)
    content = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(content[:-3])
    damages: list[Damage] = []
    assert numbers(tmp_path / "j", damaged=damages.append) == [0, 1, 2, 3]
    assert damages == [], "it may be about to be written"
    assert numbers(tmp_path / "j", repair=True, damaged=damages.append) == [0, 1, 2, 3]
    begin = len(content) - len(encode_line(WRITTEN[-1]))
    assert damages == [Damage(tmp_path / "j", begin, len(content) - 3, cut=True, torn=True)]
    assert (tmp_path / "j").read_bytes() == content[:begin]


def test_torn_end_costs_only_its_line_whatever_is_torn_off(tmp_path: Path) -> None:
    for torn in range(1, len(encode_line(WRITTEN[1]))):
        path = tmp_path / str(torn)
        append_lines(path, WRITTEN[:2])
        path.write_bytes(path.read_bytes()[:-torn])
        append_lines(path, WRITTEN[2:])
        assert numbers(path) == [0, 2, 3, 4]


def test_object_of_another_kind_is_skipped_and_not_cut(tmp_path: Path) -> None:
    append_lines(tmp_path / "j", [*WRITTEN, {"other": 1}])
    size = (tmp_path / "j").stat().st_size
    damages: list[Damage] = []
    assert numbers(tmp_path / "j", repair=True, damaged=damages.append) == [0, 1, 2, 3, 4]
    assert (len(damages), (tmp_path / "j").stat().st_size) == (1, size)


@pytest.mark.survives("state files", "other format")
def test_later_format_is_an_error_and_not_damage(tmp_path: Path) -> None:
    text = b'{"v":2,"number":7}'
    (tmp_path / "j").write_bytes(encode_line(WRITTEN[0]) + b"%08x%s\n" % (crc32c(text), text))
    with pytest.raises(UnknownFormat, match="lines of format 2, this version of Penstock reads 1"):
        numbers(tmp_path / "j", repair=True)


@pytest.mark.survives("state files", "damaged bytes")
@given(st.data())
def test_flipped_bit_costs_at_most_its_line(data: st.DataObject) -> None:
    lines = [encode_line(document) for document in WRITTEN]
    written = bytearray(b"".join(lines))
    bit = data.draw(st.integers(0, 8 * len(written) - 1))
    written[bit // 8] ^= 1 << bit % 8
    hit = next(n for n in range(len(lines)) if bit // 8 < sum(map(len, lines[: n + 1])))
    documents, damages = read_damaged(bytes(written))
    assert [document for document in WRITTEN if document not in documents] in ([], [WRITTEN[hit]])
    assert all(document in WRITTEN for document in documents)
    assert damages or documents == WRITTEN


@given(st.data())
def test_truncation_costs_only_the_lines_after_it(data: st.DataObject) -> None:
    lines = [encode_line(document) for document in WRITTEN]
    cut = data.draw(st.integers(0, sum(map(len, lines))))
    complete = sum(sum(map(len, lines[: n + 1])) <= cut for n in range(len(lines)))
    documents, damages = read_damaged(b"".join(lines)[:cut])
    assert documents == WRITTEN[:complete]
    assert bool(damages) == (cut > sum(map(len, lines[:complete])))


@given(st.data())
def test_zeroed_bytes_cost_only_the_lines_they_touch(data: st.DataObject) -> None:
    lines = [encode_line(document) for document in WRITTEN]
    content = b"".join(lines)
    begin = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(begin, len(content)))
    documents, _ = read_damaged(content[:begin] + bytes(end - begin) + content[end:])
    ends = [sum(map(len, lines[: n + 1])) for n in range(len(lines))]
    untouched = [
        d for d, line, stop in zip(WRITTEN, lines, ends, strict=True) if stop <= begin or stop - len(line) >= end
    ]
    assert [document for document in untouched if document not in documents] == []
    assert all(document in WRITTEN for document in documents)


@given(
    st.binary()
    | st.lists(st.sampled_from([b"{}", b"[", b"\n", b"\xff", b"{" * 5000, b'00000000{"v":1}'])).map(b"".join)
)
def test_arbitrary_bytes_raise_nothing(data: bytes) -> None:
    read_damaged(data)


def read_damaged(data: bytes) -> tuple[list[dict[str, Any]], list[Damage]]:
    """Read as the owner does; a second read must find no damage at the end."""
    with tempfile.TemporaryDirectory() as folder:
        path, damages = Path(folder, "j"), list[Damage]()
        path.write_bytes(data)
        documents = list(read_lines(path, dict, repair=True, damaged=damages.append))
        second_damages = list[Damage]()
        assert list(read_lines(path, dict, repair=True, damaged=second_damages.append)) == documents
        assert not any(damage.cut for damage in second_damages)
        return documents, damages


@pytest.mark.survives("state files", "failing disk")
@pytest.mark.parametrize("operation", ["write", "sync", "sync_directory"])
def test_failed_append_changes_nothing(tmp_path: Path, operation: str) -> None:
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


@pytest.mark.survives("state files", "power cut")
@pytest.mark.parametrize("seed", range(40))
def test_crash_keeps_every_acknowledged_line(tmp_path: Path, seed: int) -> None:
    for stop_after in range(30):
        folder = tmp_path / str(stop_after)
        folder.mkdir()
        fs = CrashingFileSystem(folder, seed)
        fs.stop_after = stop_after
        written, attempted = 0, 0
        try:
            for document in WRITTEN:
                attempted += 1
                append_lines(folder / "j", [document], fs)
                written += 1
        except OSError:
            fs.crash()
        documents = numbers(folder / "j", repair=True)
        assert documents in ([*range(written)], [*range(attempted)])


@pytest.mark.survives("state files", "failing disk")
def test_unsynced_line_that_cannot_be_truncated_is_overwritten(tmp_path: Path) -> None:
    fs, path = CrashingFileSystem(tmp_path), tmp_path / "j"
    append_lines(path, WRITTEN[:1], fs)
    fs.failures = dict.fromkeys(("sync", "truncate"), errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        append_lines(path, WRITTEN[1:2], fs)
    assert numbers(path) == [0]
    fs.failures = {}
    append_lines(path, WRITTEN[2:3], fs)
    assert numbers(path) == [0, 2]
