"""Reports of a sender's totals to the ledger, so that the balance shows what the network lost."""

from __future__ import annotations

import json
import ssl
import urllib.error
from collections.abc import Mapping
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from penstock.errors import PenstockError
from penstock.files.json_values import parse_object


class ReportFailed(PenstockError, OSError):
    """The ledger did not accept a report; the text gives the reason."""


class LedgerReport:
    """The address that senders to ``listener`` report to: the daemon's HTTP address ``http`` (``host:port`` or URL).

    ``token`` is the daemon's bearer token, if it requires one; ``context`` holds the trusted authorities for TLS.
    One report may serve many senders.
    """

    def __init__(
        self,
        http: str,
        listener: str,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._url = (http if "://" in http else f"http://{http}").rstrip("/") + "/ledger"
        self._listener, self._timeout = listener, timeout
        # A proxy of the environment must not see the token, and does not reach this machine's loopback.
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def post(self, sender: str, version: int, counts: Mapping[str, int]) -> None:
        """Post the ``counts`` over the life of ``sender``: ``datagrams`` or ``lines``, ``messages``.

        The highest ``version`` counts, so a lost or repeated report changes nothing. Raises ReportFailed.
        """
        document = {
            "tier": "client",
            "listener": self._listener,
            "sender": sender,
            "version": version,
            "counts": dict(counts),
        }
        request = Request(self._url, json.dumps(document).encode(), self._headers)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                response.read()
        except urllib.error.HTTPError as error:
            # Limit: the text of an error quotes at most this much of an answer, whoever sent it.
            reason = refusal_in(error.read(1000))
            raise ReportFailed(f"the ledger at {self._url} answers {error.code}: {reason}") from None
        except OSError as error:
            raise ReportFailed(f"no ledger answers at {self._url}: {getattr(error, 'reason', error)}") from None


def refusal_in(response: bytes) -> str:
    """Return the reason of a refusal: the response's ``error``, otherwise its text."""
    text = response.decode(errors="replace").strip()
    try:
        return str(parse_object(text)["error"])
    except (ValueError, KeyError):
        return text
