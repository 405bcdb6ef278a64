"""A TCP proxy that breaks connections on request."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """A proxy between a client and the server at ``target`` (``host:port``)."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = (host, int(port))
        self.swallow = False
        """Whether the next answer is lost: its connection ends instead."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        """Connections that were made."""
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._refusing = self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def refuse(self, refusing: bool = True) -> None:
        """Refuse connections and end the open ones, or accept connections again."""
        self._refusing = refusing
        if refusing:
            self.cut()

    def cut(self) -> None:
        """End all connections."""
        for pair in self._pairs:
            for end in pair:
                _end(end)
        self._pairs = []

    def close(self) -> None:
        self._closed = True
        _end(self._listening)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            if self._refusing:
                near.close()
                continue
            with contextlib.suppress(OSError):
                far = socket.create_connection(self.target)
                self._pairs.append((near, far))
                self.connections += 1
                threading.Thread(target=self._copy, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._copy, args=(far, near, True), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if answers and self.swallow:
                    self.swallow = False
                    break
                sink.sendall(data)
        _end(source)
        _end(sink)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
