"""Creation of handlers: Penstock's own, and a user's by the entry points of an installed package."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config import ListenerConfig
from penstock.counts import Origin
from penstock.records import body
from penstock.sinks import BadSettings, Delivered, Handler
from penstock.sinks.handler_factory import make_handler

SITE = Path(__file__).parent / "site"
ORIGIN = Origin("x", 60, 0, 0)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the package with the handlers on Python's path."""
    monkeypatch.syspath_prepend(str(SITE))
    monkeypatch.setenv("PYTHONPATH", str(SITE))
    yield
    sys.modules.pop("wayward", None)


def handler_of(**handler: Any) -> Handler:
    listener = {"name": "x", "protocol": "udp", "handlers": [handler]}
    (config,) = ListenerConfig.model_validate(listener).forwarded
    return make_handler("x", config)


def test_discard_delivers_everything() -> None:
    assert handler_of(type="discard").deliver(body([b"a", b"b"]), ORIGIN) == Delivered(2)


@pytest.mark.parametrize("kind", ["wayward", "plain"])
def test_user_handler_is_created_by_its_entry_point(tmp_path: Path, kind: str) -> None:
    (tmp_path / "mode").write_text("good")
    handler = handler_of(type=kind, folder=str(tmp_path))
    assert handler.deliver(body([b"a", b"b"]), ORIGIN) == Delivered(2)
    assert (tmp_path / "taken").read_bytes() == b"a\nb\n"


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        ({"type": "wayward"}, "folder: is missing"),
        ({"type": "wayward", "folder": "x", "limit": "many"}, "limit: 'many' is not a whole number"),
        ({"type": "wayward", "folder": "x", "fodler": "y"}, "fodler: unknown key"),
        ({"type": "plain", "folder": "x", "fodler": "y"}, "got an unexpected keyword argument 'fodler'"),
        ({"type": "plain"}, "missing a required argument: 'folder'"),
        ({"type": "broken", "reason": "no such luck"}, "no such luck"),
        ({"type": "missing"}, "cannot be loaded"),
    ],
)
def test_invalid_settings_are_named(handler: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint):
        handler_of(**handler)


def test_unknown_type_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"unknown handler 'wayword' \(did you mean 'wayward'"):
        handler_of(type="wayword")


def test_handler_check_names_the_bad_key() -> None:
    producer = {"bootstrap.serverz": "127.0.0.1:1", "bootstrap.servers": "127.0.0.1:1"}
    handlers = [
        {"type": "kafka", "default_topic": "a", "producer": producer},
        {"type": "wayward", "folder": "x", "limit": "many"},
        {"type": "discard"},
    ]
    document = json.dumps([{"listener": "x", "handler": handler} for handler in handlers])
    command = [sys.executable, "-m", "penstock.sinks.handler_check"]
    checked = subprocess.run(command, input=document, capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    kafka, wayward = checked.stdout.strip().splitlines()
    assert kafka.startswith("listener.x.handlers.kafka.producer: ")
    assert "bootstrap.serverz" in kafka
    assert wayward.startswith("listener.x.handlers.wayward.limit: 'many' is not a whole number")
