"""Who sends during a drill: datagrams, lines and appends, each message with a number of its own."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator

from penstock.client import ClientError, Log
from penstock.client.sender import udp_socket
from penstock.config import ListenerConfig, Settings
from penstock.drill.pipe import DrillPipe

TOPIC = "drill"
"""The topic of the appends."""
BURST = 20
"""Messages that a sender sends at once."""


class Sender(threading.Thread, ABC):
    """Sends bursts until it is told to stop; ``sent`` counts messages, each numbered from 0 on."""

    def __init__(self, name: str, rate: float) -> None:
        super().__init__(name=name, daemon=True)
        self.sent = 0
        self._pause = BURST / rate
        self._stopped, self._may_send = threading.Event(), threading.Event()
        self._idle = threading.Lock()
        self._may_send.set()

    def run(self) -> None:
        while not self._stopped.wait(self._pause):
            self._may_send.wait()
            with self._idle:
                if self._may_send.is_set():
                    self.burst()

    @abstractmethod
    def burst(self) -> None:
        """Send some messages."""

    def payloads(self) -> list[bytes]:
        """The next ones."""
        return [payload(self.name, self.sent + number) for number in range(BURST)]

    def hold(self) -> None:
        """Send nothing until ``go_on``: nothing is half sent when this returns."""
        self._may_send.clear()
        with self._idle:
            pass

    def go_on(self) -> None:
        """Send again."""
        self._may_send.set()

    def stop(self) -> None:
        """For good."""
        self._stopped.set()
        self._may_send.set()
        self.join()


MARK = re.compile(rb'"uuid": "([a-z0-9_\-]+)-([0-9]+)"')


def mark_of(payload: bytes) -> tuple[str, int] | None:
    """Whose and which message it is; None for what no sender of a drill made."""
    found = MARK.search(payload)
    return (found[1].decode(), int(found[2])) if found else None


def payload(sender: str, number: int) -> bytes:
    """An event that says whose and which message it is."""
    event = {"type": f"t{number % 5}", "uuid": f"{sender}-{number}", "timestamp": number, "data": {}}
    return json.dumps(event).encode()


class DatagramSender(Sender):
    """To a listener of UDP; ``sent`` is what the kernel took, all of it for the listener's socket."""

    def __init__(self, listener: ListenerConfig, pipe: DrillPipe, rate: float) -> None:
        super().__init__(listener.name, rate)
        self._listener, self._pipe = listener, pipe

    def burst(self) -> None:
        address = self._pipe.address(self._listener.name)
        if address is None:
            return
        with contextlib.suppress(OSError), udp_socket(*address) as sock:
            for datagram in self.payloads():
                sock.send(datagram)
                self.sent += 1


class LineSender(Sender):
    """To a listener of TCP, over a connection that is made again; ``sent`` is what was handed to the kernel."""

    def __init__(self, listener: ListenerConfig, pipe: DrillPipe, rate: float) -> None:
        super().__init__(listener.name, rate)
        self._listener, self._pipe = listener, pipe
        self._sock: socket.socket | None = None

    def burst(self) -> None:
        lines = self.payloads()
        try:
            if self._sock is None:
                address = self._pipe.address(self._listener.name)
                if address is None:
                    return
                self._sock = socket.create_connection(address, 5)
            self.sent += len(lines)  # also what breaks off may have come
            self._sock.sendall(b"\n".join([*lines, b""]))
        except OSError:
            self._leave()

    def _leave(self) -> None:
        if self._sock:
            self._sock.close()
            self._sock = None

    def stop(self) -> None:
        super().stop()
        self._leave()


class Appender(Sender):
    """Appends over gRPC; ``acknowledged`` has the number of the message that each acknowledged offset is of."""

    def __init__(self, settings: Settings, rate: float) -> None:
        super().__init__(TOPIC, rate)
        self.acknowledged: dict[int, int] = {}
        self._log = Log(settings.log.grpc, timeout=10, retry_for=5)

    def burst(self) -> None:
        first = self.sent
        batch = self.payloads()
        self.sent += len(batch)
        with contextlib.suppress(ClientError):
            offsets = self._log.append(TOPIC, batch)
            self.acknowledged.update(zip(offsets, range(first, first + len(batch)), strict=True))

    def stop(self) -> None:
        super().stop()
        self._log.close()


def senders_of(pipe: DrillPipe, rate: float) -> Iterator[Sender]:
    """One for each listener, and one for the log."""
    for listener in pipe.settings.listener:
        made = DatagramSender if listener.protocol == "udp" else LineSender
        yield made(listener, pipe, rate)
    yield Appender(pipe.settings, rate)
