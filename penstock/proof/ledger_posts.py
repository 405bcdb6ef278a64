"""Posting proofs to the ledger over HTTP."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import httpx

from penstock.config import Settings
from penstock.config.daemon_access import Access
from penstock.errors import PenstockError
from penstock.proof.proofs import BackfillProof, Proof

TIER = "landed"
TIMEOUT = 5.0
"""Seconds. The daemon is on the same machine, or near."""
REFUSALS = (400, 404, 422)


class LedgerAway(PenstockError):
    """The log daemon cannot be reached, or does not answer as it should: try again later."""


class LedgerRefused(PenstockError):
    """The daemon understood and said no: trying again would not help."""


class LedgerClient:
    """The part of the daemon's HTTP interface that the pipeline uses.

    ``address`` is ``host:port`` or a URL; ``headers`` and ``verify`` are httpx's (see ``Access``).
    """

    def __init__(
        self, address: str, headers: Mapping[str, str] | None = None, verify: ssl.SSLContext | bool = True
    ) -> None:
        url = address if "://" in address else f"http://{address}"
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT, headers=headers, verify=verify, trust_env=False)

    @classmethod
    def of(cls, settings: Settings) -> LedgerClient:
        """The client of the daemon of these settings."""
        access = Access(settings)
        return cls(access.http_url, access.headers, access.verify)

    def through(self) -> dict[str, int]:
        """For each topic the offset up to which the ledger has counts. Raises LedgerAway."""
        answer = self._ask("GET", "/ledger", params={"tier": TIER})
        try:
            return {str(topic): int(entry["through"]) for topic, entry in answer["topics"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LedgerAway(f"GET /ledger: unexpected answer ({error!r})") from None

    def deletions(self) -> dict[str, int]:
        """For each topic the last deletion that the ledger knows of. Raises LedgerAway."""
        answer = self._ask("GET", "/ledger", params={"tier": TIER})
        try:
            return {str(topic): int(entry.get("deletion", 0)) for topic, entry in answer["topics"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LedgerAway(f"GET /ledger: unexpected answer ({error!r})") from None

    def post(self, proof: Proof, end: int = 0) -> None:
        """The counts of a batch of one topic, and how far the topic is proved. Raises LedgerAway, LedgerRefused.

        ``end``: where the topic ends, if the ledger cannot know (a partition of Kafka).
        """
        document = proof.document()
        body = {
            "tier": TIER,
            "topic": proof.topic,
            "version": proof.batch,
            "through": proof.end,
            "counts": document["counts"],
            **({"end": end} if end else {}),
        }
        self._ask("POST", "/ledger", json=body)

    def post_refill(self, refill: BackfillProof) -> None:
        """The counts of offsets that landed out of turn. Raises LedgerAway, LedgerRefused."""
        document = refill.document()
        told = {name: document[name] for name in ("topic", "counts", "refill", "ahead")}
        self._ask("POST", "/ledger", json={"tier": TIER, "version": refill.proof.batch, "through": 0, **told})

    def tell(self, document: Mapping[str, Any]) -> None:
        """A post as it is. Raises LedgerAway, LedgerRefused."""
        self._ask("POST", "/ledger", json=document)

    def watermarks(self) -> list[dict[str, Any]]:
        """How far each table is complete. Raises LedgerAway."""
        answer = self._ask("GET", "/watermarks")
        try:
            return list(answer["tables"])
        except (KeyError, TypeError) as error:
            raise LedgerAway(f"GET /watermarks: unexpected answer ({error!r})") from None

    def clock(self) -> dict[str, Any]:
        """Return the daemon's judgement on its clock. Raises LedgerAway."""
        return dict(self._ask("GET", "/clock"))

    def verify(self, topic: str, begin: int, end: int) -> None:
        """Have the daemon check offsets [begin, end) of a topic, so that corrupt batches become gaps.

        Raises LedgerAway, LedgerRefused.
        """
        self._ask("POST", f"/topic/{topic}/verify", params={"begin": begin, "end": end})

    def close(self) -> None:
        self._http.close()

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        try:
            answer = self._http.request(method, path, **request)
            answer.raise_for_status()
            return answer.json() if answer.content else {}
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            refused = method == "POST" and status in REFUSALS
            text = f"{method} {path}: {status} {error.response.text[:200]}"
            raise (LedgerRefused(text) if refused else LedgerAway(text)) from None
        except (httpx.HTTPError, ValueError) as error:
            raise LedgerAway(f"{method} {path}: {error or type(error).__name__}") from None
