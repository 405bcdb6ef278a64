"""Kafka: messages of any size, encrypted ones, and where they go.

``Producer`` and ``Consumer`` need confluent-kafka, which is an extra; the rest does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.kafka.client.consumer import Consumer
    from penstock.kafka.client.producer import Producer

__all__ = ["Consumer", "Producer"]


def __getattr__(name: str) -> Any:
    if name == "Consumer":
        from penstock.kafka.client.consumer import Consumer

        return Consumer
    if name == "Producer":
        from penstock.kafka.client.producer import Producer

        return Producer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
