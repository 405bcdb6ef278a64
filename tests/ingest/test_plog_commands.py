"""Commands: answered to those who may ask."""

from __future__ import annotations

import json

import pytest

from penstock import __version__
from penstock.config import ListenerConfig
from penstock.ingest.plog_commands import Commands
from penstock.wire.plog.statistics import Statistics


def commands(**more: object) -> Commands:
    listener = ListenerConfig.model_validate({"name": "events", "protocol": "udp", **more})
    statistics = Statistics()
    statistics.udp_simple_messages, statistics.v0_commands = 7, 3
    return Commands(listener, statistics.as_dict, lambda: [{"name": "log"}])


def test_ping_brings_its_trail_back() -> None:
    assert commands().answer("PING", b" me") == b"PONG me"


def test_stat_is_json_with_plogs_keys() -> None:
    stat = json.loads(commands().answer("STAT", b"") or b"")
    assert (stat["version"], stat["udp_simple_messages"], stat["handlers"]) == (__version__, 7, [{"name": "log"}])
    assert stat["uptime"] >= 0


def test_stat_leaves_out_commands_that_are_not_answered_yet() -> None:
    assert json.loads(commands().answer("STAT", b"", 2) or b"")["v0_commands"] == 1


def test_envi_is_the_listeners_configuration() -> None:
    assert json.loads(commands(port=99).answer("ENVI", b"") or b"")["port"] == 99


def test_envi_masks_secrets() -> None:
    producer = {"bootstrap.servers": "b:9092", "sasl.password": "hush"}
    encryption = {"algorithm": "AES", "key": "0123456789abcdef"}
    kafka = {"type": "kafka", "default_topic": "t", "producer": producer, "encryption": encryption}
    answer = commands(handlers=[kafka]).answer("ENVI", b"") or b""
    (reply,) = json.loads(answer)["handlers"]
    assert reply["producer"]["bootstrap.servers"] == "b:9092"
    assert b"hush" not in answer
    assert b"0123456789abcdef" not in answer


def test_kill_is_not_obeyed_unless_configured() -> None:
    assert commands().answer("KILL", b"") is None


@pytest.mark.parametrize(
    ("address", "networks", "allowed"),
    [
        ("127.0.0.1", ["127.0.0.0/8"], True),
        ("10.1.2.3", ["127.0.0.0/8"], False),
        ("10.1.2.3", ["127.0.0.0/8", "10.0.0.0/8"], True),
        ("::1", ["127.0.0.0/8"], False),
        ("::1", ["::1/128"], True),
        ("::ffff:127.0.0.1", ["127.0.0.0/8"], True),
        ("fe80::1%eth0", ["fe80::/10"], True),
    ],
)
def test_only_listed_networks_may_send_commands(address: str, networks: list[str], allowed: bool) -> None:
    assert commands(commands_from=networks).is_allowed(address) is allowed
