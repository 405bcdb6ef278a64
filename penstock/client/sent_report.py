"""What senders have sent, told to the ledger, so that the balance knows what the network lost."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping

from penstock.errors import PenstockError
from penstock.files.json_values import parse_object


class ReportFailed(PenstockError, OSError):
    """The ledger did not take a report; the text says why."""


class LedgerReport:
    """Where senders to ``listener`` report to: the daemon's HTTP address ``http`` (``host:port`` or URL).

    ``token`` is a bearer token where the daemon asks for one, ``context`` says whom to trust where it speaks TLS.
    May serve many senders.
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
        self._listener, self._timeout, self._context = listener, timeout, context
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def post(self, sender: str, version: int, counts: Mapping[str, int]) -> None:
        """Tell the ``counts`` over the life of ``sender``: ``datagrams`` or ``lines``, ``messages``.

        The highest ``version`` counts: one that is lost or comes twice changes nothing. Raises ReportFailed.
        """
        document = {
            "tier": "client",
            "listener": self._listener,
            "sender": sender,
            "version": version,
            "counts": dict(counts),
        }
        request = urllib.request.Request(self._url, json.dumps(document).encode(), self._headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout, context=self._context) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            why = refusal_in(error.read(1000))
            raise ReportFailed(f"the ledger at {self._url} answers {error.code}: {why}") from None
        except OSError as error:
            raise ReportFailed(f"no ledger answers at {self._url}: {getattr(error, 'reason', error)}") from None


def refusal_in(answer: bytes) -> str:
    """What an answer says of why it refuses: its ``error``, else its text."""
    text = answer.decode(errors="replace").strip()
    try:
        return str(parse_object(text)["error"])
    except (ValueError, KeyError):
        return text
