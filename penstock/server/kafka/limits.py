"""Limits that all Kafka clients share: connections, and bytes of requests in flight."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.process.servers.in_flight_bytes import InFlightBytes

MAX_REQUEST_BYTES = 100 << 20
"""Limit: bytes of one request; Kafka's own default (``socket.request.max.bytes``)."""
IDLE_TIMEOUT_S = 600.0
"""Time after which a silent connection is closed; the default of Kafka brokers (``connections.max.idle.ms``)."""


@dataclass(slots=True)
class KafkaLimits(InFlightBytes):
    """Budget for requests in flight, and the number of ``connections`` at a time. Owned by one event loop."""

    connections: int = 1000
