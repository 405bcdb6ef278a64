"""A fast sender of equal datagrams: ``python -m bench.sender HOST PORT SIZE COUNT RATE``; prints JSON.

``RATE`` is messages a second, 0 for as fast as possible. sendmmsg in groups of 64.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import time

import numpy as np

GROUP = 64


class Group:
    """``GROUP`` equal datagrams as the kernel's sendmmsg takes them."""

    def __init__(self, payload: bytes) -> None:
        self._payload = ctypes.create_string_buffer(payload, len(payload))
        self._vector = np.array([(ctypes.addressof(self._payload), len(payload))], "<u8,<u8")
        message = np.zeros((GROUP, 8), "<u8")
        message[:, 2] = self._vector.ctypes.data
        message[:, 3] = 1
        self._messages = message
        self._libc = ctypes.CDLL(None, use_errno=True)

    def send(self, sock: socket.socket) -> int:
        """Send the group; how many of it went out."""
        sent = self._libc.sendmmsg(sock.fileno(), ctypes.c_void_p(self._messages.ctypes.data), GROUP, 0)
        if sent < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return int(sent)


def send(address: tuple[str, int], size: int, count: int, rate: int) -> dict[str, float]:
    """Send ``count`` datagrams of ``size`` bytes; what was sent, in how many seconds."""
    group, sent = Group(b"m" * size), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(address)
        started = time.perf_counter()
        while sent < count:
            sent += group.send(sock)
            ahead = sent / rate - (time.perf_counter() - started) if rate else 0
            if ahead > 0.0005:
                time.sleep(ahead)
        seconds = time.perf_counter() - started
    return {"sent": sent, "seconds": seconds}


if __name__ == "__main__":
    host, *numbers = sys.argv[1:]
    port, size, count, rate = map(int, numbers)
    print(json.dumps(send((host, port), size, count, rate)))
