"""Senders of the forward protocol get acknowledgements for stored chunks, and are disconnected otherwise."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from penstock.config import ListenerConfig
from penstock.ingest.plog_commands import Commands
from penstock.ingest.receiver import make_decoder
from penstock.ingest.sockets import open_socket
from penstock.ingest.tcp import TcpReceiver
from tests.ingest.ingest_life import live
from tests.ingest.test_tcp import LISTENER, TERM

FORWARD = LISTENER.model_copy(update={"codec": "forward"})


class Receiving:
    """A receiver of the forward protocol in this process, and a substitute of the log daemon's reader."""

    def __init__(
        self, folder: Path, sock: socket.socket, listener: ListenerConfig = FORWARD, term_length: int = TERM
    ) -> None:
        self.life = live(folder, listener, term_length)
        decoder = make_decoder(listener)
        commands = Commands(listener, decoder.statistics.as_dict, list)
        self.awaited_at_wakes: list[bool] = []
        begin = self.life.publisher.position

        def wake() -> None:
            self.awaited_at_wakes.append(self.life.position.is_awaited(begin))

        own = (listener, sock, self.life.publisher, decoder, commands, wake)
        self.receiver = TcpReceiver(*own, readers=self.life.readers)
        self.sender = socket.create_connection(sock.getsockname())
        self.sender.settimeout(0.05)

    def send(self, *requests: object) -> None:
        self.sender.sendall(b"".join(map(msgpack.packb, requests)))
        self.rounds()

    def rounds(self) -> None:
        for _ in range(6):
            self.receiver.receive(0.02)

    def stored(self) -> None:
        """The log has everything that is in the buffer."""
        self.life.position.position = self.life.publisher.position
        self.rounds()

    def answers(self) -> list[object]:
        unpacker = msgpack.Unpacker()
        unpacker.feed(self.sender.recv(65_536))
        return list(unpacker)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Receiving]:
    with open_socket(LISTENER) as sock:
        receiving = Receiving(tmp_path, sock)
        yield receiving
        receiving.sender.close()


def test_a_sender_is_told_once_what_it_sent_is_stored_and_not_before(here: Receiving) -> None:
    here.send(["t", [[1, {"n": 1}]], {"chunk": "a"}])
    with pytest.raises(TimeoutError):
        here.answers()
    here.send(["t", [[1, {"n": 2}]], {"chunk": "b"}], ["t", 1, {"n": 3}])
    here.stored()
    assert here.answers() == [{"ack": "a"}, {"ack": "b"}]
    assert here.life.totals()["accepted"] == 0, "all of it is behind the reader's position"


def test_log_sees_the_waiting_sender_before_it_wakes(here: Receiving) -> None:
    here.send(["t", [[1, {"n": 1}]], {"chunk": "a"}])
    assert here.awaited_at_wakes == [True]


def test_sender_without_a_chunk_id_gets_no_answer(here: Receiving) -> None:
    here.send(["t", 1, {"n": 1}])
    assert [row["payload"] for row in here.life.rows()] == [b'{"n":1}']
    here.stored()
    with pytest.raises(TimeoutError):
        here.answers()


def test_sender_of_skipped_frames_is_closed_without_an_answer(here: Receiving) -> None:
    here.send(["t", [[1, {"n": 1}]], {"chunk": "a"}])
    here.life.publisher.on_skip("log", 0, here.life.publisher.position)
    here.rounds()
    assert here.sender.recv(10) == b""


def test_sender_of_a_request_is_closed_if_the_log_missed_its_first_rows(here: Receiving) -> None:
    here.sender.sendall(msgpack.packb(["t", [[1, {"n": number}] for number in range(9_000)], {"chunk": "a"}]))
    begin = here.life.publisher.position
    while here.life.publisher.position == begin:
        here.receiver.receive(0.02)
    here.life.publisher.on_skip("log", begin, here.life.publisher.position)
    here.rounds()
    assert here.sender.recv(10) == b""


def test_sender_of_a_large_request_is_answered_once_all_its_rows_are_stored(here: Receiving) -> None:
    here.sender.sendall(msgpack.packb(["t", [[1, {}]] * 3_000, {"chunk": "a"}]))
    while here.life.totals()["accepted"] < 3_000:
        here.receiver.receive(0.02)
    with pytest.raises(TimeoutError):
        here.answers()
    here.stored()
    assert here.answers() == [{"ack": "a"}]


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[tuple[Receiving, list[socket.socket]]]:
    """A receiver whose memory is full, and the senders whose requests (with and without a chunk) wait for it."""
    listener = FORWARD.model_copy(update={"max_body": 8 << 20, "idle_timeout": 0.001})
    with open_socket(LISTENER) as sock:
        here = Receiving(tmp_path, sock, listener, 32 << 20)
        events = gzip.compress(msgpack.packb([1, {"log": "x" * 1_000}]) * 5_000)
        senders = [socket.create_connection(sock.getsockname()) for _ in range(8)]
        for number, sender in enumerate(senders):
            chunk = {"chunk": f"c{number}"} if number % 2 else {}
            sender.sendall(msgpack.packb(["t", events, {"compressed": "gzip", **chunk}]))
        while len(here.receiver._parked) < 4:
            here.receiver.receive(0.02)
        yield here, senders
        for sender in (*senders, here.sender):
            sender.close()


def test_requests_of_senders_that_left_while_they_waited_are_dropped_if_they_are_repeated(
    waiting: tuple[Receiving, list[socket.socket]],
) -> None:
    here, senders = waiting
    ports = {connection.sock.getpeername()[1] for connection in here.receiver._parked}
    leaving = [sender for sender in senders if sender.getsockname()[1] in ports]
    repeated = sum(number % 2 for number, sender in enumerate(senders) if sender in leaving)
    assert repeated > 0
    for sender in leaving:
        sender.close()
    here.receiver.tick()
    while here.receiver._busy or here.receiver._parked:
        here.receiver.receive(0.02)
    here.rounds()
    here.receiver.tick()
    assert here.life.totals()["accepted"] == (8 - repeated) * 5_000
    assert here.life.totals()["connection_closed.left"] == repeated


def test_waiting_requests_are_published_one_after_the_other_in_the_end(
    waiting: tuple[Receiving, list[socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = waiting
    dialogues = [key.data.dialogue for key in here.receiver._selector.get_map().values() if key.data is not None]
    monkeypatch.setattr("penstock.ingest.tcp.FINISH_TIME_S", 0.0)
    flush, sizes = here.receiver._lines.publish, []

    def measured(first: int) -> int:
        sizes.append(sum(pending.lines.nbytes for pending in here.receiver._lines._waiting))
        return flush(first)

    monkeypatch.setattr(here.receiver._lines, "publish", measured)
    here.receiver.finish()
    assert max(sizes) < 8 << 20, "all of them have 40 MB"
    totals = here.life.totals()
    dropped = sum(dialogue.dropped for dialogue in dialogues)
    assert dropped > 0
    assert totals["accepted"] + 5_000 * dropped == 40_000
    assert totals["connection_closed.left"] == 0, "the listener has stopped, and no sender has left"


def test_sender_that_reads_no_answers_gets_whole_ones_until_it_is_closed(here: Receiving) -> None:
    here.rounds()
    (connection,) = [key.data for key in here.receiver._selector.get_map().values() if key.data is not None]
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    here.sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    names = [f"{number:03000}" for number in range(40)]
    for name in names:
        if connection.is_open:
            here.send(["t", [[1, {}]], {"chunk": name}])
            here.stored()
    assert not connection.is_open, "a part of an answer would be followed by others"
    here.sender.settimeout(10)
    received = b""
    while chunk := here.sender.recv(65_536):
        received += chunk
    unpacker = msgpack.Unpacker()
    unpacker.feed(received)
    answers = list(unpacker)
    assert answers == [{"ack": name} for name in names[: len(answers)]]
    assert unpacker.tell() < len(received), "the last one is cut, and nothing follows it"
