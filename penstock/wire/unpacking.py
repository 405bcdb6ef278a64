"""Bounded decompression of senders' data: gzip, zlib, deflate, zstd, LZ4 frames and snappy.

Limit: no header decides how much is allocated; decompression stops at the limit.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa
from crc32c import crc32c

from penstock.errors import PenstockError

ZLIB_OR_GZIP = zlib.MAX_WBITS | 32
"""Window bits of zlib: detect zlib or gzip from the header."""
DEFLATE = -zlib.MAX_WBITS
"""Window bits of zlib for a stream without a header."""


GZIP = ("gzip", "x-gzip")
"""Names of gzip in Content-Encoding."""
GZIP_MAGIC = b"\x1f\x8b"
PART_BYTES = 256 << 10
"""Bytes decompressed per step: about 1 ms, the time that others wait."""
INPUT_BYTES = 64 << 10
"""Compressed bytes given to zlib per step."""
MAX_STREAMS = 100_000
"""Limit: concatenated streams, or chunks of framed snappy; each costs about 10 us, even an empty one."""
SNAPPY_MAGIC = b"\xff\x06\0\0sNaPpY"
"""First chunk of framed snappy."""
SNAPPY_CHUNK_BYTES = 64 << 10
"""Limit of the format: bytes that one chunk holds."""
MAX_SNAPPY_RATIO = 32
"""Limit: largest compression ratio of snappy: a copy of 3 bytes yields 64, plus the block's own rules."""
_COMPRESSED, _PLAIN, _FIRST_SKIPPABLE, _STREAM_BEGIN = 0x00, 0x01, 0x80, 0xFF


class Bomb(PenstockError, ValueError):
    """Compressed bytes that expand beyond the limit."""


class ImpossibleSize(Bomb):
    """A header that announces more bytes than its block can contain: the block is damaged."""


class NotPacked(PenstockError, ValueError):
    """Bytes that are damaged or were never compressed; the text is zlib's."""


class CutShort(NotPacked):
    """Compressed bytes without their end."""


def content_encoding(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the compressions of a body in lower case, separated by commas, in the order in which they were applied.

    ``headers``: names in lower case, and their values. Several Content-Encoding are one list (RFC 9110, section 5.3).
    """
    values = (value.decode("latin-1").lower() for name, value in headers if name == b"content-encoding")
    names = (name.strip() for value in values for name in value.split(","))
    return ",".join(name for name in names if name not in ("", "identity"))


def is_named_twice(encodings: Sequence[str], content: bytes) -> bool:
    """Return whether a body was compressed by gzip once, although ``encodings`` has two; ``content`` is decompressed
    once.

    Workaround: clients and proxies repeat the header. The OpenTelemetry Collector and Vector read only its first line.
    """
    return len(encodings) == 2 and all(name in GZIP for name in encodings) and not content.startswith(GZIP_MAGIC)


def first_unpacked(packed: bytes, limit: int, window: int = ZLIB_OR_GZIP) -> tuple[bytes, bytes]:
    """Decompress the first stream in ``packed``; return its content and the bytes after it.

    Never decompresses more than ``limit`` + 1 bytes. Raises Bomb beyond ``limit`` bytes, NotPacked, CutShort.
    """
    stream = zlib.decompressobj(window)
    try:
        unpacked = stream.decompress(packed, limit + 1)
    except zlib.error as error:
        raise NotPacked(str(error)) from None
    if len(unpacked) > limit:
        raise Bomb(f"more than {limit} bytes")
    if not stream.eof:
        raise CutShort("the compressed stream is cut short")
    return unpacked, stream.unused_data


def all_unpacked(packed: bytes, limit: int, window: int = ZLIB_OR_GZIP) -> bytes:
    """Decompress all concatenated streams in ``packed``; raises like ``first_unpacked``."""
    return b"".join(unpacked_parts(packed, limit, window))


def unpacked_parts(packed: bytes, remaining: int, window: int = ZLIB_OR_GZIP) -> Iterator[bytes]:
    """Yield the content of all streams in parts of at most PART_BYTES, so that the caller may pause in between."""
    inflater = Inflater(remaining, window)
    yield from inflater.feed(packed)
    inflater.finish()


class Inflater:
    """Incremental decompression of concatenated zlib streams into at most ``remaining`` bytes."""

    def __init__(self, remaining: int, window: int = ZLIB_OR_GZIP) -> None:
        self._remaining, self._window = remaining, window
        self._stream: Any = None
        """The stream whose end has not come; None between two streams."""
        self._streams = 0

    def feed(self, packed: bytes) -> Iterator[bytes]:
        """Yield the content of the next bytes in parts of at most PART_BYTES. Raises Bomb and NotPacked."""
        view, position = memoryview(packed), 0
        while self._stream is not None or position < len(view):
            stream = self._stream = self._stream or self._next_stream()
            chunk: bytes | memoryview = stream.unconsumed_tail
            if not chunk:
                # Limit: zlib copies the bytes after a stream, so small inputs keep the work linear.
                chunk = view[position : position + INPUT_BYTES]
                position += len(chunk)
            try:
                part = stream.decompress(chunk, min(PART_BYTES, self._remaining + 1))
            except zlib.error as error:
                raise NotPacked(str(error)) from None
            self._remaining -= len(part)
            if self._remaining < 0:
                raise Bomb("the content exceeds the limit")
            if part:
                yield part
            if stream.eof:
                position -= len(stream.unused_data)
                self._stream = None
            elif not part and not len(chunk):
                return

    def _next_stream(self) -> Any:
        self._streams += 1
        if self._streams > MAX_STREAMS:
            raise Bomb(f"more than {MAX_STREAMS} streams")
        return zlib.decompressobj(self._window)

    def finish(self) -> None:
        """Check that the last stream is complete. Raises CutShort."""
        if self._stream is not None:
            raise CutShort("the compressed stream is cut short")


def arrow_parts(packed: bytes, remaining: int, compression: Literal["zstd", "lz4"]) -> Iterator[bytes]:
    """Yield the content of zstd or LZ4 frames in parts; pauses and errors as in ``unpacked_parts``."""
    # Limit: a frame's header decides the size of its window, but only the filled part of it takes memory.
    try:
        with pa.input_stream(pa.py_buffer(packed), compression=compression) as stream:
            while part := stream.read(PART_BYTES):
                remaining -= len(part)
                if remaining < 0:
                    raise Bomb("the content exceeds the limit")
                yield part
    except OSError as error:
        if "Truncated" in str(error):
            raise CutShort("the compressed stream is cut short") from None
        raise NotPacked(str(error)) from None


def snappy_block(packed: bytes | memoryview, limit: int) -> bytes:
    """Return the content of one snappy block; raises like ``first_unpacked``, and ImpossibleSize."""
    size, shift = 0, 0
    for octet in packed[:5]:
        size |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    # Limit: the header decides how many bytes are allocated, so it is checked against the block's possible content.
    if size > MAX_SNAPPY_RATIO * len(packed):
        raise ImpossibleSize(f"the header announces {size} bytes")
    if size > limit:
        raise Bomb(f"the header announces {size} bytes")
    if not size:
        return b""
    try:
        return bytes(pa.decompress(packed, decompressed_size=size, codec="snappy", asbytes=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise NotPacked(str(error)) from None


def framed_snappy_parts(packed: bytes, remaining: int) -> Iterator[bytes]:
    """Yield the content of the chunks of framed snappy; raises like ``unpacked_parts``, also for a wrong checksum."""
    if not packed.startswith(SNAPPY_MAGIC):
        raise NotPacked("the magic of framed snappy is missing")
    view, position, chunks = memoryview(packed), len(SNAPPY_MAGIC), 0
    while position < len(view):
        chunks += 1
        if chunks > MAX_STREAMS:
            raise Bomb(f"more than {MAX_STREAMS} chunks")
        kind, size = view[position], int.from_bytes(view[position + 1 : position + 4], "little")
        content = view[position + 4 : position + 4 + size]
        position += 4 + size
        if position > len(view):
            raise CutShort("the compressed stream is cut short")
        if kind >= _FIRST_SKIPPABLE and (kind != _STREAM_BEGIN or bytes(content) == SNAPPY_MAGIC[4:]):
            continue
        if kind not in (_COMPRESSED, _PLAIN) or size < 4:
            raise NotPacked(f"a chunk of kind {kind} and {size} bytes is unknown")
        limit = min(SNAPPY_CHUNK_BYTES, remaining)
        if kind == _PLAIN and size - 4 > limit:
            raise Bomb("the content exceeds the limit")
        part = snappy_block(content[4:], limit) if kind == _COMPRESSED else bytes(content[4:])
        if int.from_bytes(content[:4], "little") != _masked_crc(part):
            raise NotPacked("incorrect data check")
        remaining -= len(part)
        yield part


def _masked_crc(part: bytes) -> int:
    crc = int(crc32c(part))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
