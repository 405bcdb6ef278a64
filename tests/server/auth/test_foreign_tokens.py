"""Limits of a token: cursors and transactions of other tokens, and topics that it may not read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from penstock.config import SecurityConfig, TokenConfig
from penstock.log import Limits
from penstock.server.metrics.prometheus import Family
from penstock.slogd import slogd_pb2 as pb
from tests.server.running import INTERNAL_TOKEN, Running
from tests.server.stub import StructuredLogStub

NAMES = ("reader", "web", "writer", "other", "consumer", "watcher", "boss")
SECRETS = {name: f"the secret of the {name}" for name in NAMES}
RIGHTS: dict[str, dict[str, Any]] = {
    "reader": {"read": ("*",)},
    "web": {"read": ("web-*",)},
    "writer": {"read": ("*",), "write": ("*",)},
    "other": {"read": ("*",), "write": ("*",)},
    "consumer": {"read": ("*",), "cursor": ("web-*", "shop/billing-*")},
    "watcher": {"monitor": True},
    "boss": {"read": ("*",), "admin": True},
}
TOKENS = {name: TokenConfig(token=SECRETS[name], **rights) for name, rights in RIGHTS.items()}
ONE = {"logs": [{"raw_bytes": "eA=="}]}


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Running]:
    server = Running(tmp_path / "topics", SecurityConfig(tokens=TOKENS))
    for topic in ("web-a", "shop"):
        assert send_request(server, "writer", "POST", f"/topic/{topic}/logs", ONE)[0] == 200
    yield server
    server.stop()


def send_request(server: Running, name: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    token = INTERNAL_TOKEN if name == "the product" else SECRETS[name]
    status, headers, text = server.request(method, path, body, {"Authorization": f"Bearer {token}"})
    return status, json.loads(text) if "json" in headers["content-type"] else text


def test_cursor_is_moved_only_with_the_right(closed: Running) -> None:
    def move_cursor(name: str, cursor: str, topic: str = "web-a") -> tuple[int, int]:
        path = f"/topic/{topic}/cursors/{cursor}"
        return send_request(closed, name, "PUT", path, {"offset": "1"})[0], send_request(closed, name, "DELETE", path)[
            0
        ]

    allowed, denied = (200, 200), (403, 403)
    assert move_cursor("the product", "pipeline") == move_cursor("boss", "pipeline") == allowed
    for name in ("reader", "writer", "web"):
        assert move_cursor(name, "mine") == move_cursor(name, "pipeline") == denied
    assert move_cursor("consumer", "mine") == allowed
    assert move_cursor("consumer", "pipeline") == denied
    assert move_cursor("consumer", "billing-1", "shop") == allowed
    assert move_cursor("consumer", "mine", "shop") == denied


def test_grpc_moves_cursor_only_with_the_right(closed: Running) -> None:
    commit_request = pb.CommitCursorRequest(topic="web-a", name="pipeline", offset=0)
    with grpc.insecure_channel(closed.bound.grpc) as channel:
        stub = StructuredLogStub(channel)
        for call in (stub.CommitCursor, stub.RemoveCursor):
            request = (
                commit_request if call is stub.CommitCursor else pb.RemoveCursorRequest(topic="web-a", name="pipeline")
            )
            with pytest.raises(grpc.RpcError, match="Cursor may not be moved: pipeline of web-a"):
                call(request, metadata=[("authorization", f"Bearer {SECRETS['reader']}")], timeout=20)


def begin_transaction(server: Running, name: str) -> str:
    status, document = send_request(server, name, "POST", "/transactions", {})
    assert status == 200
    return str(document["transaction_id"])


def test_transaction_belongs_to_the_token_that_began_it(closed: Running) -> None:
    transaction = begin_transaction(closed, "writer")
    staged = {**ONE, "transaction_id": transaction}
    for name in ("other", "boss", "the product"):
        assert send_request(closed, name, "POST", f"/transactions/{transaction}/commit")[0] == 403
        assert send_request(closed, name, "POST", f"/transactions/{transaction}/abort")[0] == 403
    assert send_request(closed, "other", "POST", "/topic/shop/logs", staged)[0] == 403
    assert send_request(closed, "writer", "POST", "/topic/shop/logs", staged)[0] == 200
    committed = send_request(closed, "writer", "POST", f"/transactions/{transaction}/commit")
    assert committed == (200, {"topic": [{"topic": "shop", "offsets": ["1"]}]})
    assert send_request(closed, "writer", "POST", f"/transactions/{transaction}/commit") == committed
    assert send_request(closed, "other", "POST", f"/transactions/{transaction}/commit")[0] == 403


def test_open_transactions_per_token_are_limited(closed: Running) -> None:
    closed.log.transactions.limits = Limits(max_open=4, max_open_per_owner=2)
    assert send_request(closed, "reader", "POST", "/transactions", {})[0] == 403
    first = begin_transaction(closed, "writer")
    begin_transaction(closed, "writer")
    status, document = send_request(closed, "writer", "POST", "/transactions", {})
    assert (status, document["error"]) == (
        429,
        "transactions.max_open_per_token: 2 transactions of writer are open; end some first",
    )
    begin_transaction(closed, "other")
    send_request(closed, "writer", "POST", f"/transactions/{first}/abort")
    begin_transaction(closed, "writer")


@pytest.mark.parametrize("offset", [2**63, 2**64 - 1, 2**64, 10**30])
def test_impossible_offset_is_refused_without_damage(running: Running, offset: int) -> None:
    running.request("POST", "/topic/t/logs", ONE)
    assert running.request("PUT", "/topic/t/cursors/c", {"offset": str(offset)})[0] == 400
    assert running.request("PUT", "/topic/t/cursors/c", {"offset": str(2**63 - 1)})[0] == 200
    assert running.request("GET", "/cursors")[0] == running.request("GET", "/describe")[0] == 200


def test_grpc_refuses_an_impossible_offset(running: Running) -> None:
    running.request("POST", "/topic/t/logs", ONE)
    with grpc.insecure_channel(running.bound.grpc) as channel:
        stub = StructuredLogStub(channel)
        with pytest.raises(grpc.RpcError, match="is not one of 0 to"):
            stub.CommitCursor(pb.CommitCursorRequest(topic="t", name="c", offset=2**63), timeout=20)
        stub.VerifyTopic(pb.VerifyTopicRequest(topic="t", begin=2**64 - 1, end=2**64 - 1), timeout=20)
        assert stub.ListCursors(pb.ListCursorsRequest(topic="t"), timeout=20).cursor == []


def test_metrics_without_monitor_have_only_readable_topics(closed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("/stat",):
        assert [send_request(closed, name, "GET", path)[0] for name in ("web", "writer")] == [403, 403]
        assert [send_request(closed, name, "GET", path)[0] for name in ("watcher", "boss")] == [200, 200]
    seen, hidden = send_request(closed, "watcher", "GET", "/metrics"), send_request(closed, "web", "GET", "/metrics")
    assert (seen[0], hidden[0]) == (200, 200)
    assert 'source="events-udp"' in seen[1]
    assert 'source="events-udp"' not in hidden[1]


def test_family_is_reduced_to_readable_topics() -> None:
    samples = [({"topic": "a"}, 1.0), ({"topic": "b"}, 2.0), ({}, 3.0)]
    family = Family("x", "gauge", "x", samples)
    assert family.of_topics(lambda topic: topic == "a").samples == samples[:1]
