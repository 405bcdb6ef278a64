"""Keys of listeners: what fits which protocol."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.config import ListenerConfig
from penstock.config.keys.secrets import MASK, masked


def listener(protocol: str = "http", **more: Any) -> ListenerConfig:
    return ListenerConfig.model_validate({"name": "web", "protocol": protocol, **more})


@pytest.mark.parametrize("protocol", ["http", "otlp_grpc"])
def test_listeners_of_requests_speak_tcp_and_answer(protocol: str) -> None:
    made = listener(protocol, tokens=["a b"], allow_from=["10.0.0.0/8", "::1"])
    assert made.asks_answers
    assert made.transport == "tcp"
    assert masked(made)["tokens"] == MASK


@pytest.mark.parametrize(
    ("protocol", "key", "value", "told"),
    [
        ("tcp", "tokens", ["x"], "tokens are for http"),
        ("udp", "allow_from", ["10.0.0.1/8"], "has host bits set"),
        ("http", "codec", "syslog", "codec is for udp and tcp"),
        ("http", "framing", "lf", "multiline and framing"),
        ("otlp_grpc", "multiline", {"indented": True}, "multiline and framing"),
        ("http", "max_body", "100MiB", "max_unfinished is less than one request"),
        ("http", "tokens", [""], "a token is some printable"),
        ("http", "allow_from", ["nowhere"], "nowhere"),
    ],
)
def test_what_does_not_fit_is_named(protocol: str, key: str, value: Any, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        listener(protocol, **{key: value})
