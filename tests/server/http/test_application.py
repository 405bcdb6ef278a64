"""What every request meets before and behind its route."""

from __future__ import annotations

import json

import pytest

from penstock.server.http import application
from penstock.server.http.application import clean_path
from tests.server.running import Running


def test_a_body_that_is_too_long_is_refused(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "MAX_BODY_BYTES", 1000)
    status, _, text = running.ask("POST", "/topic/t/logs", "x" * 1001)
    assert (status, json.loads(text)["code"]) == (413, 8)
    assert running.ask("GET", "/topics")[2] == "{}"


def test_an_unexpected_failure_keeps_its_text_to_itself(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> list[str]:
        raise RuntimeError("secret")

    monkeypatch.setattr(running.api, "topics", fail)
    status, _, text = running.ask("GET", "/topics")
    assert (status, json.loads(text)) == (500, {"error": "Internal error", "code": 13})


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("/topics", "/topics"),
        ("/topics/", "/topics/"),
        ("/topic//logs", "/topic/logs"),
        ("//topics", "/topics"),
        ("/a/./b/../c", "/a/c"),
        ("/../x", "/x"),
        ("/", "/"),
        ("//", "/"),
        ("/topic/%2E%2E/logs", "/topic/%2E%2E/logs"),
        ("*", "*"),
        ("", ""),
    ],
)
def test_paths_are_cleaned(path: str, clean: str) -> None:
    assert clean_path(path) == clean


def test_a_redirect_keeps_the_query(running: Running) -> None:
    status, headers, _ = running.ask("GET", "/topic//t/logs?offset=1")
    assert (status, headers["location"]) == (307, "/topic/t/logs?offset=1")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/topics", "GET"),
        ("/topic/t/logs", "GET, POST"),
        ("/topics/t", "DELETE, GET, HEAD, PATCH, PUT"),
        ("/docs", "GET, HEAD"),
    ],
)
def test_a_method_that_a_path_does_not_have_is_answered_with_those_it_has(
    running: Running, path: str, allowed: str
) -> None:
    with running.connection() as connection:
        connection.request("TRACE", path)
        answer = connection.getresponse()
        told = answer.headers.get_all("allow")
        assert (answer.status, told, answer.read()) == (405, [allowed], b"Method Not Allowed\n")


def test_what_is_no_route_is_not_found(running: Running) -> None:
    for path in ("/nothing", "/topics/", "/topic/a/b/logs"):
        status, headers, text = running.ask("GET", path)
        assert (status, text, headers["x-content-type-options"]) == (404, "Not Found\n", "nosniff")
