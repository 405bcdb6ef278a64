"""Expensive forward requests are refused or read in turns, and other senders are served in between."""

from __future__ import annotations

import gzip
import mmap
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgpack
import pytest

from penstock.config import ListenerConfig
from penstock.handover.frames.frame import decode_frame
from penstock.handover.paths import buffer_file
from penstock.ingest.plog_commands import Commands
from penstock.ingest.receiver import make_decoder
from penstock.ingest.sockets import open_socket
from penstock.ingest.tcp import TcpReceiver
from penstock.logbuffer import Subscription
from penstock.testing.pipe import wait_until
from tests.ingest.ingest_life import live

SERVED_WITHIN_S = 1.0
MORE_MEMORY = 300 << 20


class ForwardListener:
    """A receiver of the forward protocol on a thread, and a log that stores what it writes."""

    def __init__(self, folder: Path, sock: socket.socket, listener: ListenerConfig) -> None:
        self.life = live(folder, listener, 32 << 20)
        decoder = make_decoder(listener)
        commands = Commands(listener, decoder.statistics.as_dict, list)
        wake = lambda: None  # noqa: E731
        self._receiver = TcpReceiver(
            listener, sock, self.life.publisher, decoder, commands, wake, readers=self.life.readers
        )
        self._frames = Subscription(buffer_file(folder, listener.name), self.life.position.position)
        self._ends = False
        self.payloads: list[bytes] = []
        self.refused_oversize = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends:
            self._receiver.receive(0.01)
            self._receiver.tick()
            for frame in self._frames.poll():
                batch, receipt = decode_frame(frame.data)
                self.payloads += batch.column("payload").to_pylist()
                self.refused_oversize += receipt.origin.counts.get("refused.oversize", 0)
            self.life.position.position = self._frames.position

    def end(self) -> None:
        self._ends = True
        self._thread.join(60)
        self._frames.close()
        self.life.end()


@pytest.fixture
def forward(tmp_path: Path) -> Iterator[tuple[ForwardListener, int]]:
    listener = ListenerConfig(name="fwd", protocol="tcp", codec="forward", port=0)
    with open_socket(listener) as sock:
        running = ForwardListener(tmp_path, sock, listener)
        try:
            yield running, sock.getsockname()[1]
        finally:
            running.end()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def gzip_of_60_mib() -> bytes:
    event = msgpack.packb([1, {"a": "x" * 1000}])
    packed = gzip.compress(event * (60_000 * 1024 // len(event)))
    assert len(packed) < 300_000
    return bytes(msgpack.packb(["t", packed, {"compressed": "gzip"}]))


def million_empty_events() -> bytes:
    return bytes(msgpack.packb(["t", gzip.compress(msgpack.packb([1, {}]) * 1_000_000), {"compressed": "gzip"}]))


def million_in_an_array() -> bytes:
    return bytes(msgpack.packb(["t", [[1, {}]] * 1_000_000]))


def repeated_keys() -> bytes:
    count = 400_000
    return b"\x93\xa1t\x01\xdf" + count.to_bytes(4, "big") + b"\xa0\xc0" * count


@pytest.mark.parametrize(
    ("attack", "count"),
    [(gzip_of_60_mib, 50), (million_empty_events, 6), (million_in_an_array, 12), (repeated_keys, 12)],
)
def test_request_of_too_much_is_refused_while_others_are_served(
    forward: tuple[ForwardListener, int], attack: Callable[[], bytes], count: int
) -> None:
    """``count``: concurrent requests. If all are unpacked at once, the 50 of 60 MiB need 3 GiB, and the 6 of a million
    empty events, which take a second each, 900 MB.
    """
    running, port = forward
    octets = attack()
    before = resident_bytes()
    attackers = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(count)]
    waits = []
    with socket.create_connection(("127.0.0.1", port), 60) as honest:
        senders = [threading.Thread(target=each.sendall, args=(octets,)) for each in attackers]
        for sender in senders:
            sender.start()
        number = 0
        while running.refused_oversize < count:
            honest.sendall(msgpack.packb(["honest", 1, {"number": number}]))
            began = time.monotonic()
            wait_until(lambda number=number: b'{"number":%d}' % number in running.payloads[-3:])  # type: ignore[misc]
            waits.append(time.monotonic() - began)
            number += 1
    for sender, sock in zip(senders, attackers, strict=True):
        sender.join()
        sock.close()
    assert max(waits) < SERVED_WITHIN_S
    assert resident_bytes() - before < MORE_MEMORY


def test_large_request_within_the_limits_is_taken_whole_and_acknowledged(forward: tuple[ForwardListener, int]) -> None:
    running, port = forward
    events = b"".join(msgpack.packb([1, {"n": number}]) for number in range(200_000))
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        sock.sendall(msgpack.packb(["t", gzip.compress(events), {"compressed": "gzip", "chunk": "c1"}]))
        assert msgpack.unpackb(sock.recv(100)) == {"ack": "c1"}
    assert running.payloads == [b'{"n":%d}' % number for number in range(200_000)]
