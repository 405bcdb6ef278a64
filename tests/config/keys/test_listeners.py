"""Keys of listeners and their protocols."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.config import ListenerConfig
from penstock.config.keys.secrets import MASK, masked


def listener(protocol: str = "http", **keys: Any) -> ListenerConfig:
    return ListenerConfig.model_validate({"name": "web", "protocol": protocol, **keys})


@pytest.mark.parametrize("protocol", ["http", "otlp_grpc"])
def test_request_listeners_use_tcp_and_respond(protocol: str) -> None:
    listener_config = listener(protocol, tokens=["a b"], allow_from=["10.0.0.0/8", "::1"])
    assert listener_config.has_responses
    assert listener_config.transport == "tcp"
    assert masked(listener_config)["tokens"] == MASK


@pytest.mark.parametrize(
    ("protocol", "key", "value", "message"),
    [
        ("tcp", "tokens", ["x"], "tokens are for http"),
        ("udp", "senders", "host", "senders = host is for codec syslog only"),
        ("http", "senders", "host", "senders = host is for codec syslog only"),
        ("udp", "senders", "name", "senders"),
        ("udp", "expect", -1, "expect"),
        ("udp", "expect", 1.9, "expect must be at least 2 s: arrivals are noted once a second"),
        ("udp", "allow_from", ["10.0.0.1/8"], "has host bits set"),
        ("http", "codec", "syslog", "codec is for udp and tcp"),
        ("http", "framing", "lf", "multiline and framing"),
        ("otlp_grpc", "multiline", {"indented": True}, "multiline and framing"),
        ("http", "max_body", "200MiB", "max_unfinished is less than one request"),
        ("http", "allow_origins", ["app.example"], "is neither"),
        ("tcp", "allow_origins", ["*"], "allow_origins is for http"),
        ("http", "tokens", [""], "a token consists of printable"),
        ("http", "allow_from", ["nowhere"], "nowhere"),
    ],
)
def test_setting_of_another_protocol_is_an_error(protocol: str, key: str, value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        listener(protocol, **{key: value})


def test_path_of_a_socket_that_the_system_cannot_bind_is_refused() -> None:
    keys: dict[str, Any] = {"name": "host", "protocol": "unix_datagram"}
    longest = "/" + "ü" * 53
    ListenerConfig.model_validate(keys | {"path": longest})
    with pytest.raises(ValueError, match="path has more than 107 bytes"):
        ListenerConfig.model_validate(keys | {"path": f"{longest}x"})
