from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.http.application import create_app
from penstock.server.http.described_routes import DescribedRoute, await_call
from penstock.server.http.openapi import document


def on_a_thread(name: str, request: Request) -> dict[str, str]:
    return {"name": name, "thread": threading.current_thread().name}


async def in_the_loop(request: Request) -> dict[str, str]:
    """LastKnown to people."""
    return {"thread": threading.current_thread().name}


def create_document(request: Request) -> dict[str, str]:
    return {"made": "it"}


def plain(request: Request) -> Response:
    return PlainTextResponse("as it is", 202)


ROUTES = [
    DescribedRoute(path="/one/{name}", method="GET", call=on_a_thread, summary="One", tag="things"),
    DescribedRoute(path="/loop", method="POST", call=in_the_loop, summary="Loop", query="TierQuery", body="BeginBody"),
    DescribedRoute(path="/made", method="PUT", call=create_document, summary="Made", status=201),
    DescribedRoute(path="/plain", method="GET", call=plain, summary="Plain", media_type="text/plain", status=202),
]


def send_request(method: str, path: str) -> httpx.Response:
    async def send() -> httpx.Response:
        app = create_app(ROUTES, TokenAuthenticator({}, "the product's"))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.request(method, path)

    return asyncio.run(send())


def test_call_gets_path_parameters_and_runs_on_a_thread_unless_async() -> None:
    beside, inside = send_request("GET", "/one/a%20b").json(), send_request("POST", "/loop").json()
    assert beside["name"] == "a b"
    assert "AnyIO worker" in beside["thread"]
    assert "AnyIO worker" not in inside["thread"]


def test_response_is_returned_unchanged() -> None:
    answer = send_request("GET", "/plain")
    assert (answer.status_code, answer.text) == (202, "as it is")


def test_document_is_answered_with_the_status_of_its_route() -> None:
    answer = send_request("PUT", "/made")
    assert (answer.status_code, answer.json()) == (201, {"made": "it"})


def test_document_describes_each_route() -> None:
    paths = document(ROUTES)["paths"]
    named, loop, text = paths["/one/{name}"]["get"], paths["/loop"]["post"], paths["/plain"]["get"]
    assert (named["tags"], named["summary"], named["operationId"]) == (
        ["things"],
        "One",
        "on_a_thread_one__name__get",
    )
    assert [(each["name"], each["in"], each["required"]) for each in named["parameters"]] == [("name", "path", True)]
    assert "requestBody" not in named
    assert loop["description"] == "LastKnown to people."
    assert [(each["name"], each["in"]) for each in loop["parameters"]] == [("tier", "query")]
    assert "timeout" in loop["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert text["responses"]["202"]["content"] == {"text/plain": {"schema": {"type": "string"}}}


def test_document_is_deterministic() -> None:
    assert document(ROUTES) == document(ROUTES)


async def later() -> int:
    return 5


@pytest.mark.parametrize("call", [lambda: 5, later, lambda: later()])
def test_returned_awaitable_is_awaited(call: Any) -> None:
    assert asyncio.run(await_call(call)) == 5
