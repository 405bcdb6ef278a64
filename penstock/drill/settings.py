"""A copy of a configuration that is isolated: own folder, own ports, no foreign handlers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.config import DiscardHandler, ForwardedHandler, HandlerConfig, KafkaHandler, ListenerConfig, Settings
from penstock.handover.frames.frame_size import frame_length, min_frame_length
from penstock.testing.pipe import free_ports

LOOPBACK = "127.0.0.1"
KAFKA_TOPIC = "drill"


def isolate_settings(settings: Settings, data_dir: Path, kafka: str = "") -> tuple[Settings, list[str]]:
    """Return ``settings`` for a drill in ``data_dir``, and a line about each setting that is left out.

    ``kafka``: the broker's address; Kafka handlers send there, and the first listener gets one if there is none.
    """
    tree = settings.model_dump(mode="json")
    left_out = [
        f"{listener.name}: handler {handler.label} ({handler.type}) is replaced by one that discards"
        for listener in settings.listener
        for handler in listener.handlers
        if _is_foreign(handler, kafka)
    ]
    if settings.security.tokens or settings.security.tls_cert:
        left_out.append("tokens and TLS are off")
    http, grpc, flight = (f"{LOOPBACK}:{port}" for port in free_ports(3))
    tree |= {
        "data_dir": str(data_dir),
        # Every listener gets a free port on loopback, so a drill can run next to the real pipe.
        "listener": _with_kafka([_isolated_listener(listener, kafka) for listener in settings.listener], kafka),
        "log": tree["log"] | {"http": http, "grpc": grpc, "flight": flight, "kafka": ""},
        "buffer": tree["buffer"] | {"term_length": _term_length(settings)},
        "pipeline": tree["pipeline"] | {"tables": "", "storage_options": {}},
    }
    # Tokens, relays, exporters and alarms would reach users of the real pipe.
    for section in ("security", "relay", "otel", "alarms", "console"):
        del tree[section]
    return Settings.model_validate(tree), left_out


def _term_length(settings: Settings) -> int:
    """Return the smallest term that the listeners allow: it needs little disk, and slow readers fall behind soon."""
    length = settings.buffer.term_length
    while frame_length(length // 2) >= max(map(min_frame_length, settings.listener), default=length):
        length //= 2
    return length


def kafka_handlers(settings: Settings) -> dict[str, str]:
    """Return the label of each listener's Kafka handler."""
    return {
        listener.name: handler.label
        for listener in settings.listener
        for handler in listener.routed
        if isinstance(handler, KafkaHandler)
    }


def _is_foreign(handler: HandlerConfig, kafka: str) -> bool:
    """Report whether a handler reaches anything outside of the drill."""
    if isinstance(handler, KafkaHandler):
        return not kafka
    return isinstance(handler, ForwardedHandler) and handler.type not in ("console", "discard")


def _with_kafka(listeners: list[dict[str, Any]], kafka: str) -> list[dict[str, Any]]:
    handlers = [handler for listener in listeners for handler in listener["handlers"]]
    if kafka and listeners and not any(handler["type"] == "kafka" for handler in handlers):
        kafka_handler = {"type": "kafka", "default_topic": KAFKA_TOPIC, "producer": {"bootstrap.servers": kafka}}
        listeners[0]["handlers"].append(kafka_handler)
    return listeners


def _isolated_listener(listener: ListenerConfig, kafka: str) -> dict[str, Any]:
    handlers = [_isolated_handler(handler, kafka) for handler in listener.handlers]
    return listener.model_dump(mode="json") | {"host": LOOPBACK, "port": 0, "handlers": handlers}


def _isolated_handler(handler: HandlerConfig, kafka: str) -> dict[str, Any]:
    if isinstance(handler, KafkaHandler) and kafka:
        plain = {"producer": {"bootstrap.servers": kafka}, "encryption": None, "default_topic": KAFKA_TOPIC}
        return handler.model_dump(mode="json") | plain
    if not _is_foreign(handler, kafka):
        return handler.model_dump(mode="json")
    return DiscardHandler(type="discard", name=handler.label).model_dump(mode="json")
