"""Posting proofs to the ledger over HTTP."""

from __future__ import annotations

from typing import Any

import httpx

from penstock.spark.prover import Proof

TIER = "landed"
TIMEOUT = 5.0
"""Seconds. The daemon is on the same machine, or near."""


class LedgerAway(Exception):
    """The log daemon cannot be reached, or does not answer as it should: try again later."""


class LedgerClient:
    """The part of the daemon's HTTP interface that the pipeline uses; ``address`` is ``host:port``."""

    def __init__(self, address: str, token: str = "") -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=f"http://{address}", timeout=TIMEOUT, headers=headers, trust_env=False)

    def versions(self) -> dict[str, int]:
        """For each topic the last batch whose counts the ledger has. Raises LedgerAway."""
        answer = self._ask("GET", "/ledger", params={"tier": TIER})
        try:
            return {str(topic): int(entry["version"]) for topic, entry in answer["topics"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LedgerAway(f"GET /ledger: unexpected answer ({error!r})") from None

    def post(self, proof: Proof) -> None:
        """The counts of a batch of one topic, and how far the topic is proved. Raises LedgerAway."""
        document = proof.document()
        body = {
            "tier": TIER,
            "topic": proof.topic,
            "version": proof.batch,
            "through": proof.end,
            "counts": document["counts"],
        }
        self._ask("POST", "/ledger", json=body)

    def verify(self, topic: str, begin: int, end: int) -> None:
        """Have the daemon check offsets [begin, end) of a topic, so that corrupt batches become gaps.

        Raises LedgerAway.
        """
        self._ask("POST", f"/topic/{topic}/verify", json={"begin": begin, "end": end})

    def close(self) -> None:
        self._http.close()

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        try:
            answer = self._http.request(method, path, **request)
            answer.raise_for_status()
            return answer.json() if answer.content else {}
        except httpx.HTTPStatusError as error:
            text = error.response.text[:200]
            raise LedgerAway(f"{method} {path}: {error.response.status_code} {text}") from None
        except (httpx.HTTPError, ValueError) as error:
            raise LedgerAway(f"{method} {path}: {error or type(error).__name__}") from None
