"""Several receivers of one UDP port: each sender's messages are received by one of them, in order, none lost."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from penstock.log.read.topic_reader import TopicReader
from penstock.supervise.reload import request_reload
from penstock.testing.pipe import Pipe, free_ports, wait_until
from tests.system.configured_pipe import SMALL

SENDERS, EACH = 64, 100  # so many that no receiver is left without one: (2/3)^64
LISTENER = """
[[listener]]
name = "in"
protocol = "udp"
codec = "raw"
port = {port}
receivers = {receivers}
so_rcvbuf = "4MiB"
handlers = [{{type = "log", topic = "in"}}]
"""


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    running = Pipe(tmp_path)
    running.configure(SMALL + LISTENER.format(port=free_ports(1)[0], receivers=3))
    running.start()
    yield running
    running.stop()


@contextmanager
def senders(pipe: Pipe, listener: str = "in") -> Iterator[list[socket.socket]]:
    socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(SENDERS)]
    for sock in socks:
        sock.connect(pipe.address(listener))
    yield socks
    for sock in socks:
        sock.close()


def send(socks: list[socket.socket], first: int) -> None:
    for number in range(first, first + EACH):
        for sender, sock in enumerate(socks):
            sock.send(b"%d %d" % (sender, number))
        if number % 20 == 0:
            time.sleep(0.002)


def stored(pipe: Pipe) -> list[tuple[str, int, int]]:
    """Return source, sender and number of each message, in order."""
    messages = []
    for batch in TopicReader(pipe.data_dir / "topics" / "in").read(0):
        for payload in batch.batch["payload"].to_pylist():
            sender, number = map(int, payload.split())
            messages.append((batch.origin.source, sender, number))
    return messages


def check(pipe: Pipe, last: int) -> set[str]:
    """Check that each sender was received by one receiver, in order and completely; return the receivers' names."""
    wait_until(lambda: sum(pipe.counts(name)["accepted"] for name in ("in", "in-2", "in-3")) >= SENDERS * last)
    pipe.settled()
    messages = stored(pipe)
    for sender in range(SENDERS):
        of_sender = [(source, number) for source, message_sender, number in messages if message_sender == sender]
        assert [number for _, number in of_sender] == list(range(last))
        assert len({source for source, _ in of_sender}) == 1
    return {source for source, _, _ in messages}


@pytest.mark.survives("datagrams", "SIGKILL")
def test_each_sender_has_one_receiver_and_a_killed_receiver_loses_nothing(pipe: Pipe) -> None:
    with senders(pipe) as socks:
        send(socks, 0)
        assert len(check(pipe, EACH)) > 1, "the kernel spreads the senders"
        for name in ("in", "in-2", "in-3"):
            pipe.signal(f"receiver {name}", signal.SIGKILL)
        send(socks, EACH)
        check(pipe, 2 * EACH)


@pytest.mark.parametrize("receivers", [1, 2])
def test_reload_with_fewer_and_more_receivers_loses_nothing(pipe: Pipe, receivers: int) -> None:
    assert pipe.config
    text = pipe.config.read_text()
    with senders(pipe) as socks:
        send(socks, 0)
        check(pipe, EACH)
    for receiver_count in (receivers, 3):
        before = len(stored(pipe))
        pipe.config.write_text(text.replace("receivers = 3", f"receivers = {receiver_count}"))
        request_reload(pipe.data_dir, timeout_s=60)
        with senders(pipe) as socks:
            send(socks, 0)
        assert wait_until(partial(has_stored, pipe, before + SENDERS * EACH))
        pipe.settled()
        assert len(stored(pipe)) == before + SENDERS * EACH
        assert len({source for source, _, _ in stored(pipe)[before:]}) == receiver_count


def test_renamed_listener_distributes_senders_over_all_receivers(pipe: Pipe) -> None:
    assert pipe.config
    pipe.config.write_text(pipe.config.read_text().replace('name = "in"', 'name = "other"'))
    request_reload(pipe.data_dir, timeout_s=60)
    with senders(pipe, "other") as socks:
        send(socks, 0)
    assert wait_until(partial(has_stored, pipe, SENDERS * EACH))
    assert len(stored(pipe)) == SENDERS * EACH
    assert len({source for source, _, _ in stored(pipe)}) > 1


def has_stored(pipe: Pipe, count: int) -> bool:
    return (pipe.data_dir / "topics" / "in").exists() and len(stored(pipe)) >= count
