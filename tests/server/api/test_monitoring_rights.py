"""Rights to the balance, the ledger and the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from penstock.config import SecurityConfig, Settings, TokenConfig
from penstock.files.change_log import ChangeLog
from penstock.ledger.ledger import Ledger
from penstock.log import Log
from penstock.server.api.entries import EntriesApi
from penstock.server.api.monitoring import MonitoringApi
from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.http.application import create_app
from penstock.server.http.monitoring_routes import monitoring_routes
from penstock.server.http.routes import daemon_routes

RIGHTS: dict[str, dict[str, Any]] = {
    "web": {"read": ("web-*",)},
    "watcher": {"monitor": True},
    "auditor": {"ledger": True},
    "chief": {"admin": True},
}
TOKENS = {name: TokenConfig(token=f"the secret of the {name}", **rights) for name, rights in RIGHTS.items()}
PATHS = ("/config", "/stat", "/clock", "/balance/series", "/senders", "/ledger")
ONE = {"logs": [{"raw_bytes": "eA=="}]}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[ASGIApp]:
    settings = Settings(data_dir=tmp_path, security=SecurityConfig(tokens=TOKENS))
    log = Log(settings.topics)
    reports = MonitoringApi(settings, log, Ledger(log, settings.buffers, []))
    api = EntriesApi(log, TokenAuthenticator(TOKENS, "the product's"), reports.post)
    routes = daemon_routes(api, stat=reports.stat, metrics=reports.metrics, balance=reports.balance)
    yield create_app([*routes, *monitoring_routes(reports)], api.guard)
    api.release()
    log.close()


def answers(app: ASGIApp, *requests: tuple[str, str, str, Any]) -> list[httpx.Response]:
    async def run() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            responses = []
            for name, method, path, body in requests:
                token = "the product's" if name == "the product" else TOKENS[name].token
                headers = {"authorization": f"Bearer {token}"}
                responses.append(await client.request(method, path, json=body, headers=headers))
            return responses

    return asyncio.run(run())


def test_complete_reports_require_the_right_monitor(app: ASGIApp) -> None:
    def statuses(name: str) -> list[int]:
        return [answer.status_code for answer in answers(app, *((name, "GET", path, None) for path in PATHS))]

    assert statuses("watcher") == [200, 200, 200, 200, 200, 200]
    assert statuses("web") == [403, 403, 403, 403, 403, 403]
    assert statuses("auditor") == [403, 403, 403, 403, 403, 200]


def test_post_without_the_right_is_refused_before_its_body_is_read(app: ASGIApp) -> None:
    refused, unreadable = answers(app, ("web", "POST", "/ledger", []), ("auditor", "POST", "/ledger", []))
    assert (refused.status_code, unreadable.status_code) == (403, 400)


def test_caller_without_monitor_sees_only_readable_topics(app: ASGIApp) -> None:
    appends = [("the product", "POST", f"/topic/{topic}/logs", ONE) for topic in ("web-a", "payroll")]
    *_, seen, full_balance, metrics, marks = answers(
        app,
        *appends,
        ("web", "GET", "/balance", None),
        ("watcher", "GET", "/balance", None),
        ("web", "GET", "/metrics", None),
        ("web", "GET", "/watermarks", None),
    )
    assert [topic["topic"] for topic in seen.json()["topics"]] == ["web-a"]
    assert seen.json().keys() == {"topics", "audits"}
    assert {topic["topic"] for topic in full_balance.json()["topics"]} == {"web-a", "payroll"}
    assert 'topic="web-a"' in metrics.text
    assert "payroll" not in seen.text + metrics.text + marks.text


@pytest.mark.parametrize(("end", "status"), [(2**63 - 1, 200), (2**63, 400), (10**30, 400)])
def test_offsets_of_query_are_bounded(app: ASGIApp, end: int, status: int) -> None:
    append = ("the product", "POST", "/topic/web-a/logs", ONE)
    assert answers(app, append, ("web", "POST", f"/topic/web-a/verify?end={end}", None))[1].status_code == status


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?since=1&step=60", 200),
        ("?step=0", 200),
        ("?since=99999999999999999999", 400),
        ("?step=-1", 400),
        ("?since=x", 400),
    ],
)
def test_numbers_of_query_are_bounded(app: ASGIApp, query: str, status: int) -> None:
    assert answers(app, ("watcher", "GET", f"/balance/series{query}", None))[0].status_code == status


def test_accepted_clock_is_in_the_change_log(app: ASGIApp, tmp_path: Path) -> None:
    refused, accepted = answers(app, ("watcher", "POST", "/clock", None), ("chief", "POST", "/clock", None))
    assert (refused.status_code, accepted.status_code) == (403, 200)
    (change,) = ChangeLog(tmp_path).newest()
    assert (change["who"], change["what"], change["from"]) == ("chief", "accept the system clock", "127.0.0.1")


LANDED = {"tier": "landed", "topic": "t", "version": 1, "through": 0, "counts": []}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (None, "a post of this tier needs 'tier'"),
        ([], "The body must be a JSON object"),
        ({**LANDED, "counts": 5}, "not a post: 5 is not a list"),
        ({**LANDED, "counts": [5]}, "not a post: 5 is not an object"),
        ({**LANDED, "version": "x"}, "not a post: 'x' is not a count"),
        ({**LANDED, "through": 2**64}, f"not a post: {2**64} is not a count"),
        ({**LANDED, "ahead": [[1]]}, "not a post: [1] is not a range of offsets"),
        (
            {**LANDED, "counts": [{"source": "a", "bucket": 10**12, "counts": {}}]},
            "not a post: 1000000000000 is not a count",
        ),
        (
            {"tier": "client", "listener": "a", "sender": "b", "version": 1, "counts": []},
            "not a post: [] is not an object",
        ),
    ],
)
def test_invalid_post_is_refused_with_a_reason(app: ASGIApp, document: Any, text: str) -> None:
    answer = answers(app, ("auditor", "POST", "/ledger", document))[0]
    assert (answer.status_code, answer.json()) == (400, {"error": text, "code": 3})
