"""Posts of the ends of all partitions that a pipeline lands from Kafka to the ledger.

What hosts had forwarded before the ends were read has landed once the landing has reached them.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.kafka.errors import KafkaAway
from penstock.landing.from_kafka.partitions import KafkaPartitions
from penstock.ledger.hosts.kafka_hosts import ENDS_TIER
from penstock.proof.posts.ledger_client import LedgerRefused

POST_INTERVAL_S = 5.0
"""Interval of posts: a message that did not land is named some twenty seconds after it was sent."""
IDLE_INTERVAL_S = 30.0
"""Interval while no host is registered, or Kafka does not answer."""
ANSWER_TIMEOUT_S = 2.0
"""Limit: proofs wait for this answer of Kafka."""
_LOGGER = logging.getLogger(__name__)


class Ledger(Protocol):
    """The ledger's interface for documents. Raises LedgerAway and LedgerRefused."""

    def post_document(self, document: Mapping[str, Any]) -> bool: ...


class EndsPosts:
    """The posts of one pipeline, which ``id_file`` names. One thread."""

    def __init__(self, kafka: Mapping[str, str], patterns: Sequence[str], id_file: Path) -> None:
        self._partitions, self._patterns, self._id_file = KafkaPartitions(kafka), patterns, id_file
        self._due_at = 0.0
        self._refusal = ""
        self._leaderless: tuple[str, ...] = ()

    def post_if_due(self, ledger: Ledger) -> None:
        """Read the ends and post them if the interval is over. Raises LedgerAway and OSError."""
        if time.monotonic() < self._due_at:
            return
        began_at, is_awaited = time.monotonic(), False
        with suppress(KafkaAway):
            ends = {name: view.end for name, view in self._partitions.views(self._patterns, ANSWER_TIMEOUT_S).items()}
            # Order: whatever a host had forwarded before the request is before these ends, so their age counts from it.
            age_ms = math.ceil((time.monotonic() - began_at) * 1000) + 1
            document = {"tier": ENDS_TIER, "pipeline": pipeline_id(self._id_file), "ends": ends, "age_ms": age_ms}
            is_awaited = self._post(ledger, document)
        self._log_leaderless()
        self._due_at = time.monotonic() + (POST_INTERVAL_S if is_awaited else IDLE_INTERVAL_S)

    def _log_leaderless(self) -> None:
        """Name the partitions without a leader when they change: their records do not land, and the others do."""
        if self._partitions.leaderless == self._leaderless:
            return
        self._leaderless = self._partitions.leaderless
        if self._leaderless:
            _LOGGER.warning("%s; the other partitions land", self._partitions.problem)
        else:
            _LOGGER.info("Kafka: each partition has a leader again")

    def _post(self, ledger: Ledger, document: Mapping[str, Any]) -> bool:
        try:
            is_awaited = ledger.post_document(document)
        except LedgerRefused as error:
            if str(error) != self._refusal:
                self._refusal = str(error)
                _LOGGER.error(
                    "the ledger refused the ends of Kafka's partitions, so no message of a host can be named as "
                    "missing: %s",
                    error,
                )
            return False
        self._refusal = ""
        return is_awaited


def pipeline_id(path: Path) -> str:
    """Return the id of the pipeline of these tables, which is created once. Raises OSError."""
    with suppress(FileNotFoundError, DamagedFile, UnknownFormat, KeyError):
        return str(read_document(path)["pipeline"])
    write_document(path, {"pipeline": uuid.uuid4().hex})
    return pipeline_id(path)
