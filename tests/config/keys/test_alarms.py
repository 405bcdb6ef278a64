"""Destinations of alarms are checked, and what is wrong with them is said without their secrets."""

from __future__ import annotations

import pytest

from penstock.config import ConfigError, load
from penstock.config.keys.alarms import AlarmsConfig


@pytest.mark.parametrize(
    ("webhook", "reason"),
    [
        ("hooks.example.org/hunter2", "is not an address"),
        ("ftp://hooks.example.org/hunter2", "is not an address"),
        ("http://user:hunter2@hooks.example.org/", "has a user or password"),
        ("https://hunter2@hooks.example.org/", "has a user or password"),
        ("http://hooks.example.org/services/T0 hunter2", "has spaces or characters outside ASCII"),
        ("http://hooks.example.org/services/T0\u00e9hunter2", "has spaces or characters outside ASCII"),
        ("http://hooks.example.org/hunter2\r\nX-Header: 1", "has spaces or characters outside ASCII"),
        ("http://hooks.example.org:hunter2/x", "has no host, or an invalid port"),
        ("http://hooks.example.org:99999/hunter2", "has no host, or an invalid port"),
        ("http:///hunter2", "has no host, or an invalid port"),
        ("http://[::1/hunter2", "has no host, or an invalid port"),
    ],
)
def test_webhook_that_cannot_be_used_is_refused_without_being_repeated(webhook: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(None, [f"alarms.webhook={webhook}"])
    assert f"alarms.webhook: {reason}" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_command_that_cannot_be_split_is_refused_without_being_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        load(None, ["alarms.command=tell --token 'hunter2"])
    assert "alarms.command: is not a command: No closing quotation" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "webhook", ["", "http://127.0.0.1:28581/x", "https://[::1]:1/a%20b?c=d", "https://h.example/T0"]
)
def test_webhook_with_host_port_path_and_query_is_taken(webhook: str) -> None:
    assert AlarmsConfig(webhook=webhook).webhook == webhook
