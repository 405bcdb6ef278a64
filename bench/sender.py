"""A cheap sender: ``python -m bench.sender KIND HOST PORT SIZE COUNT RATE``; prints JSON.

``KIND``: ``datagrams`` of SIZE bytes, ``fragments`` (of 1,400 bytes) of messages of SIZE bytes, or ``lines`` of
SIZE bytes. ``COUNT`` and ``RATE`` (a second, 0 for as fast as possible) are of these. All is laid out beforehand:
sender and receiver share the machine.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from typing import Protocol

import mmh3
import numpy as np

from penstock.client.bulk import Bulk
from penstock.client.sender import udp_socket
from penstock.wire.header import FRAGMENT, HEADER, HEADER_SIZE

GROUP = 64
"""Datagrams of one system call."""
FRAGMENT_SIZE = 1400
LINES = 2000


class Load(Protocol):
    """What is sent again and again: ``units`` datagrams, fragments or lines each time."""

    units: int

    def send(self, sock: socket.socket) -> None: ...


class Datagrams:
    """Equal datagrams."""

    units = GROUP

    def __init__(self, size: int) -> None:
        payload = np.full(size, ord("m"), np.uint8)
        self._bulk = Bulk([payload], np.zeros((GROUP, 1), np.int64), np.full((GROUP, 1), size))

    def send(self, sock: socket.socket) -> None:
        """Send them."""
        self._bulk.send(sock)


class Fragments:
    """Messages in fragments, their ids increasing by one."""

    def __init__(self, size: int) -> None:
        count = -(-size // FRAGMENT_SIZE)
        messages = max(GROUP // count, 1)
        self.units, self._messages = messages * count, messages
        payload = np.random.default_rng(0).integers(0, 256, size, np.uint8)
        index = np.tile(np.arange(count), messages)
        self._headers = np.zeros(self.units, HEADER)
        self._headers["type"], self._headers["count"], self._headers["index"] = FRAGMENT, count, index
        self._headers["size"], self._headers["total"] = FRAGMENT_SIZE, size
        self._headers["hash"] = mmh3.mmh3_32_uintdigest(payload.tobytes(), 0)
        self._ids = np.repeat(np.arange(messages), count)
        self._next = 0
        starts = np.stack([np.arange(self.units) * HEADER_SIZE, index * FRAGMENT_SIZE], axis=1)
        rest = np.minimum(size - index * FRAGMENT_SIZE, FRAGMENT_SIZE)
        lengths = np.stack([np.full(self.units, HEADER_SIZE), rest], axis=1)
        self._bulk = Bulk([self._headers.view(np.uint8), payload], starts, lengths)

    def send(self, sock: socket.socket) -> None:
        """Send the next messages."""
        self._headers["id"] = self._next + self._ids
        self._next += self._messages
        self._bulk.send(sock)


class Lines:
    """Equal lines."""

    units = LINES

    def __init__(self, size: int) -> None:
        self._data = (b"m" * size + b"\n") * LINES

    def send(self, sock: socket.socket) -> None:
        """Send them."""
        sock.sendall(self._data)


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


LOADS = {"datagrams": Datagrams, "fragments": Fragments, "lines": Lines}


def main() -> None:
    """Send what the command line asks for."""
    kind, host, *numbers = sys.argv[1:]
    port, size, count, rate = map(int, numbers)
    sock = socket.create_connection((host, port)) if kind == "lines" else udp_socket(host, port)
    with sock:
        print(json.dumps(send(LOADS[kind](size), sock, count, rate)))


if __name__ == "__main__":
    main()
