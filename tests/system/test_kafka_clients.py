"""A running pipe with Kafka clients: kills of its processes, and hostile clients."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer

from penstock.log import TopicReader
from penstock.server.kafka.schema.messages import VERSIONS
from penstock.testing.pipe import Pipe, free_ports, wait_until

TOPIC = "t"
LARGEST = 400_000_000
"""Bytes that the daemon may have in memory at most."""
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 0}


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    (port,) = free_ports(1)
    pipe = Pipe(tmp_path, f"log.kafka=127.0.0.1:{port}")
    pipe.start()
    yield pipe
    pipe.stop()


def address(pipe: Pipe) -> str:
    return next(override.partition("=")[2] for override in pipe.overrides if override.startswith("log.kafka="))


class Sending(threading.Thread):
    """An idempotent producer of numbered messages, with the offsets of the acknowledged ones."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__(daemon=True)
        config = {"enable.idempotence": True, "message.timeout.ms": 300_000, "linger.ms": 2, **QUICK}
        self._producer = Producer({"bootstrap.servers": address, **config})
        self._stopping = threading.Event()
        self.name = name
        self.sent = 0
        self.acknowledged: list[tuple[int, int]] = []
        self.failed: list[object] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            number = self.sent
            self._producer.produce(TOPIC, f"{self.name} {number}", on_delivery=self._report(number))
            self.sent += 1
            self._producer.poll(0.001)
        self._producer.flush(120)

    def _report(self, number: int) -> object:
        def acknowledged(error: object, message: Message) -> None:
            if error is None:
                self.acknowledged.append((number, message.offset() or 0))
            else:
                self.failed.append(error)

        return acknowledged

    def end(self) -> None:
        self._stopping.set()
        self.join(150)
        assert not self.is_alive()


class Reading(threading.Thread):
    """A member of a group that commits the messages it has read."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        config = {"group.id": "g", "auto.offset.reset": "earliest", "auto.commit.interval.ms": 200}
        self._consumer = Consumer({"bootstrap.servers": address, "session.timeout.ms": 6000, **config, **QUICK})
        self._stopping = threading.Event()
        self.received: dict[int, str] = {}

    def run(self) -> None:
        self._consumer.subscribe([TOPIC])
        while not self._stopping.is_set():
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is None:
                    self.received[message.offset() or 0] = (message.value() or b"").decode()
        self._consumer.close()

    def end(self) -> None:
        self._stopping.set()
        self.join(60)


def _each_progressed(senders: list[Sending], before: list[int]) -> bool:
    """Report whether each producer progressed: a disconnected one would otherwise wait from one kill to the next."""
    return all(len(sender.acknowledged) > count + 25 for sender, count in zip(senders, before, strict=True))


@pytest.mark.survives("Kafka protocol", "SIGKILL")
@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_acknowledged_messages_are_stored_once_and_in_order_after_kills(pipe: Pipe, kills: int) -> None:
    senders = [Sending(address(pipe), name) for name in ("a", "b")]
    reader = Reading(address(pipe))
    for thread in (*senders, reader):
        thread.start()
    for _ in range(kills):
        before = [len(sender.acknowledged) for sender in senders]
        wait_until(lambda before=before: _each_progressed(senders, before), 60, "messages of each come through")
        pipe.kill("log daemon")
        wait_until(pipe.answers, 60)
    for sender in senders:
        sender.end()
        assert not sender.failed
        assert len(sender.acknowledged) == sender.sent
    batches = TopicReader(pipe.data_dir / "topics" / TOPIC).read(0)
    rows = [stored_batch.batch.select(["offset", "payload"]).to_pylist() for stored_batch in batches]
    stored = {row["offset"]: row["payload"].decode() for many in rows for row in many}
    assert sorted(stored) == list(range(len(stored)))
    assert len(stored) == sum(sender.sent for sender in senders), "each once"
    for sender in senders:
        numbers = [int(text.partition(" ")[2]) for _, text in sorted(stored.items()) if text[0] == sender.name]
        assert numbers == list(range(sender.sent)), "in order"
        assert all(stored[offset] == f"{sender.name} {number}" for number, offset in sender.acknowledged)
    wait_until(lambda: len(reader.received) == len(stored), 60, "the group has read all")
    assert reader.received == stored
    reader.end()
    assert pipe.get("/balance")["unaccounted"] == 0


class Hostile:
    """A client that sends invalid requests."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address, self._random = (host, int(port)), random.Random(5)
        self._open_sockets: list[socket.socket] = []

    def send(self) -> None:
        """Send one invalid request of a random kind."""
        with contextlib.suppress(OSError):
            sock = socket.create_connection(self._address, 5)
            sock.settimeout(5)
            sock.sendall(self._request())
            if self._random.random() < 0.05 and len(self._open_sockets) < 100:
                self._open_sockets.append(sock)
            else:
                sock.close()

    def _request(self) -> bytes:
        draw = self._random
        api, (first, last) = draw.choice(list(VERSIONS.items()))
        head = struct.pack(">hhihs", api, draw.randint(first, last), 1, 1, b"x")
        tails = [
            draw.randbytes(draw.randint(0, 300)),
            b"\x00" + b"\xff\xff\xff\xff\x07" * 20,
            b"\x7f\xff\xff\xff" * 20,
            bytes(64),
        ]
        body = draw.choice([head + draw.choice(tails), draw.randbytes(50), b"GET / HTTP/1.1\r\n\r\n"])
        size = draw.choice([len(body), len(body), len(body), 99 << 20, 2**31 - 1, -1, 0])
        return struct.pack(">i", size) + body

    def end(self) -> None:
        for sock in self._open_sockets:
            sock.close()


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_hostile_requests_do_not_affect_other_clients(pipe: Pipe, count: int) -> None:
    sender, hostile, pid = Sending(address(pipe), "a"), Hostile(address(pipe)), pipe.pid("log daemon")
    sender.start()
    wait_until(lambda: sender.acknowledged, what="a message comes through")
    for _ in range(count):
        hostile.send()
    before = len(sender.acknowledged)
    wait_until(lambda: len(sender.acknowledged) > before, what="others are served")
    hostile.end()
    sender.end()
    assert not sender.failed
    assert pipe.pid("log daemon") == pid, "it is the same one"
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    assert 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) < LARGEST
    time.sleep(0.2)
    assert "Traceback" not in pipe.output.read_text()
