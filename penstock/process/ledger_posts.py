"""Posts to the ledger of a log daemon over HTTP (``POST /ledger``), from programs that only count."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

from penstock.errors import PenstockError
from penstock.files.json_values import parse_object

MAX_ANSWER_BYTES = 65_536
"""Limit: a ledger answers less; another server may answer without end."""
MAX_REASON_BYTES = 1000
"""Limit: the text of an error quotes at most this much of the answer of any server."""


class ReportFailed(PenstockError, OSError):
    """The ledger did not accept a report; the text gives the reason."""


class NoRedirects(HTTPRedirectHandler):
    """Redirects are errors: urllib follows that of a POST with a GET, which posts nothing, and sends the token along
    to any host.
    """

    def redirect_request(self, *_: Any) -> None:
        return None


def direct_opener(context: ssl.SSLContext | None) -> OpenerDirector:
    """Return an opener that shows a token to no other host: no redirects, and no proxy of the environment, which does
    not reach this machine's loopback either.
    """
    return build_opener(ProxyHandler({}), NoRedirects, HTTPSHandler(context=context))


class LedgerPosts:
    """The ledger at the daemon's HTTP address ``http`` (``host:port`` or URL).

    ``token`` is the daemon's bearer token, if it requires one; ``context`` holds the trusted authorities for TLS.
    """

    def __init__(self, http: str, *, token: str | None = None, context: ssl.SSLContext | None = None) -> None:
        self._url = (http if "://" in http else f"http://{http}").rstrip("/") + "/ledger"
        self._opener = direct_opener(context)
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def post(self, document: Mapping[str, Any], timeout: float) -> None:
        """Post and wait up to ``timeout`` seconds until the ledger has stored it. Raises ReportFailed."""
        try:
            request = Request(self._url, json.dumps(document).encode(), self._headers)
            with self._opener.open(request, timeout=timeout) as response:
                answer = response.read(MAX_ANSWER_BYTES)
                # `read` of a limited length calls no answer cut off; `length` is what is missing.
                if response.length or len(answer) == MAX_ANSWER_BYTES:
                    raise HTTPException(f"an answer that is cut off, or of {MAX_ANSWER_BYTES} bytes and more")
        except HTTPError as error:
            target = str(error.headers["Location"])[:MAX_REASON_BYTES]
            reason = f"a redirect to {target}" if 300 <= error.code < 400 else _refusal(error)
            raise ReportFailed(f"the ledger at {self._url} answers {error.code}: {reason}") from None
        # A server of another protocol is an HTTPException, an address that is no URL a ValueError.
        except (OSError, HTTPException, ValueError) as error:
            raise ReportFailed(f"no ledger answers at {self._url}: {getattr(error, 'reason', error)}") from None


def _refusal(error: HTTPError) -> str:
    try:
        return refusal_in(error.read(MAX_REASON_BYTES))
    except (OSError, HTTPException) as cut:
        return f"and no reason: {cut}"


def refusal_in(response: bytes) -> str:
    """Return the reason of a refusal: the response's ``error``, otherwise its text."""
    text = response.decode(errors="replace").strip()
    try:
        return str(parse_object(text)["error"])
    except (ValueError, KeyError):
        return text
