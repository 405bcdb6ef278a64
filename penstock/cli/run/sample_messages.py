"""A sample of real messages: this machine's logs as syslog lines and as events, some broken on purpose.

Messages are counted when they are sent, so that the balance can be compared with the counts.
"""

from __future__ import annotations

import json
import random
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.client import TcpSender, UdpSender
from penstock.counts import Counts
from penstock.wire.plog.cutting import fragment

LOGS = Path("/var/log")
MAX_LINES = 2000
FRAGMENT_SIZE = 1400
EVENTS_PER_LARGE_ONE = 20
"""Every 20th event contains the lines around its own, and so needs fragments."""
DATAGRAMS_PER_PAUSE = 100
"""Limit: datagrams between two pauses, so that a small socket buffer holds them."""
PAUSE_S = 0.002


@dataclass(slots=True)
class Sent:
    """The counts of a sample: ``by_listener`` has datagrams or lines, ``expected`` the fates of the messages."""

    by_listener: dict[str, Counts] = field(default_factory=dict)
    expected: Counts = field(default_factory=Counts)

    def add(self, listener: str, name: str, count: int = 1) -> None:
        """Count ``count`` more of ``name`` sent to ``listener``."""
        self.by_listener.setdefault(listener, Counts())[name] += count


def log_lines(folder: Path = LOGS, limit: int = MAX_LINES) -> tuple[list[bytes], str]:
    """Return lines of a world-readable log in ``folder`` and their source; made-up lines if no log has enough."""
    for path in sorted(folder.glob("*.log"), key=lambda path: path.name != "dpkg.log"):
        try:
            readable = path.is_file() and path.stat().st_mode & 0o004
            lines = [line for line in path.read_bytes().split(b"\n")[-limit:] if line] if readable else []
        except OSError:
            continue
        if len(lines) >= limit // 4:
            return lines, str(path)
    return made_up_lines(limit), "made-up lines"


def made_up_lines(count: int) -> list[bytes]:
    """Return lines of an imaginary web service; the same lines each time."""
    dice = random.Random(23456)
    paths = ["/", "/login", "/cart", "/checkout", "/search?q=penstock", "/static/app.js"]
    return [
        f"2026-01-01 00:{i // 60 % 60:02}:{i % 60:02} worker-{dice.randrange(8)} "
        f"GET {dice.choice(paths)} {dice.choice([200, 200, 200, 304, 404, 500])} {dice.randrange(1, 900)}ms".encode()
        for i in range(count)
    ]


def event_of_line(line: bytes, number: int, run: str, around: list[bytes] | None = None) -> bytes:
    """Return an event made of a log line; with the lines ``around`` it, a large one."""
    data: dict[str, object] = {"line": line.decode(errors="replace"), "number": number}
    if around:
        data["around"] = [neighbour.decode(errors="replace") for neighbour in around]
    words = line.split()
    kinds = ("install", "upgrade", "configure", "status", "remove", "GET")
    kind = next((word.decode() for word in words if word.decode(errors="replace") in kinds), "line")
    return json.dumps(
        {
            "type": f"log_{kind.lower()}",
            "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{run}:{number}")),
            "host": socket.gethostname(),
            "timestamp": int(time.time() * 1000),
            "data": data,
        }
    ).encode()


class Sample:
    """The sample and its sending. ``addresses`` maps listeners to host and port; ``max_line`` is the TCP listener's
    limit.
    """

    def __init__(self, addresses: dict[str, tuple[str, int]], max_line: int, progress: Callable[[int], None]) -> None:
        self._addresses, self._max_line, self._progress = addresses, max_line, progress
        self.lines, self.source = log_lines()
        self.sent = Sent()
        self._run = uuid.uuid4().hex
        self._syslog = list(self._syslog_lines())
        self._events = [self._event(i) for i in range(len(self.lines))]

    @property
    def total(self) -> int:
        """Return the number of messages, without the broken ones."""
        return len(self._syslog) + len(self._events)

    def send(self) -> None:
        """Send all messages."""
        half = len(self._syslog) // 2
        self._send_datagrams("syslog-udp", self._syslog[:half])
        self._send_lines("syslog-tcp", self._syslog[half:])
        self.sent.expected["landed.syslog"] += len(self._syslog)
        third = 2 * len(self._events) // 3
        self._send_datagrams("events-udp", self._events[:third])
        self._send_lines("events-tcp", self._events[third:])
        self.sent.expected["landed.event"] += len(self._events)
        self._send_broken()

    def _syslog_lines(self) -> Iterator[bytes]:
        host = socket.gethostname().encode()
        for number, line in enumerate(self.lines):
            if number % 2:
                yield b"<30>Jan  1 00:00:%02d " % (number % 60) + host + b" sample[%d]: " % number + line
            else:
                yield b"<30>1 2026-01-01T00:00:%02dZ " % (number % 60) + host + b" sample %d - - " % number + line

    def _event(self, number: int) -> bytes:
        around = self.lines[max(number - 20, 0) : number + 20] if number % EVENTS_PER_LARGE_ONE == 0 else None
        return event_of_line(self.lines[number], number, self._run, around)

    def _send_datagrams(self, listener: str, messages: list[bytes]) -> None:
        large = 1 << 16 if listener.startswith("syslog") else FRAGMENT_SIZE
        with UdpSender(*self._addresses[listener], fragment_size=large) as sender:
            for number, message in enumerate(messages):
                sender.send(message)
                if number % DATAGRAMS_PER_PAUSE == 0:
                    self._progress(min(DATAGRAMS_PER_PAUSE, len(messages) - number))
                    time.sleep(PAUSE_S)
            self.sent.add(listener, "datagrams", sender.counts["datagrams"])
        self.sent.add(listener, "messages", len(messages))

    def _send_lines(self, listener: str, messages: list[bytes]) -> None:
        with TcpSender(*self._addresses[listener]) as sender:
            for number, message in enumerate(messages):
                sender.send(message)
                if number % DATAGRAMS_PER_PAUSE == 0:
                    self._progress(min(DATAGRAMS_PER_PAUSE, len(messages) - number))
        self.sent.add(listener, "lines", len(messages))
        self.sent.add(listener, "messages", len(messages))

    def _send_broken(self) -> None:
        """Send one message for each kind of loss that a sender can cause, named as in the balance."""
        large = self._event(0) + b" " * 3 * FRAGMENT_SIZE
        bad_checksum = [_with_wrong_checksum(part) for part in fragment(large, 1, fragment_size=FRAGMENT_SIZE)]
        incomplete = fragment(large, 2, fragment_size=FRAGMENT_SIZE)[:-1]
        bad_json = [b'{"type": "broken", "uuid": ', b'{"type": "broken"} trailing']
        repeated = [message for message in self._events[1:4] if len(message) <= FRAGMENT_SIZE]
        self._send_raw("events-udp", [*bad_checksum, *incomplete, *bad_json, *repeated])
        self.sent.add("events-udp", "messages", 2 + len(bad_json) + len(repeated))
        self._send_lines("events-tcp", [b"x" * (self._max_line + 1)])
        self.sent.expected.absorb(
            {
                "bad_checksum": 1,
                "incomplete.expired": 1,
                "quarantined.bad_json": len(bad_json),
                "duplicate": len(repeated),
                "line.overlong": 1,
            }
        )

    def _send_raw(self, listener: str, datagrams: list[bytes]) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(self._addresses[listener])
            for datagram in datagrams:
                sock.send(datagram)
        self.sent.add(listener, "datagrams", len(datagrams))


def _with_wrong_checksum(part: bytes) -> bytes:
    """Return a fragment with inverted checksum bytes (16 to 19)."""
    return part[:16] + bytes(byte ^ 0xFF for byte in part[16:20]) + part[20:]
