"""The HTTP API and browsers that were led here by pages of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import SecurityConfig, TokenConfig
from tests.server.running import Running

ONE = {"logs": [{"raw_bytes": "eA=="}]}
SECRET = "the secret of the writer"


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_what_others_lead_here_changes_nothing(running: Running, headers: dict[str, str]) -> None:
    running.ask("POST", "/topic/t/logs", ONE)
    asked = [("DELETE", "/topics/t", None), ("POST", "/topic/t/logs", ONE), ("GET", "/topic/t/logs", None)]
    for method, path, body in asked:
        status, _, text = running.ask(method, path, body, {"Content-Type": "text/plain", **headers})
        assert (status, json.loads(text)["code"]) == (403, 7)
    assert len(json.loads(running.ask("GET", "/topic/t/logs")[2])["logs"]) == 1


def test_programs_and_pages_of_the_same_host_are_served(running: Running) -> None:
    here = {"Origin": f"http://{running.bound.http}", "Content-Type": "text/plain"}
    assert running.ask("POST", "/topic/t/logs", ONE, here)[0] == 200
    assert running.ask("GET", "/topics", None, {"Host": "localhost"})[0] == 200


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Running]:
    server = Running(tmp_path / "topics", SecurityConfig(tokens={"w": TokenConfig(token=SECRET, read=("*",))}))
    yield server
    server.stop()


def test_with_tokens_the_token_decides(closed: Running) -> None:
    assert closed.ask("GET", "/topics", None, {"Host": "log.example.org"})[0] == 401
    shown = {"Host": "log.example.org", "Authorization": f"Bearer {SECRET}"}
    assert closed.ask("GET", "/topics", None, shown)[0] == 200
