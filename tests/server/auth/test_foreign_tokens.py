"""What a token may not do to others: their cursors, their transactions, and what it sees of topics not its own."""

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
        assert ask(server, "writer", "POST", f"/topic/{topic}/logs", ONE)[0] == 200
    yield server
    server.stop()


def ask(server: Running, name: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    token = INTERNAL_TOKEN if name == "the product" else SECRETS[name]
    status, headers, text = server.ask(method, path, body, {"Authorization": f"Bearer {token}"})
    return status, json.loads(text) if "json" in headers["content-type"] else text


def test_a_cursor_is_moved_by_those_who_have_the_right(closed: Running) -> None:
    def moved(name: str, cursor: str, topic: str = "web-a") -> tuple[int, int]:
        path = f"/topic/{topic}/cursors/{cursor}"
        return ask(closed, name, "PUT", path, {"offset": "1"})[0], ask(closed, name, "DELETE", path)[0]

    allowed, denied = (200, 200), (403, 403)
    assert moved("the product", "pipeline") == moved("boss", "pipeline") == allowed
    for name in ("reader", "writer", "web"):
        assert moved(name, "mine") == moved(name, "pipeline") == denied
    assert moved("consumer", "mine") == allowed
    assert moved("consumer", "pipeline") == denied
    assert moved("consumer", "billing-1", "shop") == allowed
    assert moved("consumer", "mine", "shop") == denied


def test_a_cursor_is_moved_by_those_who_have_the_right_also_by_grpc(closed: Running) -> None:
    asked = pb.CommitCursorRequest(topic="web-a", name="pipeline", offset=0)
    with grpc.insecure_channel(closed.bound.grpc) as channel:
        stub = StructuredLogStub(channel)
        for call in (stub.CommitCursor, stub.RemoveCursor):
            given = asked if call is stub.CommitCursor else pb.RemoveCursorRequest(topic="web-a", name="pipeline")
            with pytest.raises(grpc.RpcError, match="Cursor may not be moved: pipeline of web-a"):
                call(given, metadata=[("authorization", f"Bearer {SECRETS['reader']}")], timeout=20)


def begun(server: Running, name: str) -> str:
    status, document = ask(server, name, "POST", "/transactions", {})
    assert status == 200
    return str(document["transaction_id"])


def test_a_transaction_belongs_to_whom_began_it(closed: Running) -> None:
    one = begun(closed, "writer")
    staged = {**ONE, "transaction_id": one}
    for name in ("other", "boss", "the product"):
        assert ask(closed, name, "POST", f"/transactions/{one}/commit")[0] == 403
        assert ask(closed, name, "POST", f"/transactions/{one}/abort")[0] == 403
    assert ask(closed, "other", "POST", "/topic/shop/logs", staged)[0] == 403
    assert ask(closed, "writer", "POST", "/topic/shop/logs", staged)[0] == 200
    committed = ask(closed, "writer", "POST", f"/transactions/{one}/commit")
    assert committed == (200, {"topic": [{"topic": "shop", "offsets": ["1"]}]})
    assert ask(closed, "writer", "POST", f"/transactions/{one}/commit") == committed
    assert ask(closed, "other", "POST", f"/transactions/{one}/commit")[0] == 403


def test_nobody_takes_all_transactions(closed: Running) -> None:
    closed.log.transactions.limits = Limits(max_open=4, max_open_per_owner=2)
    assert ask(closed, "reader", "POST", "/transactions", {})[0] == 403
    first = begun(closed, "writer")
    begun(closed, "writer")
    status, document = ask(closed, "writer", "POST", "/transactions", {})
    assert (status, document["error"]) == (
        429,
        "transactions.max_open_per_token: 2 transactions of writer are open; end some first",
    )
    begun(closed, "other")
    ask(closed, "writer", "POST", f"/transactions/{first}/abort")
    begun(closed, "writer")


@pytest.mark.parametrize("offset", [2**63, 2**64 - 1, 2**64, 10**30])
def test_an_offset_that_none_can_be_is_refused_and_damages_nothing(running: Running, offset: int) -> None:
    running.ask("POST", "/topic/t/logs", ONE)
    assert running.ask("PUT", "/topic/t/cursors/c", {"offset": str(offset)})[0] == 400
    assert running.ask("PUT", "/topic/t/cursors/c", {"offset": str(2**63 - 1)})[0] == 200
    assert running.ask("GET", "/cursors")[0] == running.ask("GET", "/describe")[0] == 200


def test_an_offset_that_none_can_be_is_refused_by_grpc(running: Running) -> None:
    running.ask("POST", "/topic/t/logs", ONE)
    with grpc.insecure_channel(running.bound.grpc) as channel:
        stub = StructuredLogStub(channel)
        with pytest.raises(grpc.RpcError, match="is not one of 0 to"):
            stub.CommitCursor(pb.CommitCursorRequest(topic="t", name="c", offset=2**63), timeout=20)
        stub.VerifyTopic(pb.VerifyTopicRequest(topic="t", begin=2**64 - 1, end=2**64 - 1), timeout=20)
        assert stub.ListCursors(pb.ListCursorsRequest(topic="t"), timeout=20).cursor == []


def test_who_may_not_watch_sees_its_topics_alone(closed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("/stat",):
        assert [ask(closed, name, "GET", path)[0] for name in ("web", "writer")] == [403, 403]
        assert [ask(closed, name, "GET", path)[0] for name in ("watcher", "boss")] == [200, 200]
    seen, hidden = ask(closed, "watcher", "GET", "/metrics"), ask(closed, "web", "GET", "/metrics")
    assert (seen[0], hidden[0]) == (200, 200)
    assert 'source="events-udp"' in seen[1]
    assert 'source="events-udp"' not in hidden[1]


def test_a_family_is_cut_down_to_topics() -> None:
    samples = [({"topic": "a"}, 1.0), ({"topic": "b"}, 2.0), ({}, 3.0)]
    family = Family("x", "gauge", "x", samples)
    assert family.of_topics(lambda topic: topic == "a").samples == samples[:1]
