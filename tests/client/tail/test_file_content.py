"""Encodings, line ends and signatures of log files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.tail.file_content import (
    MAX_LINE_BYTES,
    UTF16_BE,
    UTF16_LE,
    Encoding,
    compression_of,
    split_lines,
    write_decompressed,
)
from penstock.client.tail.followed_file import FollowedFile


@pytest.mark.parametrize(
    ("beginning", "name"),
    [
        (gzip.compress(b"x", mtime=0), "gzip"),
        (bz2.compress(b"x"), "bzip2"),
        (bz2.compress(b""), "bzip2"),
        (lzma.compress(b"x"), "xz"),
        (b"\x28\xb5\x2f\xfd\x04", "zstd"),
        (b"\x04\x22\x4d\x18d", "lz4"),
        (b"\x1f\x9d\x90", "compress"),
        (b"PK\x03\x04\x14", "zip"),
        (b"BZh9 is a line", None),
        (b"PK is a line", None),
        (b"", None),
        (b"\x1f", None),
    ],
)
def test_compression_is_recognised_by_signature(beginning: bytes, name: str | None) -> None:
    assert compression_of(beginning) == name


def test_byte_order_mark_decides_the_encoding() -> None:
    assert Encoding.detect(b"\xff\xfea\0") == Encoding(UTF16_LE, 2)
    assert Encoding.detect(b"\xfe\xff\0a") == Encoding(UTF16_BE, 2)
    assert Encoding.detect(b"\xef\xbb\xbfa") == Encoding("utf-8", 3)
    assert Encoding.detect(b"a\0") == Encoding()


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("name", [UTF16_LE, UTF16_BE])
def test_line_end_of_utf16_is_a_whole_character(name: str, mark: str) -> None:
    encoding = Encoding(name)
    content = f"{mark}\u0a0a\u0a00x\u000ay".encode(name)
    assert content[: encoding.whole_lines(content)].decode(name) == f"{mark}\u0a0a\u0a00x\n"
    assert encoding.whole_lines("\u0a0a\u0a00".encode(name)) == 0


@pytest.mark.parametrize("character", ["a", "ö", "個", "\U0001f600"])
def test_long_line_is_cut_between_characters(character: str) -> None:
    for prefix in range(5):
        content = b"x" * (MAX_LINE_BYTES - prefix) + character.encode() * 9
        end = Encoding().split_point(content)
        assert MAX_LINE_BYTES - 4 < end <= MAX_LINE_BYTES
        assert content[:end].decode()
        assert content[end:].decode()


def test_long_line_of_other_bytes_is_cut_at_the_limit() -> None:
    assert Encoding().split_point(b"\x80" * (MAX_LINE_BYTES + 2)) == MAX_LINE_BYTES


def test_nuls_in_front_of_lines_are_left_out_and_counted() -> None:
    lines = split_lines(b"\0\0one\n\0\0\0two\0\n\0")
    assert lines.lines.to_pylist() == [b"one", b"two\0"]
    assert lines.skipped_nuls == 6


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"\n", b"\r\n", b"\xff\xfe", b"\xef\xbb\xbf", b"\0\0"])))
def test_any_bytes_are_lines_that_lose_nothing(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    content = b"".join(parts)
    path: Path = tmp_path_factory.mktemp("any") / "a.log"
    path.write_bytes(content)
    file = FollowedFile(str(path), 0.0, {})
    appended = []
    while span := file.next(0.0, is_last=True):
        appended += span.lines().lines.to_pylist()
        file.advance(span.end)
    file.close()
    encoding = Encoding.detect(content)
    text = encoding.to_utf8(content[encoding.mark_bytes :])
    expected = [line.removesuffix(b"\r").lstrip(b"\0") for line in text.split(b"\n")]
    last = text.split(b"\n")[-1].lstrip(b"\0")
    assert appended == expected[:-1] + ([last] if last else [])


PACKERS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


@given(content=st.binary(max_size=2000), compression=st.sampled_from(sorted(PACKERS)), cut=st.integers(0, 60))
def test_compressed_file_is_decompressed_or_incomplete(content: bytes, compression: str, cut: int) -> None:
    packed = PACKERS[compression](content)
    with tempfile.NamedTemporaryFile() as file, tempfile.NamedTemporaryFile() as target:
        file.write(packed[: max(len(packed) - cut, 0)])
        file.flush()
        is_complete = write_decompressed(file.name, compression, target)
        assert not is_complete or cut >= len(packed) or Path(target.name).read_bytes() == content
        assert is_complete or cut


@given(packed=st.binary(max_size=2000), compression=st.sampled_from(sorted(PACKERS)))
def test_any_bytes_are_decompressed_or_refused(packed: bytes, compression: str) -> None:
    beginning = PACKERS[compression](b"x")[:10]
    with tempfile.NamedTemporaryFile() as file, tempfile.NamedTemporaryFile() as target:
        file.write(beginning + packed)
        file.flush()
        assert write_decompressed(file.name, compression, target) in (True, False)
