"""Warnings that large messages are the wrong means here, with the better one: the claim check.

A claim check is a message that says where the large one is stored (seed: "reference-based-messaging").
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from penstock.kafka.client import properties

_LOGGER = logging.getLogger(__name__)

ENOUGH = 100
"""Messages before their mixture tells anything."""
ASK_SECONDS = 10.0
CLAIM_CHECK = "store the messages elsewhere and send where they are (a claim check)"


class Advice:
    """What one producer is told, once for each topic. ``config`` is that of its plain producer."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = {key: value for key, value in config.items() if key in properties.CLIENT - {"stats_cb"}}
        self._topics: set[str] = set()
        self._told_mixture = False
        self.large = 0

    def saw_large(self, topic: str, messages: int) -> None:
        """One more of ``messages`` messages is in several segments."""
        self.large += 1
        if topic not in self._topics:
            self._topics.add(topic)
            threading.Thread(target=self._look_at, args=(topic,), daemon=True).start()
        if messages >= ENOUGH and 2 * self.large > messages and not self._told_mixture:
            self._told_mixture = True
            _LOGGER.warning(
                "%d of %d messages are large; where most are, it is better to %s", self.large, messages, CLAIM_CHECK
            )

    def _look_at(self, topic: str) -> None:
        try:
            policy = self._policy(topic)
        except Exception as error:  # noqa: BLE001 - not allowed to ask, or nobody answers: no advice
            _LOGGER.debug("the cleanup policy of %s is not known: %s", topic, error)
            return
        if "compact" in policy:
            _LOGGER.warning(
                "topic %s is compacted: segments of a large message share a key, so all but the last will be removed "
                "and the message is lost; %s",
                topic,
                CLAIM_CHECK,
            )

    def _policy(self, topic: str) -> str:
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]  # documented there

        admin = AdminClient({**self._config, "log_level": 0})
        asked = ConfigResource(ResourceType.TOPIC, topic)
        answer = admin.describe_configs([asked], request_timeout=ASK_SECONDS)[asked].result(ASK_SECONDS)
        return str(answer["cleanup.policy"].value)
