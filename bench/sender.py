"""A cheap sender: ``python -m bench.sender KIND HOST PORT SIZE COUNT RATE``; prints JSON.

``KIND``: ``datagrams`` of SIZE bytes, ``fragments`` (of 1,400 bytes) of messages of SIZE bytes, or ``lines`` of
SIZE bytes. ``COUNT`` and ``RATE`` (a second, 0 for as fast as possible) are of these. All is laid out beforehand, and
the kernel cuts datagrams out of larger sends (UDP_SEGMENT, Linux 4.18): sender and receiver share the machine.
``separate`` are datagrams that nobody cuts, many of them in a call (sendmmsg); ``syslog`` and ``separate_syslog``
are the same with the head of a syslog message (RFC 3164); ``syslog_lines`` are lines with one of RFC 5424.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import mmh3
import numpy as np

from penstock.client.send_many import DatagramBatch
from penstock.client.sender import udp_socket
from penstock.wire.plog.header import FRAGMENT, HEADER, HEADER_SIZE

GROUP = 64
"""Datagrams of one system call, 64 KiB of them at the most."""
SOL_UDP, UDP_SEGMENT = 17, 103
FRAGMENT_SIZE = 1400
SYSLOG_HEAD = b"<134>Nov 26 12:00:00 web-17 shop[4711]: "
"""Head of a syslog message: without a PRI, rsyslog and Penstock skip most of their parsing."""
SYSLOG_5424_HEAD = b'<134>1 2026-11-26T12:00:00.123456Z web-17 shop 4711 ID47 [order@32473 region="eu" id="77"] '
LINES = 2000


class Load(Protocol):
    """What is sent again and again: ``units`` datagrams, fragments or lines each time."""

    units: int

    def send(self, sock: socket.socket) -> None: ...


class Datagrams:
    """Equal datagrams that begin with ``head``."""

    units = GROUP

    def __init__(self, size: int, head: bytes = b"") -> None:
        self._size, self._data = size, head.ljust(size, b"m") * GROUP

    def send(self, sock: socket.socket) -> None:
        """Send them."""
        send_cut(sock, memoryview(self._data), self._size)


class Separate:
    """Equal datagrams, each of its own."""

    units = GROUP

    def __init__(self, size: int, head: bytes = b"") -> None:
        self._batch = DatagramBatch.from_datagrams([head.ljust(size, b"m")] * GROUP)

    def send(self, sock: socket.socket) -> None:
        """Send them."""
        self._batch.send(sock)


class Fragments:
    """Messages in fragments, their ids increasing by one."""

    def __init__(self, size: int) -> None:
        count = -(-size // FRAGMENT_SIZE)
        self.units, self._next = count, 0
        payload = np.random.default_rng(0).integers(0, 256, size, np.uint8)
        self._fragments = np.zeros(count, np.dtype([("header", HEADER), ("payload", np.uint8, FRAGMENT_SIZE)]))
        header = self._fragments["header"]
        header["type"], header["count"], header["index"] = FRAGMENT, count, np.arange(count)
        header["size"], header["total"] = FRAGMENT_SIZE, size
        header["hash"] = mmh3.mmh3_32_uintdigest(payload.tobytes(), 0)
        padded = np.zeros(count * FRAGMENT_SIZE, np.uint8)
        padded[:size] = payload
        self._fragments["payload"] = padded.reshape(count, FRAGMENT_SIZE)
        self._data = memoryview(self._fragments.view(np.uint8).data)[: count * HEADER_SIZE + size]

    def send(self, sock: socket.socket) -> None:
        """Send the next message."""
        self._fragments["header"]["id"] = self._next
        self._next += 1
        send_cut(sock, self._data, HEADER_SIZE + FRAGMENT_SIZE)


class Lines:
    """Equal lines that begin with ``head``."""

    units = LINES

    def __init__(self, size: int, head: bytes = b"") -> None:
        self._data = (head.ljust(size, b"m") + b"\n") * LINES

    def send(self, sock: socket.socket) -> None:
        """Send them."""
        sock.sendall(self._data)


def send_cut(sock: socket.socket, data: memoryview, size: int) -> None:
    """Send ``data`` as datagrams of ``size`` bytes, the last one shorter."""
    sock.setsockopt(SOL_UDP, UDP_SEGMENT, size)
    step = min(GROUP, 65_000 // size) * size
    for begin in range(0, len(data), step):
        sock.send(data[begin : begin + step])


def send(load: Load, sock: socket.socket, count: int, rate: int) -> dict[str, float]:
    """Send ``count`` units of ``load``; what was sent, in how many seconds."""
    sent, started = 0, time.perf_counter()
    for _ in _paced(load.units, rate, started):
        load.send(sock)
        sent += load.units
        if sent >= count:
            break
    return {"sent": sent, "seconds": time.perf_counter() - started}


def _paced(units: int, rate: int, started: float) -> Iterator[None]:
    sent = 0
    while True:
        yield
        sent += units
        ahead = sent / rate - (time.perf_counter() - started) if rate else 0.0
        if ahead > 0.0005:
            time.sleep(ahead)


LOADS: dict[str, Callable[[int], Load]] = {
    "datagrams": Datagrams,
    "separate": Separate,
    "syslog": partial(Datagrams, head=SYSLOG_HEAD),
    "separate_syslog": partial(Separate, head=SYSLOG_HEAD),
    "fragments": Fragments,
    "lines": Lines,
    "syslog_lines": partial(Lines, head=SYSLOG_5424_HEAD),
}


def main() -> None:
    """Send what the command line asks for."""
    kind, host, *numbers = sys.argv[1:]
    port, size, count, rate = map(int, numbers)
    sock = socket.create_connection((host, port)) if kind.endswith("lines") else udp_socket(host, port)
    with sock:
        print(json.dumps(send(LOADS[kind](size), sock, count, rate)))


if __name__ == "__main__":
    main()
