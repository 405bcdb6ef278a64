"""Senders of the forward protocol get acknowledgements for stored chunks, and are disconnected otherwise."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from penstock.ingest.plog_commands import Commands
from penstock.ingest.receiver import make_decoder
from penstock.ingest.sockets import open_socket
from penstock.ingest.tcp import TcpReceiver
from tests.ingest.ingest_life import live
from tests.ingest.test_tcp import LISTENER, TERM

FORWARD = LISTENER.model_copy(update={"codec": "forward"})


class Receiving:
    """A receiver of the forward protocol in this process, and a substitute of the log daemon's reader."""

    def __init__(self, folder: Path, sock: socket.socket) -> None:
        self.life = live(folder, FORWARD, TERM)
        decoder = make_decoder(FORWARD)
        commands = Commands(FORWARD, decoder.statistics.as_dict, list)
        own = (FORWARD, sock, self.life.publisher, decoder, commands, lambda: None)
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


def test_who_asks_for_nothing_is_told_nothing(here: Receiving) -> None:
    here.send(["t", 1, {"n": 1}])
    assert [row["payload"] for row in here.life.rows()] == [b'{"n":1}']
    here.stored()
    with pytest.raises(TimeoutError):
        here.answers()


def test_who_sent_what_the_log_missed_is_closed_and_not_told(here: Receiving) -> None:
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
