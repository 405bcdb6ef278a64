"""Routes of alarms and of the change log: rights, authors, and refused requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from penstock.config import TokenConfig
from penstock.files.change_log import ChangeLog
from penstock.log import Log
from penstock.server.alarms.register import AlarmRegister
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.http.application import create_app
from penstock.server.http.operator_routes import operator_routes
from tests.server.alarms.test_register import DROPS, change

INTERNAL = "the token of the product"
TOKENS = {
    "chief": TokenConfig(token="the secret of the chief", admin=True),
    "watcher": TokenConfig(token="the secret of the watcher", monitor=True),
}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[ASGIApp]:
    log = Log(tmp_path / "topics")
    api = EntriesApi(log, TokenAuthenticator(TOKENS, INTERNAL))
    register = AlarmRegister(tmp_path / "alarms.state", None, time.time)
    register.enter([change("begins", "web")], [])
    yield create_app(operator_routes(register, ChangeLog(tmp_path)), api.guard)
    api.release()
    log.close()


def send(app: ASGIApp, caller: str, method: str, path: str, body: Any = None) -> httpx.Response:
    """Send a request with the token of a caller; "" is the product's own."""

    async def answer() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            headers = {"authorization": f"Bearer {TOKENS[caller].token if caller else INTERNAL}"}
            return await client.request(method, path, json=body, headers=headers)

    return asyncio.run(answer())


def test_watcher_reads_alarms_and_changes_nothing(app: ASGIApp) -> None:
    rules = send(app, "watcher", "GET", "/alarms").json()["alarms"]
    assert {rule["alarm"]: rule["state"] for rule in rules}[DROPS] == "firing"
    for path, body in ((f"/alarms/{DROPS}/acknowledge", {}), (f"/alarms/{DROPS}/mute", {"until": 0})):
        assert send(app, "watcher", "POST", path, body).status_code == 403
    assert send(app, "watcher", "GET", "/changes").status_code == 403


def test_author_is_the_token_or_the_person_whom_the_product_names(app: ASGIApp) -> None:
    path = f"/alarms/{DROPS}"
    forged = {"by": "somebody else", "from": "elsewhere", "note": "cable", "labels": {"listener": "web"}}
    assert send(app, "chief", "POST", f"{path}/acknowledge", forged).json() == {"acknowledged": 1}
    muted = {"by": "ann", "from": "10.0.0.7", "until": time.time() + 60}
    assert send(app, "", "POST", f"{path}/mute", muted).status_code == 200
    mute, acknowledge = send(app, "chief", "GET", "/changes").json()["changes"]
    assert (acknowledge["who"], acknowledge["from"], acknowledge["note"]) == ("chief", "127.0.0.1", "cable")
    assert (acknowledge["what"], acknowledge["labels"]) == (f"acknowledge {DROPS}", "listener=web")
    assert (mute["who"], mute["from"]) == ("ann", "10.0.0.7")
    rule = next(rule for rule in send(app, "chief", "GET", "/alarms").json()["alarms"] if rule["alarm"] == DROPS)
    assert (rule["firing"][0]["acknowledged"]["by"], rule["mutes"][0]["by"]) == ("chief", "ann")


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("/alarms/Nothing/acknowledge", {}, 404, "no alarm is named"),
        ("/alarms/PenstockCorrupt/acknowledge", {}, 404, "does not fire"),
        (f"/alarms/{DROPS}/acknowledge", {"labels": ["x"]}, 400, "labels is an object"),
        (f"/alarms/{DROPS}/acknowledge", {"labels": {"x": "y" * 501}}, 400, "more than 500 characters"),
        (f"/alarms/{DROPS}/acknowledge", {"note": 1}, 400, "note is a text"),
        (f"/alarms/{DROPS}/mute", {}, 400, "until is a time"),
        (f"/alarms/{DROPS}/mute", {"until": 1e300}, 400, "until is a time"),
        (f"/alarms/{DROPS}/mute", {"until": True}, 400, "until is a time"),
        ("/alarms/Nothing/mute", {"until": 0}, 404, "no alarm is named"),
        (f"/alarms/{DROPS}/mute", {"until": 0}, 404, "is not muted"),
        (f"/alarms/{DROPS}/mute", {"until": 2e9, "labels": {"listner": "web"}}, 400, "its labels are listener"),
    ],
)
def test_bad_request_is_refused_with_a_reason(app: ASGIApp, path: str, body: Any, status: int, error: str) -> None:
    answer = send(app, "chief", "POST", path, body)
    assert (answer.status_code, error in answer.json()["error"]) == (status, True), answer.text
    assert send(app, "chief", "GET", "/changes").json() == {"changes": []}
