"""A copy of a configuration that touches nothing and reaches nobody: own folder, own ports, no foreign handlers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.config import DiscardHandler, ForwardedHandler, HandlerConfig, ListenerConfig, Settings
from penstock.handover.frame import frame_length, least_frame
from penstock.testing.pipe import free_ports

HERE = "127.0.0.1"


def copied(settings: Settings, data_dir: Path) -> tuple[Settings, list[str]]:
    """``settings`` for a drill in ``data_dir``, and what they leave out, in words."""
    tree = settings.model_dump(mode="json")
    left_out = [
        f"{listener.name}: handler {handler.label} ({handler.type}) is replaced by one that discards"
        for listener in settings.listener
        for handler in listener.handlers
        if _is_foreign(handler)
    ]
    if settings.security.tokens or settings.security.tls_cert:
        left_out.append("tokens and TLS are off")
    http, grpc, flight = (f"{HERE}:{port}" for port in free_ports(3))
    tree |= {
        "data_dir": str(data_dir),
        "listener": [_listener(one) for one in settings.listener],
        "log": tree["log"] | {"http": http, "grpc": grpc, "flight": flight},
        "buffer": tree["buffer"] | {"term_length": _term_length(settings)},
        "pipeline": tree["pipeline"] | {"tables": None},
    }
    for section in ("security", "otel", "console"):
        del tree[section]
    return Settings.model_validate(tree), left_out


def _term_length(settings: Settings) -> int:
    """The least that the listeners can have: little disk, and readers that lag are met soon."""
    length = settings.buffer.term_length
    while frame_length(length // 2) >= max(map(least_frame, settings.listener), default=length):
        length //= 2
    return length


def _is_foreign(handler: HandlerConfig) -> bool:
    """Whether a handler reaches something outside of the pipe."""
    return isinstance(handler, ForwardedHandler) and handler.type not in ("console", "discard")


def _listener(listener: ListenerConfig) -> dict[str, Any]:
    handlers = [_handler(one) for one in listener.handlers]
    return listener.model_dump(mode="json") | {"host": HERE, "port": 0, "handlers": handlers}


def _handler(handler: HandlerConfig) -> dict[str, Any]:
    if not _is_foreign(handler):
        return handler.model_dump(mode="json")
    return DiscardHandler(type="discard", name=handler.label).model_dump(mode="json")
