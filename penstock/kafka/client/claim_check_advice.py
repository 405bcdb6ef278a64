"""Warnings when large messages are the wrong means, with the better one: the claim check.

A claim check is a message that names the storage location of the large one (the "Claim Check" pattern of Enterprise
Integration Patterns; the README of li-apache-kafka-clients calls it reference-based messaging).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from penstock.kafka.client import properties

_LOGGER = logging.getLogger(__name__)

MIN_MESSAGES = 100
"""Messages before their mixture is judged."""
ADMIN_TIMEOUT_S = 10.0
CLAIM_CHECK = "store them elsewhere and send their location (a claim check)"


class ClaimCheckAdvice:
    """Warnings of one producer, each given once per topic; ``config`` is that of its plain producer."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = {key: value for key, value in config.items() if key in properties.CLIENT - {"stats_cb"}}
        self._topics: set[str] = set()
        self._warned_of_mixture = False
        self.large = 0

    def count_large(self, topic: str, messages: int) -> None:
        """Count one of ``messages`` messages as large, and warn if due."""
        self.large += 1
        if topic not in self._topics:
            self._topics.add(topic)
            # On a thread of its own: the admin request must not delay a produce call.
            threading.Thread(target=self._warn_if_compacted, args=(topic,), daemon=True).start()
        if messages >= MIN_MESSAGES and 2 * self.large > messages and not self._warned_of_mixture:
            self._warned_of_mixture = True
            _LOGGER.warning("producer: %d of %d messages are large; if most are, %s", self.large, messages, CLAIM_CHECK)

    def _warn_if_compacted(self, topic: str) -> None:
        try:
            policy = self._cleanup_policy(topic)
        except Exception as error:  # noqa: BLE001 - not authorized, or no answer: no advice
            _LOGGER.debug("producer: cleanup policy of topic %s unknown: %s", topic, error)
            return
        if "compact" in policy:
            _LOGGER.warning(
                "producer: topic %s is compacted: the chunks of a large message share a key, so compaction removes "
                "all but the last and the message is lost; %s",
                topic,
                CLAIM_CHECK,
            )

    def _cleanup_policy(self, topic: str) -> str:
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]  # documented there

        admin = AdminClient({**self._config, "log_level": 0})
        resource = ConfigResource(ResourceType.TOPIC, topic)
        configuration = admin.describe_configs([resource], request_timeout=ADMIN_TIMEOUT_S)[resource].result(
            ADMIN_TIMEOUT_S
        )
        return str(configuration["cleanup.policy"].value)
