"""Flight actions on topics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import SecurityConfig, TokenConfig
from penstock.counts import Origin
from penstock.log import Log
from penstock.records import body
from penstock.server.auth.permitted_topics import PermittedTopics
from penstock.server.auth.rights import ANONYMOUS
from penstock.server.flight.actions import ACTIONS, act
from penstock.slogd.errors import ApiError
from tests.server.running import Running

READER = "may read what begins with web"


@pytest.fixture
def client(running: Running) -> Iterator[Any]:
    with flight.connect(f"grpc://{running.bound.flight}") as connected:
        yield connected


def act_remotely(client: Any, kind: str, *, token: str = "", **parameters: Any) -> list[dict[str, Any]]:
    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    action = flight.Action(kind, json.dumps(parameters).encode())
    return [
        json.loads(r.body.to_pybytes()) for r in client.do_action(action, flight.FlightCallOptions(headers=headers))
    ]


def fill(running: Running, name: str, rows: int) -> list[int]:
    """Append batches of two rows; return the timestamps of all."""
    topic = running.log.topic(name, create=True, internal=name.startswith("_"))
    for first in range(0, rows, 2):
        topic.append(body([b"%d" % first, b"x"]), Origin("tcp", 60, 5, 9, "raw")).result(20)
    read = [stored.batch.column("timestamp").cast(pa.int64()).to_pylist() for stored in topic.reader().read(0)]
    return [micros for batch in read for micros in batch]


def test_topics_are_described_by_name_and_pattern(client: Any, running: Running) -> None:
    for name in ("web.a", "web.b", "other", "_ledger"):
        fill(running, name, 4)
    assert [description["topic"] for description in act_remotely(client, "topics")] == ["other", "web.a", "web.b"]
    assert [description["topic"] for description in act_remotely(client, "topics", topics=["web.*", "none"])] == [
        "web.a",
        "web.b",
    ]
    (described,) = act_remotely(client, "topics", topics=["_ledger"])
    assert (described["start"], described["end"]) == (0, 4)
    assert described["bytes"] > 1000


def test_seek_and_first_convert_between_times_and_offsets(client: Any, running: Running) -> None:
    times = fill(running, "t", 6)
    assert act_remotely(client, "seek", topic="t", micros=times[3]) == [{"offset": 3}]
    assert act_remotely(client, "seek", topic="t", micros=times[5] + 1) == [{"offset": 6}]
    assert act_remotely(client, "first", topic="t", offset=4) == [{"micros": times[4]}]
    assert act_remotely(client, "first", topic="t", offset=6) == [{"micros": None}]


def test_times_of_rows_of_several_topics_come_in_one_answer(client: Any, running: Running) -> None:
    times = {name: fill(running, name, 6) for name in ("a", "b")}
    rows = {"a": [5, 2], "b": [0], "missing": [1]}
    answer = {"a": [times["a"][5], times["a"][2]], "b": [times["b"][0]]}
    assert act_remotely(client, "times", rows=rows) == [{"micros": answer}]
    for wrong in ([], {"a": 1}, {"a": [-1]}, {"a": [1 << 63]}, {"a": ["1"]}):
        with pytest.raises(flight.FlightServerError, match="rows must be lists of offsets by topic"):
            act_remotely(client, "times", rows=wrong)


def test_gaps_are_listed_with_their_counts(client: Any, running: Running) -> None:
    fill(running, "t", 6)
    (path,) = running.folder.glob("t/*.arrows")
    with open(path, "r+b") as file:
        file.seek(path.read_bytes().index(b"2x"))
        file.write(b"?")
    table = client.do_get(flight.Ticket(b'{"topic":"t","columns":["offset","source","bucket","received","codec"]}'))
    assert table.read_all().slice(1, 2).to_pydict()["offset"] == [1, 4]
    assert act_remotely(client, "gaps", topic="t") == [
        {"begin": 2, "end": 4, "reason": "corrupt", "counts": {"tcp": {"60": 2}}}
    ]


def test_rows_are_returned_with_their_provenance(client: Any, running: Running) -> None:
    fill(running, "t", 4)
    ticket = {"topic": "t", "from": 1, "to": 3, "columns": ["offset", "codec", "bucket", "source", "received"]}
    table = client.do_get(flight.Ticket(json.dumps(ticket).encode())).read_all()
    assert table.column_names == ticket["columns"]
    assert table.select(["offset", "source", "codec"]).to_pylist() == [
        {"offset": 1, "source": "tcp", "codec": "raw"},
        {"offset": 2, "source": "tcp", "codec": "raw"},
    ]
    times = [table.column(name).cast(pa.int64()).to_pylist() for name in ("bucket", "received")]
    assert times == [[60_000_000] * 2, [5, 5]]


def test_unreadable_topic_is_not_described(tmp_path: Path) -> None:
    tokens = {"reader": TokenConfig(token=READER, read=("web*",))}
    closed = Running(tmp_path, SecurityConfig(tokens=tokens))
    try:
        for name in ("web", "secret"):
            fill(closed, name, 2)
        with flight.connect(f"grpc://{closed.bound.flight}") as client:
            with pytest.raises(flight.FlightUnauthenticatedError):
                act_remotely(client, "topics")
            assert [description["topic"] for description in act_remotely(client, "topics", token=READER)] == ["web"]
            for kind, parameters in (("topics", {"topics": ["secret"]}), ("gaps", {"topic": "secret"})):
                with pytest.raises(flight.FlightUnauthorizedError, match="may not be read: secret"):
                    act_remotely(client, kind, token=READER, **parameters)
    finally:
        closed.stop()


def test_actions_are_listed(client: Any) -> None:
    assert {action.type for action in client.list_actions()} == set(ACTIONS)


@pytest.mark.parametrize(
    ("kind", "parameters", "error", "text"),
    [
        ("nothing", {}, flight.FlightServerError, "unknown action 'nothing'"),
        ("topics", {"topics": "a"}, flight.FlightServerError, "list of texts"),
        ("gaps", {}, flight.FlightServerError, "topic must be a text"),
        ("gaps", {"topic": "nope"}, flight.FlightServerError, "does not exist: nope"),
        ("seek", {"topic": "t", "micros": "x"}, flight.FlightServerError, "micros must be"),
        ("first", {"topic": "t", "offset": -1}, flight.FlightServerError, "offset must be"),
    ],
)
def test_invalid_action_is_refused(
    client: Any, running: Running, kind: str, parameters: dict[str, Any], error: type[Exception], text: str
) -> None:
    fill(running, "t", 2)
    with pytest.raises(error, match=text):
        act_remotely(client, kind, **parameters)


@given(st.sampled_from([*ACTIONS, "x"]), st.one_of(st.binary(), st.from_regex(rb'\{"(topics?|offset)": .{0,9}\}')))
def test_any_action_returns_documents_or_raises_an_api_error(
    tmp_path_factory: pytest.TempPathFactory, kind: str, body: bytes
) -> None:
    log = Log(tmp_path_factory.getbasetemp() / "empty")
    try:
        list(act(PermittedTopics(log), ANONYMOUS, kind, body))
    except ApiError:
        pass
    finally:
        log.close()
