"""Keys of relays."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.config import ConfigError, RelayConfig, Settings, load
from penstock.config.keys.relay import HOST_PATTERN, MAX_HOST_LENGTH

KEYS: dict[str, Any] = {"name": "up", "topic": "events", "to": "127.0.0.1:1"}


def test_single_topic_is_a_list_of_one() -> None:
    assert RelayConfig(**KEYS).topic == ("events",)
    assert RelayConfig(**{**KEYS, "topic": ["a", "b"]}).topic == ("a", "b")


def test_name_of_the_machine_is_a_valid_host() -> None:
    name = RelayConfig(**KEYS).host_name
    assert 0 < len(name) <= MAX_HOST_LENGTH
    assert re.match(HOST_PATTERN, name)
    assert RelayConfig(**{**KEYS, "host": "web1"}).host_name == "web1"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"topic": []}, "topic is missing, or kafka = true"),
        ({"topic": ["a", "a"]}, "topic has a name twice"),
        ({"topic": "_ledger"}, "reserved for internal topics"),
        ({"host": "a/b"}, "pattern"),
        ({"host": "h" * 21}, "20 characters"),
        ({"to": "nowhere"}, "nowhere"),
        ({"tls_cert": "c", "tls": True}, "need each other"),
        ({"tls_name": "central"}, "need tls or tls_ca"),
        ({"to": "192.0.2.1:8845", "token_file": "t"}, "others on the network could read the token"),
    ],
    ids=str,
)
def test_bad_relay_is_refused_with_a_reason(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RelayConfig(**{**KEYS, **wrong})


def test_two_relays_with_one_name_and_a_relay_to_itself_are_refused() -> None:
    relay = '{name="up", topic="a", to="127.0.0.1:1"}'
    with pytest.raises(ConfigError, match="two relays have the name 'up'"):
        load(None, [f"relay=[{relay}, {relay}]"])
    with pytest.raises(ConfigError, match=r"relay\.up\.to is this Penstock"):
        load(None, ["log.grpc=127.0.0.1:1", f"relay=[{relay}]"])


def test_relay_that_posts_counts_of_kafka_needs_no_topic_and_the_host_of_the_handlers() -> None:
    producer = {"bootstrap.servers": "127.0.0.1:1"}
    kafka = {"type": "kafka", "default_topic": "t", "origin_header": True, "host": "web1", "producer": producer}
    listener = {"name": "udp", "protocol": "udp", "port": 0, "handlers": [kafka]}
    relay = {"name": "up", "kafka": True, "to": "127.0.0.1:1", "host": "web1"}
    assert Settings.model_validate({"listener": [listener], "relay": [relay]}).relay[0].topic == ()
    with pytest.raises(ValueError, match=r"relay.up.host is web2, and the handler of listener udp names the host web1"):
        Settings.model_validate({"listener": [listener], "relay": [{**relay, "host": "web2"}]})
    twice = {**listener, "handlers": [{**kafka, "name": "a"}, {**kafka, "name": "b"}]}
    with pytest.raises(ValueError, match=r"relay.up.kafka: listener udp has two origin_header"):
        Settings.model_validate({"listener": [twice], "relay": [relay]})


@pytest.mark.parametrize(
    ("to", "listening", "is_loop"),
    [
        ("localhost:7", "127.0.0.1:7", True),
        ("127.0.0.3:7", "0.0.0.0:7", True),
        ("127.0.0.1:8", "127.0.0.1:7", False),
        ("127.0.0.2:7", "127.0.0.1:7", False),
        ("192.0.2.1:7", "0.0.0.0:7", False),
    ],
)
def test_relay_to_an_own_address_in_other_words_is_refused(to: str, listening: str, is_loop: bool) -> None:
    keys = {"relay": [KEYS | {"to": to}], "log": {"grpc": listening}, "security": {"insecure": True}}
    if is_loop:
        with pytest.raises(ValueError, match="is this Penstock"):
            Settings.model_validate(keys)
    else:
        Settings.model_validate(keys)
