"""The messages of ``Producer.produce_batch``, as ``confluent_kafka`` takes them."""

from __future__ import annotations

from typing import Any

BYTES = (bytes, bytearray, memoryview, str, type(None))


def check_batch(messages: object, serialized: bool) -> None:
    """Whether all of ``messages`` can be sent as they are; where they are ``serialized`` first, values may be anything.

    Raises TypeError, in confluent_kafka's words.
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


def arguments(message: dict[str, Any], partition: int, on_delivery: Any) -> dict[str, Any]:
    """What ``produce`` takes for one of them; ``partition`` and ``on_delivery`` are those of the batch."""
    own, callback = message.get("partition"), message.get("callback")
    return {
        "value": message.get("value"),
        "key": message.get("key"),
        "partition": partition if own is None else own,
        "on_delivery": callback if callable(callback) else on_delivery,
        "timestamp": message.get("timestamp") or 0,
        "headers": message.get("headers"),
    }
