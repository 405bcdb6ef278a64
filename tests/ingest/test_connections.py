"""Limits of a TCP listener's connections: their number, their unfinished lines, their silence."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ListenerConfig
from penstock.config.keys.listeners import MultilineConfig
from penstock.counts import open_books
from penstock.ingest import connections, tcp
from penstock.ingest.sockets import open_socket
from tests.ingest.test_tcp import LISTENER, Receiving, connect


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with open_socket(LISTENER) as bound:
        yield bound


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except ConnectionResetError:
        return True
    except BlockingIOError:
        return False


def test_equally_silent_connections_are_evicted_in_their_order() -> None:
    """A simulated run of a seed is the same each time, as many connections have the same time in it."""
    pairs = [socket.socketpair() for _ in range(20)]
    try:
        splitters = connections.splitters_of(LISTENER)
        added = [connections.Connection(ours, "", splitters(), 1.0, None) for ours, _ in pairs]
        limited = connections.Connections(5, 1000)
        for each in added:
            limited.add(each)
        assert limited.silent_since(2.0) == added
        for each in added:
            assert limited.next_to_evict() is each
            limited.remove(each)
    finally:
        for end in (end for pair in pairs for end in pair):
            end.close()


@pytest.mark.survives("connections", "flood")
def test_beyond_the_limit_the_connection_with_most_unfinished_bytes_goes(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, max_connections=3)
    idle, small, large = connect(sock), connect(sock), connect(sock)
    small.sendall(b"x" * 10)
    large.sendall(b"y" * 1000)
    receiving.rounds()
    newcomer = connect(sock)
    newcomer.sendall(b"here I am\n")
    receiving.rounds()
    assert [is_closed(each) for each in (idle, small, large, newcomer)] == [False, False, True, False]
    assert receiving.life.payloads() == [b"here I am"]
    totals = receiving.life.totals()
    assert (totals["line.evicted"], totals["connection_closed.limit"], open_books(totals)) == (1, 1, [])


def test_connection_from_another_network_is_closed(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, allow_from=("127.0.0.2", "::1"))
    stranger, permitted = connect(sock), socket.create_connection(sock.getsockname(), source_address=("127.0.0.2", 0))
    stranger.sendall(b"from elsewhere\n")
    permitted.sendall(b"from here\n")
    receiving.rounds()
    assert [is_closed(each) for each in (stranger, permitted)] == [True, False]
    assert receiving.life.payloads() == [b"from here"]
    totals = receiving.life.totals()
    assert (totals["connection_closed.network"], totals["lines"], open_books(totals)) == (1, 1, [])


def many_lines(count: int) -> tuple[bytes, list[bytes]]:
    lines = [b"%d" % number for number in range(count)]
    return b"\n".join(lines) + b"\n", lines


def test_others_are_served_between_the_turns_of_many_small_lines(
    tmp_path: Path, sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LINES_PER_TURN", 100)
    monkeypatch.setattr(tcp, "TURN_S", -1.0)  # one turn a round
    receiving = Receiving(tmp_path, sock)
    batches = receiving.published()
    octets, lines = many_lines(2_000)
    greedy, honest = connect(sock), connect(sock)
    greedy.sendall(octets)
    receiving.rounds(4)
    honest.sendall(b"honest\n")
    receiving.rounds(1)
    payloads = receiving.life.payloads()
    assert payloads.index(b"honest") < 1_000
    greedy.sendall(b"last")
    greedy.close()
    receiving.rounds(30)
    assert [payload for payload in receiving.life.payloads() if payload != b"honest"] == [*lines, b"last"]
    assert max(batch.num_rows for batch in batches) <= 2 * 100 + 1
    assert open_books(receiving.life.totals()) == []


@pytest.mark.parametrize("joined", [False, True], ids=["lines", "joined"])
def test_evicted_connection_loses_none_of_its_waiting_lines(
    tmp_path: Path, sock: socket.socket, monkeypatch: pytest.MonkeyPatch, joined: bool
) -> None:
    monkeypatch.setattr(connections, "LINES_PER_TURN", 100)
    more = {"multiline": MultilineConfig(begins="^[0-9]")} if joined else {}
    receiving = Receiving(tmp_path, sock, max_connections=1, **more)
    octets, lines = many_lines(2_000)
    greedy = connect(sock)
    greedy.sendall(octets)
    receiving.rounds(2)
    receiving.clock.advance(1)
    newcomer = connect(sock)
    newcomer.sendall(b"7 newcomer\n")
    newcomer.close()
    receiving.rounds(4)
    assert is_closed(greedy)
    payloads = receiving.life.payloads()
    assert payloads[: len(lines) - joined] == lines[: len(lines) - joined]
    totals = receiving.life.totals()
    assert (payloads[-1], totals["line.evicted"], open_books(totals)) == (b"7 newcomer", int(joined), [])


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.integers(1, 60), st.booleans())
def test_lines_of_turns_are_those_of_one_read(counts: list[int], per_turn: int, settles: bool) -> None:
    listener = LISTENER
    limit = connections.LINES_PER_TURN
    connections.LINES_PER_TURN = per_turn
    try:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            connection = connections.Connection(ours, "", connections.splitters_of(listener)(), 0.0)
            parts, expected = [], []
            for count in counts:
                octets, lines = many_lines(count)
                expected += lines if count else [b""]
                parts.append(connection.feed(memoryview(octets)))
                while connection.has_work and not settles:
                    assert len(parts[-1].lines) == per_turn
                    parts.append(connection.feed(memoryview(b"")))
            parts.append(connection.finish())
    finally:
        connections.LINES_PER_TURN = limit
    assert [line for part in parts for line in part.lines.to_pylist()] == expected


def test_longest_silent_connection_is_evicted_if_none_holds_bytes(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, max_connections=2)
    connection, two = connect(sock), connect(sock)
    receiving.rounds()
    receiving.clock.advance(1)
    connection.sendall(b"I live\n")
    receiving.rounds()
    newcomer = connect(sock)
    receiving.rounds()
    assert [is_closed(each) for each in (connection, two, newcomer)] == [False, True, False]
    assert receiving.life.totals()["line.evicted"] == 0


def test_unfinished_lines_of_all_have_a_limit(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, max_unfinished=5000)
    hostile = [connect(sock) for _ in range(10)]
    for number, each in enumerate(hostile):
        each.sendall(b"x" * (1000 + number))
    receiving.rounds(12)
    closed = sum(is_closed(each) for each in hostile)
    totals = receiving.life.totals()
    assert closed == totals["line.evicted"] == totals["connection_closed.limit"] == 6
    for each in hostile:
        each.close()
    receiving.rounds(12)
    totals = receiving.life.totals()
    assert (totals["lines"], totals["line.message"], open_books(totals)) == (10, 4, [])


@pytest.mark.survives("connections", "peer away")
def test_a_silent_connection_is_closed_and_what_it_sent_is_a_line(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, idle_timeout=60.0)
    silent, lively = connect(sock), connect(sock)
    silent.sendall(b"not finished")
    receiving.rounds()
    receiving.clock.advance(50)
    lively.sendall(b"one\n")
    receiving.rounds()
    receiving.receiver.tick()
    assert not is_closed(silent)
    receiving.clock.advance(50)
    receiving.receiver.tick()
    assert [is_closed(each) for each in (silent, lively)] == [True, False]
    assert receiving.life.payloads() == [b"one", b"not finished"]
    assert receiving.life.totals()["connection_closed.idle"] == 1


def test_a_connection_is_never_closed_for_silence_unless_asked(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    silent = connect(sock)
    receiving.rounds()
    receiving.clock.advance(1e6)
    receiving.receiver.tick()
    assert not is_closed(silent)


def test_many_that_close_at_once_are_published_in_parts(
    tmp_path: Path, sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiving = Receiving(tmp_path, sock)
    monkeypatch.setattr(tcp, "ROUND_BYTES", 10_000)
    waited: list[int] = []
    flush = receiving.receiver._lines.publish

    def watched(first: int) -> int:
        waited.append(sum(each.lines.nbytes for each in receiving.receiver._lines._waiting))
        return flush(first)

    monkeypatch.setattr(receiving.receiver._lines, "publish", watched)
    connections = [connect(sock) for _ in range(40)]
    for each in connections:
        each.sendall(b"x" * 1900)
    receiving.rounds(10)
    for each in connections:
        each.close()
    receiving.rounds(10)
    assert receiving.life.totals()["line.message"] == 40
    assert max(waited) < 10_000 + 2500


def test_all_who_wait_are_let_in_within_a_round(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    newcomers = [connect(sock) for _ in range(20)]
    for each in newcomers:
        each.sendall(b"line\n")
    receiving.rounds(2)
    assert len(receiving.life.payloads()) == 20


def test_a_line_has_to_fit_into_what_all_may_hold() -> None:
    with pytest.raises(ValueError, match="max_unfinished is less than one line"):
        ListenerConfig(name="a", protocol="tcp", max_line=2000, max_unfinished=1999)
    assert ListenerConfig(name="a", protocol="udp", max_line=2000, max_unfinished=1999).max_line == 2000
