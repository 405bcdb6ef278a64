"""The pipeline's client of the ledger, over HTTP."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import httpx

from penstock.config import PipelineConfig, Settings
from penstock.config.daemon_access import Access
from penstock.config.reloadable import FOLLOWED
from penstock.errors import PenstockError
from penstock.proof.proofs import BackfillProof, Proof

TIER = "landed"
TIMEOUT_S = 5.0
"""Limit: the daemon is on the same machine or in the same network, and the proof worker retries."""
REFUSAL_STATUSES = (400, 404, 422)


class LedgerAway(PenstockError):
    """The log daemon is unreachable or answers unexpectedly: retry later."""


class LedgerRefused(PenstockError):
    """The daemon refused a request: a retry would not help."""


class LedgerClient:
    """The part of the daemon's HTTP interface that the pipeline uses.

    ``address`` is ``host:port`` or a URL; ``headers`` and ``verify`` are httpx's (see ``Access``).
    """

    def __init__(
        self, address: str, headers: Mapping[str, str] | None = None, verify: ssl.SSLContext | bool = True
    ) -> None:
        url = address if "://" in address else f"http://{address}"
        # trust_env: requests to the daemon must not go to a proxy of the environment.
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_S, headers=headers, verify=verify, trust_env=False)

    @classmethod
    def from_settings(cls, settings: Settings) -> LedgerClient:
        """Return the client of the daemon in these settings."""
        access = Access(settings)
        return cls(access.http_url, access.headers, access.verify)

    def through(self) -> dict[str, int]:
        """Return the offset of each topic up to which the ledger has counts. Raises LedgerAway."""
        answer = self._request("GET", "/ledger", params={"tier": TIER})
        try:
            return {str(topic): int(entry["through"]) for topic, entry in answer["topics"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LedgerAway(f"GET /ledger: unexpected answer ({error!r})") from None

    def deletions(self) -> dict[str, int]:
        """Return the last deletion of each topic that the ledger has. Raises LedgerAway."""
        answer = self._request("GET", "/ledger", params={"tier": TIER})
        try:
            return {str(topic): int(entry.get("deletion", 0)) for topic, entry in answer["topics"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LedgerAway(f"GET /ledger: unexpected answer ({error!r})") from None

    def post(self, proof: Proof, end: int = 0, after: int = 0) -> None:
        """Post the counts of a batch of one topic, and the offset up to which it is proved. Raises LedgerAway,
        LedgerRefused.

        ``end``: the end of a partition of Kafka, which the ledger cannot know; 0 for a topic of the log. ``after``: the
        offset up to which the ledger had counts; LedgerAway if it has lost them.
        """
        document = proof.document()
        body = {
            "tier": TIER,
            "topic": proof.topic,
            "version": proof.batch,
            "through": proof.end,
            "counts": document["counts"],
            **({"end": end} if end else {}),
            **({"after": after} if after else {}),
        }
        self._request("POST", "/ledger", json=body)

    def post_backfill(self, backfill: BackfillProof) -> None:
        """Post the counts of offsets that landed out of turn. Raises LedgerAway, LedgerRefused."""
        document = backfill.document()
        fields = {name: document[name] for name in ("topic", "counts", "refill", "ahead")}
        self._request("POST", "/ledger", json={"tier": TIER, "version": backfill.proof.batch, "through": 0, **fields})

    def post_document(self, document: Mapping[str, Any]) -> bool:
        """Post a document; return whether it was new, or for ends of partitions whether a host is compared by them.

        Raises LedgerAway, LedgerRefused.
        """
        return bool(self._request("POST", "/ledger", json=document).get("new"))

    def watermarks(self) -> list[dict[str, Any]]:
        """Return the watermark of each table. Raises LedgerAway."""
        answer = self._request("GET", "/watermarks")
        try:
            return list(answer["tables"])
        except (KeyError, TypeError) as error:
            raise LedgerAway(f"GET /watermarks: unexpected answer ({error!r})") from None

    def clock(self) -> dict[str, Any]:
        """Return the daemon's judgement on its clock. Raises LedgerAway."""
        return dict(self._request("GET", "/clock"))

    def followed_settings(self) -> PipelineConfig:
        """Return the keys of ``FOLLOWED`` as the daemon has them after reloads. Raises LedgerAway."""
        answer = self._request("GET", "/config")
        try:
            return PipelineConfig.model_validate({key: answer["pipeline"][key] for key in FOLLOWED})
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerAway(f"GET /config: unexpected answer ({error!r})") from None

    def verify(self, topic: str, begin: int, end: int) -> None:
        """Have the daemon check offsets [begin, end) of a topic, so that corrupt batches become gaps.

        Raises LedgerAway, LedgerRefused.
        """
        self._request("POST", f"/topic/{topic}/verify", params={"begin": begin, "end": end})

    def close(self) -> None:
        self._http.close()

    def _request(self, method: str, path: str, **request: Any) -> Any:
        try:
            response = self._http.request(method, path, **request)
            response.raise_for_status()
            return response.json() if response.content else {}
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            # Other statuses, such as 401 or 503, are of the daemon's state and not of the post: the worker tries
            # again.
            refused = method == "POST" and status in REFUSAL_STATUSES
            text = f"{method} {path}: {status} {error.response.text[:200]}"
            raise (LedgerRefused(text) if refused else LedgerAway(text)) from None
        except (httpx.HTTPError, ValueError) as error:
            raise LedgerAway(f"{method} {path}: {error or type(error).__name__}") from None
