"""Decompression of the bodies of requests, within the limit of a body."""

from __future__ import annotations

from penstock.wire.requests import Refused
from penstock.wire.unpacking import (
    DEFLATE,
    GZIP,
    SNAPPY_MAGIC,
    ZLIB_OR_GZIP,
    Bomb,
    CutShort,
    NotPacked,
    all_unpacked,
    arrow_parts,
    framed_snappy_parts,
    is_named_twice,
    snappy_block,
)

_ZLIB = (*GZIP, "deflate", "zlib")
ENCODINGS = (*_ZLIB, "zstd", "lz4", "snappy", "x-snappy-framed")
"""Compressions of a request's body, by their names in ``Content-Encoding``."""

MAX_CODINGS = 2
"""Limit: compressions of one body, because each is work of ``max_body``."""


def decompress(data: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return the body of a request without its compression. Raises Refused, also above ``max_bytes``."""
    codings = [name for name in map(str.strip, encoding.lower().split(",")) if name not in ("", "identity")]
    if unknown := [name for name in codings if name not in ENCODINGS]:
        raise Refused(415, "encoding", f"{unknown[0][:100]} is not accepted: use one of {', '.join(ENCODINGS)}")
    if len(codings) > MAX_CODINGS:
        raise Refused(415, "encoding", f"a body compressed more than {MAX_CODINGS} times is not accepted")
    # The last one was applied last (RFC 9110, section 8.4).
    for name in reversed(codings):
        data = _decompress_once(data, name, max_bytes)
        if is_named_twice(codings, data):
            break
    return data


def _decompress_once(data: bytes, encoding: str, max_bytes: int) -> bytes:
    try:
        return _decompress(data, encoding, max_bytes)
    except Bomb:
        raise Refused(413, "oversize", f"a request is larger than max_body ({max_bytes} bytes) decompressed") from None
    except CutShort:
        raise Refused(400, "encoding", f"the body's {encoding} does not end") from None
    except NotPacked as error:
        raise Refused(400, "encoding", f"the body is not {encoding}: {error}") from None


def _decompress(data: bytes, encoding: str, max_bytes: int) -> bytes:
    if encoding in _ZLIB:
        # Workaround: "deflate" is zlib by RFC 9110, but some clients send it without zlib's header.
        has_zlib_header = len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
        return all_unpacked(data, max_bytes, DEFLATE if encoding == "deflate" and not has_zlib_header else ZLIB_OR_GZIP)
    if encoding in ("zstd", "lz4"):
        return b"".join(arrow_parts(data, max_bytes, encoding))  # type: ignore[arg-type]  # one of both
    # Workaround: the OpenTelemetry Collector called both forms "snappy", its framed form for long (feature gate
    # confighttp.framedSnappy). The first ten bytes of a frame cannot begin a block that holds anything.
    if encoding == "snappy" and not data.startswith(SNAPPY_MAGIC):
        return snappy_block(data, max_bytes)
    return b"".join(framed_snappy_parts(data, max_bytes))


def decompress_if_small(data: bytes, encoding: str, max_bytes: int, small_bytes: int) -> bytes | None:
    """Decompress ``data``; return None if the content has more than ``small_bytes``. Raises Refused."""
    try:
        return decompress(data, encoding, min(max_bytes, small_bytes))
    except Refused as error:
        if error.status == 413 and small_bytes < max_bytes:
            return None
        raise
