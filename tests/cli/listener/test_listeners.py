"""Listeners by name."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from penstock.cli.listener.listeners import find_listener
from penstock.config.keys.tree import Settings


def settings() -> Settings:
    listeners: list[dict[str, Any]] = [
        {"name": "web", "protocol": "http", "port": 4318},
        {"name": "lines", "protocol": "tcp", "port": 4319},
    ]
    return Settings.model_validate({"listener": listeners})


def test_find_listener_without_name_returns_the_first_with_commands() -> None:
    assert find_listener(settings(), None).name == "lines"
    assert find_listener(settings(), "lines").name == "lines"


def test_unknown_listener_is_rejected_with_the_configured_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((typer.Exit, SystemExit)):
        find_listener(settings(), "liens")
    assert "no listener is named 'liens'; configured are web, lines" in " ".join(capsys.readouterr().err.split())


def test_listener_of_requests_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((typer.Exit, SystemExit)):
        find_listener(settings(), "web")
    assert "takes requests" in " ".join(capsys.readouterr().err.split())
