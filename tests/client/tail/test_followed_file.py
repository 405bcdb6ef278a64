"""A single file is read, cut and compared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.client.tail.followed_file import HEAD_BYTES, WINDOW_BYTES, FollowedFile

LINE = b"%07d\n"


def lines(count: int, first: int = 0) -> bytes:
    return b"".join(LINE % number for number in range(first, first + count))


def opened(path: Path) -> FollowedFile:
    return FollowedFile(str(path), 0.0, {})


def read_all(file: FollowedFile) -> bytes:
    content = b""
    while span := file.next(0.0):
        content += span.content
        file.advance(span.end)
    return content


@pytest.mark.parametrize("changed", [0, HEAD_BYTES - 1, 20_000 - WINDOW_BYTES, 19_999])
def test_change_of_head_or_window_is_a_cut(tmp_path: Path, changed: int) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(lines(2500))
    file = opened(path)
    assert file.detect_cut(0.0) is None
    assert read_all(file) == lines(2500)
    with path.open("r+b") as writer:
        writer.seek(changed)
        writer.write(b"#")
        writer.seek(0, os.SEEK_END)
        writer.write(lines(1))
    before = file.detect_cut(0.0)
    assert before is not None
    assert before.offset == 20_000
    assert file.position.offset == 0
    file.close()


def test_growth_is_no_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"")
    file = opened(path)
    for number in range(1, 2000, 37):
        path.write_bytes(lines(number))
        assert file.detect_cut(0.0) is None
        read_all(file)
        assert file.position.offset == 8 * number


def test_cut_between_comparison_and_read_reads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(lines(100))
    file = opened(path)
    read_all(file)
    path.write_bytes(lines(101))
    assert file.detect_cut(0.0) is None
    path.write_bytes(lines(300, first=1000))
    assert file.next(0.0) is None
    assert file.detect_cut(0.0) is not None
    assert read_all(file) == lines(300, first=1000)


def test_copy_that_is_being_made_is_the_beginning_of_its_original(tmp_path: Path) -> None:
    original, copy = tmp_path / "a.log", tmp_path / "a.log.1"
    original.write_bytes(lines(3000))
    file = opened(original)
    read_all(file)
    for size in (1, 1000, 20_000, 24_000):
        copy.write_bytes(lines(3000)[:size])
        assert opened(copy).is_beginning_of(file)
        assert opened(copy).begins_with(file.position) is (size == 24_000)
    copy.write_bytes(lines(2900) + lines(100))
    assert not opened(copy).is_beginning_of(file)
    assert not opened(copy).begins_with(file.position)


def test_hole_longer_than_a_read_is_skipped_to_the_next_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with path.open("wb") as writer:
        writer.seek(5 << 30)
        writer.write(b"line\n")
    span = opened(path).next(0.0)
    assert span is not None
    assert (span.begin, span.content) == (5 << 30, b"line\n")
