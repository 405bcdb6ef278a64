"""Several receivers for one UDP port: each sender's messages by one of them, in order, none lost."""

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
from penstock.testing.pipe import Pipe, free_ports, until
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
    made = Pipe(tmp_path)
    made.configure(SMALL + LISTENER.format(port=free_ports(1)[0], receivers=3))
    made.start()
    yield made
    made.stop()


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
        for which, sock in enumerate(socks):
            sock.send(b"%d %d" % (which, number))
        if number % 20 == 0:
            time.sleep(0.002)


def stored(pipe: Pipe) -> list[tuple[str, int, int]]:
    """Source, sender and number of each message, in order."""
    found = []
    for batch in TopicReader(pipe.data_dir / "topics" / "in").read(0):
        for payload in batch.batch["payload"].to_pylist():
            which, number = map(int, payload.split())
            found.append((batch.origin.source, which, number))
    return found


def check(pipe: Pipe, last: int) -> set[str]:
    """Every sender has been heard by one receiver only, in order and whole; the receivers' names."""
    until(lambda: sum(pipe.counts(name)["accepted"] for name in ("in", "in-2", "in-3")) >= SENDERS * last)
    pipe.settled()
    found = stored(pipe)
    for which in range(SENDERS):
        mine = [(source, number) for source, sender, number in found if sender == which]
        assert [number for _, number in mine] == list(range(last))
        assert len({source for source, _ in mine}) == 1
    return {source for source, _, _ in found}


def test_each_sender_is_heard_by_one_receiver_and_a_killed_one_loses_nothing(pipe: Pipe) -> None:
    with senders(pipe) as socks:
        send(socks, 0)
        assert len(check(pipe, EACH)) > 1, "the kernel spreads the senders"
        for name in ("in", "in-2", "in-3"):
            pipe.signal(f"receiver {name}", signal.SIGKILL)
        send(socks, EACH)
        check(pipe, 2 * EACH)


@pytest.mark.parametrize("receivers", [1, 2])
def test_a_reload_takes_fewer_and_then_more_and_loses_nothing(pipe: Pipe, receivers: int) -> None:
    assert pipe.config
    text = pipe.config.read_text()
    with senders(pipe) as socks:
        send(socks, 0)
        check(pipe, EACH)
    for wanted in (receivers, 3):
        before = len(stored(pipe))
        pipe.config.write_text(text.replace("receivers = 3", f"receivers = {wanted}"))
        request_reload(pipe.data_dir, timeout_s=60)
        with senders(pipe) as socks:
            send(socks, 0)
        assert until(partial(has_stored, pipe, before + SENDERS * EACH))
        pipe.settled()
        assert len(stored(pipe)) == before + SENDERS * EACH
        assert len({source for source, _, _ in stored(pipe)[before:]}) == wanted


def test_a_listener_with_another_name_has_its_senders_at_all_of_its_receivers(pipe: Pipe) -> None:
    assert pipe.config
    pipe.config.write_text(pipe.config.read_text().replace('name = "in"', 'name = "other"'))
    request_reload(pipe.data_dir, timeout_s=60)
    with senders(pipe, "other") as socks:
        send(socks, 0)
    assert until(partial(has_stored, pipe, SENDERS * EACH))
    assert len(stored(pipe)) == SENDERS * EACH
    assert len({source for source, _, _ in stored(pipe)}) > 1


def has_stored(pipe: Pipe, count: int) -> bool:
    return (pipe.data_dir / "topics" / "in").exists() and len(stored(pipe)) >= count
