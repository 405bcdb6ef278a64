from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from penstock.records import body
from penstock.server.kafka.entries import fetch_sessions
from penstock.server.kafka.entries.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, Session, Sessions
from penstock.server.kafka.schema.messages import Api, parse
from tests.server.kafka.schema.test_messages import request
from tests.server.kafka.test_limits import connected, framed
from tests.server.running import Running

Keys = dict[str, int]
"""Topics, with the offset that is wanted of each."""


def fetch(offsets: Keys, number: int = 0, epoch: int = FINAL_EPOCH, forgotten: tuple[str, ...] = ()) -> bytes:
    """Return a fetch as a client sends it."""
    topics = [
        {"topic": name, "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]}
        for name, offset in offsets.items()
    ]
    removed = [{"topic": name, "partitions": (0,)} for name in forgotten]
    session = {"session_id": number, "session_epoch": epoch, "forgotten_topics_data": removed}
    return request(Api.FETCH, 12, max_bytes=1 << 20, min_bytes=1, topics=topics, **session)


def begin_session(sessions: Sessions, offsets: Keys) -> Session:
    session = sessions.session(parse(fetch(offsets, 0, INITIAL_EPOCH)).message)
    assert isinstance(session, Session)
    return session


def answer_of(name: str, state: tuple[int, int, bytes, int]) -> tuple[str, dict[str, Any]]:
    high, start, records, code = state
    values = {"high_watermark": high, "log_start_offset": start, "records": records, "error_code": code}
    return name, {"partition_index": 0, **values}


STATES = st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from([b"", b"r"]), st.sampled_from([0, 0, 0, 3]))
NAMES = st.sampled_from("abcd")
CHANGES = st.tuples(
    st.dictionaries(NAMES, st.integers(0, 3)), st.sets(NAMES), st.fixed_dictionaries(dict.fromkeys("abcd", STATES))
)


@given(st.dictionaries(NAMES, st.integers(0, 3), min_size=1), st.lists(CHANGES, max_size=8))
def test_reported_changes_yield_the_current_state(
    first: Keys, changes: list[tuple[Keys, set[str], dict[str, Any]]]
) -> None:
    sessions = Sessions()
    session, requested, client_state = begin_session(sessions, first), dict(first), dict[str, Any]()
    for epoch, (more, removed, state) in enumerate(changes, 1):
        same = sessions.session(parse(fetch(more, session.number, epoch, tuple(removed))).message)
        assert same is session
        requested = {name: offset for name, offset in requested.items() if name not in removed} | more
        client_state = {name: reported for name, reported in client_state.items() if name not in removed}
        partitions = {name: part.fetch_offset for name, part in session.partitions}
        assert partitions == requested
        reported = dict(session.select_changes([answer_of(name, state[name]) for name in partitions]))
        for name in requested:
            high, start, records, code = state[name]
            if name in reported:
                client_state[name] = None if code else (high, start)
            else:
                assert (records, code, client_state[name]) == (b"", 0, (high, start)), (
                    "silence means that nothing changed"
                )


def test_partition_with_records_moves_to_the_end() -> None:
    session = begin_session(Sessions(), {"a": 0, "b": 0, "c": 0})
    session.select_changes(
        [answer_of("a", (5, 0, b"r", 0)), answer_of("b", (0, 0, b"", 0)), answer_of("c", (5, 0, b"r", 0))]
    )
    assert [name for name, _ in session.partitions] == ["b", "a", "c"]


def test_unknown_session_and_wrong_epoch_are_refused() -> None:
    sessions = Sessions()
    session = begin_session(sessions, {"a": 0})
    ask = lambda number, epoch: sessions.session(parse(fetch({}, number, epoch)).message)  # noqa: E731
    assert ask(session.number + 1, 1) is ErrorCode.fetch_session_id_not_found
    assert ask(session.number, 2) is ErrorCode.invalid_fetch_session_epoch
    assert ask(session.number, 1) is session
    assert ask(session.number, 1) is ErrorCode.invalid_fetch_session_epoch
    assert ask(session.number, FINAL_EPOCH) is None
    assert ask(session.number, 2) is ErrorCode.fetch_session_id_not_found


def test_epoch_wraps_around() -> None:
    sessions = Sessions()
    session = begin_session(sessions, {"a": 0})
    session.epoch = fetch_sessions.MAX_EPOCH
    assert sessions.session(parse(fetch({}, session.number, fetch_sessions.MAX_EPOCH)).message) is session
    assert session.epoch == 1


def test_least_recently_used_session_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_SESSIONS", 2)
    sessions = Sessions()
    first, second = begin_session(sessions, {"a": 0}), begin_session(sessions, {"a": 0})
    assert sessions.session(parse(fetch({}, first.number, 1)).message) is first
    begin_session(sessions, {"a": 0})
    assert sessions.session(parse(fetch({}, second.number, 1)).message) is ErrorCode.fetch_session_id_not_found
    assert sessions.session(parse(fetch({}, first.number, 2)).message) is first


def test_partitions_of_all_sessions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 10)
    sessions, names = Sessions(), [f"t{number}" for number in range(11)]
    assert sessions.session(parse(fetch(dict.fromkeys(names, 0), 0, INITIAL_EPOCH)).message) is None, "it does without"
    first, second = begin_session(sessions, {"a": 0}), begin_session(sessions, {"a": 0})
    message = parse(fetch(dict.fromkeys(names[:9], 0), second.number, 1)).message
    assert sessions.session(message) is second
    assert sum(map(len, sessions._open.values())) == 10
    assert sessions.session(parse(fetch({}, first.number, 1)).message) is ErrorCode.fetch_session_id_not_found


def test_session_ids_are_unique() -> None:
    sessions = Sessions(iter(itertools.chain([7, 7, 8])).__next__)
    assert [begin_session(sessions, {"a": 0}).number for _ in range(2)] == [7, 8]


def test_session_over_the_wire_reports_only_changes(endpoint: Running) -> None:
    for name in "ab":
        endpoint.api.topics.append(endpoint.log.topic(name, create=True), body([b"x"]), "http").result(20)
    with connected(endpoint) as sock:
        stream = sock.makefile("rb")

        def fetch_records(*arguments: Any) -> Any:
            sock.sendall(framed(fetch(*arguments)))
            (size,) = struct.unpack(">i", stream.read(4))
            return entity_reader(load_response_schema(Api.FETCH, 12))(stream.read(size), 5)[0]

        def names(answer: Any) -> list[str]:
            return [topic.topic for topic in answer.responses]

        first = fetch_records({"a": 0, "b": 0}, 0, INITIAL_EPOCH)
        assert names(first) == ["a", "b"]
        assert names(fetch_records({"a": 1, "b": 1}, first.session_id, 1)) == []
        endpoint.api.topics.append(endpoint.log.topic("b"), body([b"y"]), "http").result(20)
        assert names(fetch_records({}, first.session_id, 2)) == ["b"]
        assert names(fetch_records({"b": 2}, first.session_id, 3, ("a",))) == []
        assert fetch_records({}, first.session_id, 9).error_code is ErrorCode.invalid_fetch_session_epoch
        assert fetch_records({}, first.session_id, FINAL_EPOCH).session_id == 0
        assert fetch_records({}, first.session_id, 4).error_code is ErrorCode.fetch_session_id_not_found
