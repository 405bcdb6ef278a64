"""Messages of ``Producer.produce_batch``, in the form of confluent_kafka."""

from __future__ import annotations

from typing import Any

BYTES = (bytes, bytearray, memoryview, str, type(None))


def check_batch(messages: object, serialized: bool) -> None:
    """Check that all messages can be sent; with ``serialized`` values may have any type.

    Raises TypeError with confluent_kafka's texts.
    """
    if not isinstance(messages, list):
        raise TypeError("messages must be a list")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise TypeError(f"Message at index {index} must be a dict")
        for name in ("value", "key"):
            if not serialized and not isinstance(message.get(name), BYTES):
                raise TypeError(f"Message {name} at index {index} must be bytes or str")
        for name in ("partition", "timestamp"):
            if not isinstance(message.get(name, 0), int | None):
                raise TypeError(f"Message {name} at index {index} must be int")


def produce_arguments(message: dict[str, Any], partition: int, on_delivery: Any) -> dict[str, Any]:
    """Return the arguments of ``produce`` for a message; ``partition`` and ``on_delivery`` are the batch's defaults."""
    message_partition, callback = message.get("partition"), message.get("callback")
    return {
        "value": message.get("value"),
        "key": message.get("key"),
        "partition": partition if message_partition is None else message_partition,
        "on_delivery": callback if callable(callback) else on_delivery,
        "timestamp": message.get("timestamp") or 0,
        "headers": message.get("headers"),
    }
