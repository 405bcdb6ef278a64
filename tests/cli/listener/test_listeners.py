"""Which listener a command talks to."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from penstock.cli.listener.listeners import listener_of
from penstock.config.keys.tree import Settings


def settings() -> Settings:
    listeners: list[dict[str, Any]] = [
        {"name": "web", "protocol": "http", "port": 4318},
        {"name": "lines", "protocol": "tcp", "port": 4319},
    ]
    return Settings.model_validate({"listener": listeners})


def test_without_a_name_it_is_the_first_that_takes_commands() -> None:
    assert listener_of(settings(), None).name == "lines"
    assert listener_of(settings(), "lines").name == "lines"


def test_one_that_takes_requests_takes_no_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((typer.Exit, SystemExit)):
        listener_of(settings(), "web")
    assert "takes requests" in " ".join(capsys.readouterr().err.split())
