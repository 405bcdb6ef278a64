"""Middleware and error answers of the HTTP application."""

from __future__ import annotations

import difflib
import json

import pytest

from penstock.server.http import application
from penstock.server.http.application import clean_path
from tests.server.running import Running


def test_oversized_body_is_refused(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "MAX_BODY_BYTES", 1000)
    status, _, text = running.request("POST", "/topic/t/logs", "x" * 1001)
    assert (status, json.loads(text)["code"]) == (413, 8)
    assert running.request("GET", "/topics")[2] == "{}"


def test_unexpected_error_has_no_details_in_the_answer(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> list[str]:
        raise RuntimeError("secret")

    monkeypatch.setattr(running.api, "topics", fail)
    status, _, text = running.request("GET", "/topics")
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


def test_redirect_keeps_the_query(running: Running) -> None:
    status, headers, _ = running.request("GET", "/topic//t/logs?offset=1")
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
def test_unsupported_method_lists_allowed_methods(running: Running, path: str, allowed: str) -> None:
    with running.connection() as connection:
        connection.request("TRACE", path)
        answer = connection.getresponse()
        allow_headers = answer.headers.get_all("allow")
        assert (answer.status, allow_headers, answer.read()) == (405, [allowed], b"Method Not Allowed\n")


def test_unknown_path_is_not_found(running: Running) -> None:
    for path in ("/nothing", "/topics/", "/topic/a/b/logs"):
        status, headers, text = running.request("GET", path)
        assert (status, text.splitlines()[0], headers["x-content-type-options"]) == (404, "Not Found", "nosniff")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/topic", "did you mean GET /topics?"),
        ("/topic/t/log", "did you mean GET, POST /topic/t/logs?"),
        ("/metric", "did you mean GET /metrics?"),
        ("/ledgr", "did you mean POST /ledger?"),
        ("/" + "x" * 60_000, "all paths: GET /docs"),
        ("/a" * 30_000, "all paths: GET /docs"),
        (f"/topic/{'a' * 200}/log", "did you mean GET, POST /topic/{topic}/logs?"),
    ],
    ids=lambda text: text[:20],
)
def test_unknown_path_names_the_nearest_ones(running: Running, path: str, hint: str) -> None:
    running.log.topic("secrets", create=True)
    status, _, text = running.request("GET", path)
    assert (status, text.splitlines()[1].partition("; ")[0]) == (404, hint)
    assert text.endswith("all paths: GET /docs\n")
    assert "secrets" not in text


@pytest.mark.parametrize("path", ["/topic/" + "a" * 197, "/topic" * 30, "/*" * 100, "/transactions/*/" + "comit" * 9])
def test_few_characters_are_compared_for_any_unknown_path(
    running: Running, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    compared = 0

    class CountingMatcher(difflib.SequenceMatcher[str]):
        def find_longest_match(
            self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
        ) -> difflib.Match:
            nonlocal compared
            compared += ((ahi or 0) - alo) * ((bhi or 0) - blo)
            return super().find_longest_match(alo, ahi, blo, bhi)

    monkeypatch.setattr(difflib, "SequenceMatcher", CountingMatcher)
    assert running.request("GET", path)[0] == 404
    assert compared < 10_000, compared
