"""Requests of browsers that foreign pages cause."""

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
def test_cross_origin_requests_are_refused(running: Running, headers: dict[str, str]) -> None:
    running.request("POST", "/topic/t/logs", ONE)
    requests = [("DELETE", "/topics/t", None), ("POST", "/topic/t/logs", ONE), ("GET", "/topic/t/logs", None)]
    for method, path, body in requests:
        status, _, text = running.request(method, path, body, {"Content-Type": "text/plain", **headers})
        assert (status, json.loads(text)["code"]) == (403, 7)
    assert len(json.loads(running.request("GET", "/topic/t/logs")[2])["logs"]) == 1


def test_programs_and_same_host_pages_are_served(running: Running) -> None:
    here = {"Origin": f"http://{running.bound.http}", "Content-Type": "text/plain"}
    assert running.request("POST", "/topic/t/logs", ONE, here)[0] == 200
    assert running.request("GET", "/topics", None, {"Host": "localhost"})[0] == 200


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Running]:
    server = Running(tmp_path / "topics", SecurityConfig(tokens={"w": TokenConfig(token=SECRET, read=("*",))}))
    yield server
    server.stop()


def test_token_replaces_the_check_of_the_origin(closed: Running) -> None:
    assert closed.request("GET", "/topics", None, {"Host": "log.example.org"})[0] == 401
    headers = {"Host": "log.example.org", "Authorization": f"Bearer {SECRET}"}
    assert closed.request("GET", "/topics", None, headers)[0] == 200
