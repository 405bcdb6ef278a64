"""What all clients of Kafka's protocol together may take: connections, and bytes of requests under way."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.process.in_flight_bytes import InFlightBytes

LARGEST = 100 << 20
"""Bytes of one request; Kafka's own limit."""
IDLE = 600.0
"""Seconds after which a silent connection is closed."""


@dataclass(slots=True)
class KafkaLimits(InFlightBytes):
    """Requests under way, and so many ``connections`` at once."""

    connections: int = 1000
