"""The tokens of requests, and what is unpacked of them."""

from __future__ import annotations

import base64
import contextlib
import hmac
from collections.abc import Iterator, Mapping, Sequence

from penstock.wire.requests import Refused
from penstock.wire.unpacking import (
    DEFLATE,
    SNAPPY_MAGIC,
    ZLIB_OR_GZIP,
    Bomb,
    CutShort,
    NotPacked,
    all_unpacked,
    arrow_parts,
    framed_snappy_parts,
    snappy_block,
)

_ZLIB = ("gzip", "x-gzip", "deflate", "zlib")
ENCODINGS = (*_ZLIB, "zstd", "lz4", "snappy", "x-snappy-framed")
"""Compressions of a request's body, by their names in ``Content-Encoding``."""


def unpacked(data: bytes, encoding: str, most: int) -> bytes:
    """Return the body of a request without its compression, of which at most ``most`` bytes are made.

    Raises Refused.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return data
    if encoding not in ENCODINGS:
        raise Refused(415, "encoding", f"{encoding[:100]} is not taken: {', '.join(ENCODINGS)} are")
    try:
        return _decompressed(data, encoding, most)
    except Bomb:
        raise Refused(413, "oversize", f"a request may have {most} bytes unpacked (max_body)") from None
    except CutShort:
        raise Refused(400, "encoding", f"the body's {encoding} does not end") from None
    except NotPacked as error:
        raise Refused(400, "encoding", f"the body is no {encoding}: {error}") from None


def _decompressed(data: bytes, encoding: str, most: int) -> bytes:
    if encoding in _ZLIB:
        has_head = len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
        return all_unpacked(data, most, DEFLATE if encoding == "deflate" and not has_head else ZLIB_OR_GZIP)
    if encoding in ("zstd", "lz4"):
        return b"".join(arrow_parts(data, most, encoding))  # type: ignore[arg-type]  # one of both, as was asked above
    # Workaround: the OpenTelemetry Collector called both forms "snappy", its framed form for long (feature gate
    # confighttp.framedSnappy). The first ten bytes of a frame cannot begin a block that holds anything.
    if encoding == "snappy" and not data.startswith(SNAPPY_MAGIC):
        return snappy_block(data, most)
    return b"".join(framed_snappy_parts(data, most))


def unpacked_if_small(data: bytes, encoding: str, most: int, small: int) -> bytes | None:
    """Return ``data`` unpacked as by ``unpacked``, None where that has more than ``small`` bytes. Raises Refused."""
    try:
        return unpacked(data, encoding, min(most, small))
    except Refused as why:
        if why.status == 413 and small < most:
            return None
        raise


def check_token(tokens: Sequence[str], headers: Mapping[str, str], query: Mapping[str, str]) -> None:
    """Whether a request brings one of ``tokens``, in whatever form its protocol has for it. Raises Refused."""
    if not tokens:
        return
    given = list(_tokens_in(headers, query))
    if not given:
        raise Refused(401, "token", "a token is needed")
    pairs = ((token.encode(), one.encode("utf-8", "replace")) for token in tokens for one in given)
    if not any(hmac.compare_digest(*pair) for pair in pairs):
        raise Refused(403, "token", "the token is not known")


def _tokens_in(headers: Mapping[str, str], query: Mapping[str, str]) -> Iterator[str]:
    """``Bearer``, ``Splunk``, ``ApiKey`` (also as base64 of ID:KEY), ``Basic`` (its password), ``?token=``."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    value = value.strip()
    if value and kind.lower() in ("bearer", "splunk", "apikey"):
        yield value
    if value and kind.lower() in ("basic", "apikey"):
        with contextlib.suppress(ValueError):
            yield base64.b64decode(value, validate=True).decode().partition(":")[2]
    if query.get("token"):
        yield query["token"]
