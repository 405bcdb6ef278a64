"""Addresses and commands on pages without data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Settings
from penstock.config.keys.listeners import ListenerConfig
from penstock.console.components.empty_states import command, first_message_html, listener_address


def listener(**keys: Any) -> ListenerConfig:
    return ListenerConfig.model_validate({"name": "web", "protocol": "udp", **keys})


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({}, "echo hello | penstock send --listener web"),
        ({"protocol": "tcp", "codec": "syslog"}, "logger -n 127.0.0.1 -P 4 -T hello"),
        ({"codec": "syslog"}, "logger -n 127.0.0.1 -P 4 -d hello"),
        ({"codec": "gelf"}, ""),
        ({"protocol": "http", "tokens": ["secret"]}, ""),
        ({"protocol": "otlp_grpc"}, ""),
    ],
)
def test_command_fits_the_listener(keys: dict[str, Any], text: str) -> None:
    assert command(listener(**keys), "127.0.0.1:4") == text


def test_command_for_http_sends_an_event() -> None:
    text = command(listener(protocol="http"), "[::1]:4318")
    assert text.startswith("curl -d '{")
    assert text.endswith("}' http://[::1]:4318/")
    assert json.loads(text.split("'")[1])["type"] == "test"


def test_address_is_the_published_one() -> None:
    assert listener_address(listener(port=0), {}) == ""
    assert listener_address(listener(port=0), {"web": ["0.0.0.0", 5]}) == "127.0.0.1:5"
    assert listener_address(listener(host="::1", port=7), {}) == "[::1]:7"


def test_page_has_a_row_per_listener_with_buttons_that_copy(tmp_path: Path) -> None:
    html = first_message_html(Settings(data_dir=tmp_path))
    assert html.count("<tr>") == 1 + len(Settings().listener)
    assert 'data-copy="echo hello | penstock send --listener events-udp"' in html
