"""Senders of datagrams, and the network between them and a socket: it loses, repeats, reorders and cuts datagrams."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from penstock.testing.simulation.sockets.kernel import Address, Datagram, DatagramSocket
from penstock.wire.plog.cutting import fragment

COMMANDER = "10.0.0.1"
"""The address of the only sender that may send commands."""
FLOOD = b"<13>unfinished" * 30
"""The beginning of a line that never ends."""
SYSLOG_TIME = "2025-05-13T12:29:35.5Z"
MAX_LATE = 6
"""Datagrams that may overtake a late one: fewer than the ids that the listener remembers of a sender."""
FRAGMENT_BYTES = 120
GELF_CHUNK = b"\x1e\x0f"
LARGE_SHARE, MAX_SMALL_BYTES, MAX_LARGE_BYTES = 0.3, 80, 900
UNBOXED_SHARE, TAGS_SHARE, COMMAND_SHARE = 0.2, 0.4, 0.03
MAX_DATAGRAMS_AT_ONCE, BURST = 4, 60


@dataclass(slots=True)
class Network:
    """The way of datagrams to one socket. The numbers say to how many of the next datagrams something happens."""

    sock: DatagramSocket
    dice: random.Random
    losses: int = 0
    repeats: int = 0
    delays: int = 0
    cuts: int = 0
    _late: list[tuple[int, Datagram]] = field(default_factory=list)

    def send(self, datagram: Datagram) -> None:
        """Carry a datagram to the socket, perhaps later, twice, cut or not at all."""
        if self.cuts:
            self.cuts -= 1
            datagram = Datagram(datagram.sender, datagram.data[: self.dice.randrange(len(datagram.data))])
        due = [late for number, late in self._late if number <= 1]
        self._late = [(number - 1, late) for number, late in self._late if number > 1]
        if self.losses:
            self.losses -= 1
        elif self.delays:
            self.delays -= 1
            self._late.append((self.dice.randint(1, MAX_LATE), datagram))
        else:
            self.sock.arrive(datagram)
            if self.repeats:
                self.repeats -= 1
                self._late.append((self.dice.randint(1, MAX_LATE), datagram))
        for late in due:
            self.sock.arrive(late)

    def settle(self) -> None:
        """Stop all faults, and deliver what is late."""
        self.losses = self.repeats = self.delays = self.cuts = 0
        for _, late in self._late:
            self.sock.arrive(late)
        self._late = []


class DatagramSender(ABC):
    """A sender of up to ``count`` messages from one port, which expects no answers."""

    def __init__(self, name: str, network: Network, dice: random.Random, address: Address, count: int) -> None:
        self.name, self._network, self._dice, self._address = name, network, dice, address
        self._remaining, self._number = count, 0
        self._waiting: list[bytes] = []
        self.bursts = 0
        """The number of next steps that send many datagrams."""

    @property
    def is_idle(self) -> bool:
        return not self._remaining and not self._waiting

    def step(self) -> None:
        """Send some datagrams."""
        at_once = BURST if self.bursts else self._dice.randint(1, MAX_DATAGRAMS_AT_ONCE)
        self.bursts -= self.bursts > 0
        for _ in range(at_once):
            if not self._waiting:
                if not self._remaining:
                    return
                self._remaining -= 1
                self._number += 1
                self._waiting = self.make(self._number)
            self._network.send(Datagram(self._address, self._waiting.pop(0)))

    @abstractmethod
    def make(self, number: int) -> list[bytes]:
        """Return the datagrams of a message."""

    def filler(self, largest: int = MAX_SMALL_BYTES) -> bytes:
        """Return bytes that make messages of different lengths."""
        return b"." * self._dice.randint(0, MAX_LARGE_BYTES if self._dice.random() < LARGE_SHARE else largest)


class PlogSender(DatagramSender):
    """A sender of plog's protocol, with ids in sequence, fragments, tags and a few commands."""

    def make(self, number: int) -> list[bytes]:
        payload = plog_line(self.name, number, self.filler())
        if self._dice.random() < COMMAND_SHARE:
            return [b"\0\0PING%d" % number]
        if self._dice.random() < UNBOXED_SHARE:
            return [payload]
        tags = [f"tag {number}"] if self._dice.random() < TAGS_SHARE else []
        # An id for each boxed message alone, so that every hole in them is a loss.
        self._ids = getattr(self, "_ids", 0) + 1
        return fragment(payload, self._ids, tags=tags, fragment_size=FRAGMENT_BYTES)


class SyslogSender(DatagramSender):
    """A sender of RFC 5424, one message in a datagram."""

    def make(self, number: int) -> list[bytes]:
        return [syslog_message(self.name, number, self.filler())]


class GelfSender(DatagramSender):
    """A sender of GELF, which divides large messages into chunks."""

    def make(self, number: int) -> list[bytes]:
        message = gelf_message(self.name, number, self.filler())
        parts = [message[begin : begin + FRAGMENT_BYTES] for begin in range(0, len(message), FRAGMENT_BYTES)]
        if len(parts) == 1:
            return [message]
        head = GELF_CHUNK + number.to_bytes(8, "big")
        return [head + bytes((index, len(parts))) + part for index, part in enumerate(parts)]


def gelf_message(host: str, number: int, rest: bytes = b"") -> bytes:
    """Return a message of GELF from a host."""
    return b'{"version":"1.1","host":"%s","short_message":"%d %s"}' % (host.encode(), number, rest)


def plog_line(host: str, number: int, rest: bytes = b"") -> bytes:
    """Return a message of plog, which has no header."""
    return b"%s %d %s" % (host.encode(), number, rest)


def syslog_message(host: str, number: int, rest: bytes = b"") -> bytes:
    """Return a message of RFC 5424 whose header names the sender as its host."""
    return b"<13>1 %s %s app-%d - - - %s" % (SYSLOG_TIME.encode(), host.encode(), number, rest or b"-")


def syslog_annotations(message: bytes) -> dict[str, str]:
    """Return what the header of such a message says, by the name of its annotation."""
    _, time, host, app, *_ = message.decode().split(" ")
    return {"timestamp": time, "hostname": host, "app_name": app, "facility": "user", "severity": "notice"}
