"""The tokens of requests, and what is unpacked of them."""

from __future__ import annotations

import base64
import contextlib
import hmac
from collections.abc import Iterator, Mapping, Sequence

from penstock.wire.requests import Refused
from penstock.wire.unpacking import DEFLATE, ZLIB_OR_GZIP, Bomb, CutShort, NotPacked, all_unpacked


def unpacked(data: bytes, encoding: str, most: int) -> bytes:
    """``data`` without gzip or deflate, of which at most ``most`` bytes are made. Raises Refused."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity", "snappy"):  # snappy is the door's own affair
        return data
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Refused(415, "encoding", f"{encoding} is not taken: gzip and deflate are")
    is_raw = encoding == "deflate" and not (len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0)
    try:
        return all_unpacked(data, most, DEFLATE if is_raw else ZLIB_OR_GZIP)
    except Bomb:
        raise Refused(413, "oversize", f"a request may have {most} bytes unpacked (max_body)") from None
    except CutShort:
        raise Refused(400, "encoding", f"the body's {encoding} does not end") from None
    except NotPacked as error:
        raise Refused(400, "encoding", f"the body is no {encoding}: {error}") from None


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
