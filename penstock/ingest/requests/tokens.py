"""Tokens of requests, in each form that a protocol of a listener has for them."""

from __future__ import annotations

import base64
import contextlib
import hmac
from collections.abc import Iterator, Mapping, Sequence

from penstock.wire.requests import Refused


def check_token(tokens: Sequence[str], headers: Mapping[str, str], query: Mapping[str, str]) -> None:
    """Check that a request has one of ``tokens``, in any form of its protocol. Raises Refused."""
    if not tokens:
        return
    sent_tokens = list(_tokens_in(headers, query))
    if not sent_tokens:
        raise Refused(401, "token", "a token is required")
    pairs = ((token.encode(), sent.encode("utf-8", "replace")) for token in tokens for sent in sent_tokens)
    # Constant time per pair: the duration must not show how many characters of a guess are correct.
    if not any(hmac.compare_digest(*pair) for pair in pairs):
        raise Refused(403, "token", "the token is not valid")


def _tokens_in(headers: Mapping[str, str], query: Mapping[str, str]) -> Iterator[str]:
    """Yield the tokens of ``Bearer``, ``Splunk``, ``ApiKey`` (also base64 of ID:KEY), ``Basic`` (its password) and
    ``?token=``.
    """
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    credentials = credentials.strip()
    if credentials and scheme.lower() in ("bearer", "splunk", "apikey"):
        yield credentials
    if credentials and scheme.lower() in ("basic", "apikey"):
        with contextlib.suppress(ValueError):
            yield base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    if query.get("token"):
        yield query["token"]
