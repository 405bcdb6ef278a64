"""Senders of a drill: datagrams, lines and appends, each message with a number of its own."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from penstock.client import ClientError, LedgerReport, Log, ReportFailed, TopicExists
from penstock.client.sender import udp_socket
from penstock.config import ListenerConfig, Settings
from penstock.drill.pipe import DrillPipe
from penstock.wire.plog.cutting import fragment

TOPIC, OTHER_TOPIC, ASKED_TOPIC = "drill", "drill-too", "drill-asked"
"""Topics of the appends, of transactions over two topics, and the one that datagrams request by tag."""
CURSOR = "drill"
Position = tuple[str, int]
"""A topic and an offset."""
Serial = tuple[str, int]
"""The sender of a message, and its number."""
BURST_MESSAGES = 20
REPORT_INTERVAL_BURSTS = 50
"""Bursts between two reports of the sent total to the ledger."""


class Sender(threading.Thread, ABC):
    """A thread that sends bursts until it is stopped; ``sent`` counts messages, each numbered from 0."""

    def __init__(self, name: str, rate: float) -> None:
        super().__init__(name=name, daemon=True)
        self.sent = 0
        self._pause = BURST_MESSAGES / rate
        self._stopped, self._may_send = threading.Event(), threading.Event()
        self._idle = threading.Lock()
        self._may_send.set()

    def run(self) -> None:
        while not self._stopped.wait(self._pause):
            self._may_send.wait()
            with self._idle:
                # Checked again under the lock: `hold` may have come while this thread waited for it.
                if self._may_send.is_set():
                    self.burst()

    @abstractmethod
    def burst(self) -> None:
        """Send some messages."""

    def payloads(self) -> list[bytes]:
        """Return the payloads of the next burst."""
        return [payload(self.name, self.sent + number) for number in range(BURST_MESSAGES)]

    def hold(self) -> None:
        """Pause sending until ``resume``; no burst is in progress on return."""
        self._may_send.clear()
        with self._idle:
            pass

    def resume(self) -> None:
        """Resume sending."""
        self._may_send.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._may_send.set()
        # Order: a held sender waits for the switch, so it is set before the join.
        self.join()


SERIAL = re.compile(rb'"uuid": "([a-z0-9_\-]+)-([0-9]+)"')


def serial_of(payload: bytes) -> Serial | None:
    """Return the sender and the number of a message; None if no sender of a drill made it."""
    match = SERIAL.search(payload)
    return (match[1].decode(), int(match[2])) if match else None


def payload(sender: str, number: int) -> bytes:
    """Return an event whose uuid names its sender and number."""
    event = {"type": f"t{number % 5}", "uuid": f"{sender}-{number}", "timestamp": number, "data": {}}
    return json.dumps(event).encode()


class DatagramSender(Sender):
    """Sends to a UDP listener; ``datagrams`` counts the datagrams that the kernel accepted.

    For plog, some messages are fragmented, some request a topic, and the sent total is reported to the ledger.
    """

    def __init__(self, listener: ListenerConfig, pipe: DrillPipe, rate: float) -> None:
        super().__init__(listener.name, rate)
        self._listener, self._pipe = listener, pipe
        self._report = LedgerReport(pipe.settings.log.http, listener.name, timeout=1)
        self.datagrams = self._bursts = 0

    def burst(self) -> None:
        address = self._pipe.address(self._listener.name)
        if address is None:
            return
        self._bursts += 1
        # A message counts as sent once all of its datagrams are with the kernel.
        with contextlib.suppress(OSError), udp_socket(*address) as sock:
            for message in self.payloads():
                for datagram in self._datagrams_of(message):
                    sock.send(datagram)
                    self.datagrams += 1
                self.sent += 1
        if self._bursts % REPORT_INTERVAL_BURSTS == 0:
            self._report_sent()

    def _datagrams_of(self, message: bytes) -> list[bytes]:
        if self._listener.codec != "plog" or self._bursts % 4 > 1:
            return [message]
        # Bursts alternate: whole messages twice, then fragments, then a requested topic.
        if self._bursts % 4:
            return fragment(message, self.sent, fragment_size=50)
        return fragment(message, self.sent, tags=[f"kt:{ASKED_TOPIC}"])

    def _report_sent(self) -> None:
        with contextlib.suppress(ReportFailed):
            counts = {"messages": self.sent, "datagrams": self.datagrams}
            self._report.post("drill", self._bursts, counts)


class LineSender(Sender):
    """Sends to a TCP listener and reconnects when needed; ``sent`` counts the lines handed to the kernel."""

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
            self.sent += len(lines)  # before the call: lines may arrive even if the connection breaks
            self._sock.sendall(b"\n".join([*lines, b""]))
        except OSError:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._sock:
            self._sock.close()
            self._sock = None

    def stop(self) -> None:
        super().stop()
        self._disconnect()


class Appender(Sender):
    """Appends over gRPC; ``acknowledged`` maps each acknowledged topic and offset to its message."""

    def __init__(self, settings: Settings, rate: float, name: str = "appends") -> None:
        super().__init__(name, rate)
        self.acknowledged: dict[Position, Serial] = {}
        self._log = Log(settings.log.grpc, timeout=10, retry_for=5)

    def burst(self) -> None:
        first = self.sent
        batch = self.payloads()
        # Order: numbers are used up before the call: a failed append may be stored, and its numbers must not come
        # again.
        self.sent += len(batch)
        with contextlib.suppress(ClientError):
            numbers = iter(range(first, first + len(batch)))
            for topic, offsets in self.store(batch).items():
                self.acknowledged |= {(topic, offset): (self.name, next(numbers)) for offset in offsets}

    def store(self, batch: list[bytes]) -> Mapping[str, list[int]]:
        """Append the batch in order; return its offsets by topic. Raises ClientError."""
        offsets = list(self._log.append(TOPIC, batch))
        self._log.commit_cursor(TOPIC, CURSOR, offsets[-1])
        return {TOPIC: offsets}

    def stop(self) -> None:
        super().stop()
        self._log.close()


class Committer(Appender):
    """Appends in transactions over two topics, one of which has a setting of its own."""

    def __init__(self, settings: Settings, rate: float) -> None:
        super().__init__(settings, rate, "transactions")
        self._is_new = True

    def store(self, batch: list[bytes]) -> Mapping[str, list[int]]:
        if self._is_new:
            with contextlib.suppress(TopicExists):  # created by an earlier attempt whose answer was lost
                self._log.create_topic(OTHER_TOPIC, rotate_after="1h")
            self._is_new = False
        half = len(batch) // 2
        with self._log.transaction() as transaction:
            transaction.append(TOPIC, batch[:half])
            transaction.append(OTHER_TOPIC, batch[half:])
        return {topic: transaction.offsets[topic] for topic in (TOPIC, OTHER_TOPIC)}


def senders_of(pipe: DrillPipe, rate: float) -> Iterator[Sender]:
    """Yield a sender per listener, and two for the log."""
    for listener in (
        candidate for candidate in pipe.settings.listener if not (candidate.has_responses or candidate.is_local)
    ):
        sender_class = DatagramSender if listener.protocol == "udp" else LineSender
        yield sender_class(listener, pipe, rate)
    yield Appender(pipe.settings, rate)
    yield Committer(pipe.settings, rate)
