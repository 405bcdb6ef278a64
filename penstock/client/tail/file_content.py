"""Functions on the bytes of a log file: its encoding, its last whole line, and whether it is compressed."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa

from penstock.wire.framing.lines import LineSplitter

MAX_LINE_BYTES = 1 << 20
"""Limit: bytes of one message, and about what one append holds; a longer line becomes several messages."""
READ_BYTES = MAX_LINE_BYTES + len(b"\r\n")
"""Bytes read at once. The end of a line of exactly ``MAX_LINE_BYTES`` fits, so that it stays one message."""
SIGNATURE_BYTES = 10
"""The longest of ``_COMPRESSED`` and of the byte order marks."""
UTF8, UTF16_LE, UTF16_BE = "utf-8", "utf-16-le", "utf-16-be"
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": UTF8, b"\xff\xfe": UTF16_LE, b"\xfe\xff": UTF16_BE}
_COMPRESSED = {
    "gzip": re.compile(rb"\x1f\x8b[\x00-\x08]"),
    "compress": re.compile(rb"\x1f\x9d"),
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
    "zip": re.compile(rb"PK\x03\x04"),
    "7z": re.compile(rb"7z\xbc\xaf\x27\x1c"),
    "snappy": re.compile(rb"\xff\x06\0\0sNaPpY"),
}
_UNPACKERS: dict[str, Callable[[str], IO[bytes]]] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}  # type: ignore[dict-item]
MAX_UNPACKED_BYTES = 256 << 20
"""Limit: content of a compressed file that is compared with what was read; it takes about a second."""
_NULS_BEFORE_LINE = re.compile(rb"^\0+", re.MULTILINE)


def compression_of(beginning: bytes) -> str | None:
    """Return the name of the compression whose signature a file begins with."""
    return next((name for name, signature in _COMPRESSED.items() if signature.match(beginning)), None)


def read_beginning(path: str, size: int) -> bytes:
    """Return the first ``size`` bytes of a file. Raises OSError."""
    with open(path, "rb") as file:
        return file.read(size)


def write_decompressed(path: str, compression: str, content: IO[bytes]) -> bool:
    """Write what a compressed file holds to ``content``; return False if it is incomplete, too large or unsupported."""
    if compression not in _UNPACKERS:
        return False
    size = 0
    try:
        with _UNPACKERS[compression](path) as packed:
            while piece := packed.read(READ_BYTES):
                size += content.write(piece)
                if size > MAX_UNPACKED_BYTES:
                    return False
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return False
    content.flush()
    return True


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of a file, by the byte order mark (``mark_bytes`` long) that it begins with."""

    name: str = UTF8
    mark_bytes: int = 0

    @classmethod
    def detect(cls, beginning: bytes) -> Encoding:
        """Return the encoding of a file by its first bytes. Without a mark it is UTF-8; its bytes are not changed."""
        for mark, name in _BYTE_ORDER_MARKS.items():
            if beginning.startswith(mark):
                return cls(name, len(mark))
        return cls()

    @property
    def read_bytes(self) -> int:
        """Bytes to read at once; half as many of UTF-16, of which two bytes may become three of UTF-8."""
        return READ_BYTES if self.name == UTF8 else MAX_LINE_BYTES // 2 + len("\r\n") * 2

    def padding_bytes(self, content: bytes) -> int:
        """Return how many bytes at the beginning of ``content`` are NULs and not a part of a character."""
        size = len(content) - len(content.lstrip(b"\0"))
        return size if self.name == UTF8 else size & ~1

    def is_padding(self, content: bytes) -> bool:
        """Whether ``content`` is nothing but NULs."""
        return bool(content) and not content.strip(b"\0")

    def whole_lines(self, content: bytes) -> int:
        """Return how many bytes of ``content`` are lines with their ends."""
        if self.name == UTF8:
            return content.rfind(b"\n") + 1
        units = self._units(content)
        line_ends = np.flatnonzero(units == ord("\n"))
        return 2 * (int(line_ends[-1]) + 1) if len(line_ends) else 0

    def split_point(self, content: bytes) -> int:
        """Return where to cut a line that is longer than a message: between two characters."""
        if self.name != UTF8:
            units = self._units(content)[: MAX_LINE_BYTES // 4]
            begins_pair = len(units) > 1 and 0xD800 <= int(units[-1]) < 0xDC00
            return 2 * (len(units) - begins_pair)
        end = min(len(content), MAX_LINE_BYTES)
        # A character has at most four bytes; content that is not UTF-8 is cut at the limit.
        for begin in range(end - 1, max(end - 4, 0), -1):
            if content[begin] & 0xC0 != 0x80:
                length = 4 if content[begin] >= 0xF0 else 3 if content[begin] >= 0xE0 else 2
                return begin if content[begin] >= 0xC0 and begin + length > end else end
        return end

    def to_utf8(self, content: bytes) -> bytes:
        """Return ``content`` as UTF-8; what is not a character of UTF-16 becomes U+FFFD."""
        return content if self.name == UTF8 else content.decode(self.name, "replace").encode()

    def _units(self, content: bytes) -> np.ndarray[Any, np.dtype[np.uint16]]:
        return np.frombuffer(content, "<u2" if self.name == UTF16_LE else ">u2", len(content) // 2)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines without their ends (binary), and the number of NULs left out in front of them."""

    lines: pa.Array[Any]
    skipped_nuls: int


def split_lines(text: bytes) -> Lines:
    """Return the lines of ``text``; the last one may have no end. Bytes that are not UTF-8 are not changed.

    NULs at the beginning of a line are left out. They are not part of it: a file that was cut under a writer without
    O_APPEND begins with as many as the writer's offset says, and a power cut leaves some where a page was not written.
    """
    without_nuls = _NULS_BEFORE_LINE.sub(b"", text) if b"\0" in text else text
    splitter = LineSplitter(2 * READ_BYTES)
    lines = pa.concat_arrays([splitter.feed(without_nuls).lines, splitter.finish().lines])
    return Lines(lines, len(text) - len(without_nuls))
