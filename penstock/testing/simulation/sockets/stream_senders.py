"""Senders over connections: lines, syslog with counted octets, and Fluent's forward protocol with acknowledgements."""

from __future__ import annotations

import contextlib
import json
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgpack

from penstock.testing.crashes import FakeClock
from penstock.testing.simulation.promises import Broken
from penstock.testing.simulation.sockets.kernel import Address
from penstock.testing.simulation.sockets.senders import MAX_SMALL_BYTES
from penstock.testing.simulation.sockets.streams import ListeningSocket, ServerStream

ANSWER_TIMEOUT_S = 30.0
MAX_LINE = 600
OVERLONG_SHARE = 0.05
MAX_EVENTS = 6
MAX_COMMANDS_AT_ONCE, STATISTICS_BYTES = 3, 10_000
"""Limit of commands without an answer, and room for their answers."""
CHUNK_NAME_BYTES = 40
"""Long names fill the room for answers, if a sender does not read them."""


@dataclass(slots=True, eq=False)
class Sent:
    """A message that was written to a connection: its bytes in the stream end at ``end``."""

    payload: bytes
    begin: int
    end: int
    is_overlong: bool = False


@dataclass(slots=True, eq=False)
class Sending:
    """A connection with what was written to it."""

    stream: ServerStream
    messages: list[Sent] = field(default_factory=list)
    written: int = 0


class StreamSender:
    """A sender of up to ``count`` messages over connections, one after the other; it begins a new one when one ends.

    ``compose`` makes a message, ``frame`` puts it into its framing. Bytes are written in parts, so
    that a message waits for its end.
    """

    def __init__(
        self,
        name: str,
        listening: ListeningSocket,
        dice: random.Random,
        address: Address,
        count: int,
        compose: Callable[[str, int, bytes], bytes],
        frame: Callable[[bytes], bytes],
    ) -> None:
        self._compose = compose
        self.name, self._listening, self._dice, self._address = name, listening, dice, address
        self._remaining, self._number, self._frame = count, 0, frame
        self.sendings: list[Sending] = []
        self._current: Sending | None = None
        self._unsent = b""
        self.rest_until = 0.0

    @property
    def is_idle(self) -> bool:
        return not self._remaining and not self._unsent and self._current is None

    def step(self) -> None:
        """Connect, write a part, or end the connection."""
        if self._current is not None and (self._current.stream.is_closed or self._current.stream.is_reset):
            self._current, self._unsent = None, b""
        if self._current is None:
            if not self._remaining:
                return
            try:
                stream = self._listening.connect(self._address)
            except ConnectionRefusedError:
                return
            self._current = Sending(stream)
            self.sendings.append(self._current)
        if not self._unsent:
            if not self._remaining or self._dice.random() < 0.05:
                self._current.stream.peer_close()
                self._current = None
                return
            self._unsent = b"".join(self._make(self._current) for _ in range(self._dice.randint(1, 4)))
        size = self._dice.choice([1, len(self._unsent), self._dice.randint(1, len(self._unsent))])
        self._current.stream.peer_send(self._unsent[:size])
        self._current.written += size
        self._unsent = self._unsent[size:]

    def reset(self, is_silent: bool) -> None:
        """Reset the connection, or leave it open for ever, as a peer that vanishes does.

        Half of the senders that would reset it end it in order instead, in the middle of a message.
        """
        if self._current is not None:
            if not is_silent and self._number % 2:
                self._current.stream.peer_close()
            elif not is_silent:
                self._current.stream.peer_reset()
            self._current, self._unsent = None, b""

    def _make(self, sending: Sending) -> bytes:
        if not self._remaining:
            return b""
        self._remaining -= 1
        self._number += 1
        is_overlong = self._dice.random() < OVERLONG_SHARE
        rest = b"." * (MAX_LINE if is_overlong else self._dice.randint(0, MAX_SMALL_BYTES))
        payload = self._compose(self.name, self._number, rest)
        framed = self._frame(payload)
        begin = sending.messages[-1].end if sending.messages else 0
        sending.messages.append(Sent(payload, begin, begin + len(framed), is_overlong))
        return framed


class CommandSender:
    """A sender of plog's commands over connections, which gets an answer to each, in their order."""

    def __init__(
        self, name: str, listening: ListeningSocket, dice: random.Random, address: Address, count: int
    ) -> None:
        self.name, self._listening, self._dice, self._address = name, listening, dice, address
        self._remaining, self._sent = count, 0
        self._stream: ServerStream | None = None
        self._expected: deque[bytes] = deque()
        self._answered = 0
        """Commands that were answered on this connection."""
        self._unsent = self._received = b""

    @property
    def is_idle(self) -> bool:
        return not self._remaining and not self._expected

    def step(self) -> None:
        """Read answers, then connect, or write a part of a command."""
        stream = self._stream
        if stream is not None:
            self._received += stream.peer_read()
            *answers, self._received = self._received.split(b"\n")
            for answer in answers:
                self._check_answer(answer, stream.is_closed)
        if stream is None or stream.is_closed:
            self._expected.clear()
            self._unsent = self._received = b""
            self._stream, self._answered = None, 0
            if self._remaining:
                with contextlib.suppress(ConnectionRefusedError):
                    self._stream = self._listening.connect(self._address)
            return
        if not self._unsent and self._remaining and len(self._expected) < MAX_COMMANDS_AT_ONCE:
            self._remaining -= 1
            self._sent += 1
            command = b"PING %d" % self._sent if self._dice.random() < 0.7 else b"STAT"
            self._expected.append(command)
            self._unsent = b"\0\0" + command + b"\n"
        size = self._dice.choice([len(self._unsent), self._dice.randint(0, len(self._unsent))])
        stream.peer_send(self._unsent[:size])
        self._unsent = self._unsent[size:]

    def _check_answer(self, answer: bytes, has_ended: bool) -> None:
        command = self._expected.popleft() if self._expected else b"nothing"
        if command == b"STAT":
            # Limit: STAT does not count itself.
            if not self._answered <= json.loads(answer)["v0_commands"] < self._sent:
                raise Broken(f"{self.name}: STAT is answered by {answer!r} after {self._answered} commands")
        # The part of a command before the end of its connection is a line, and a command.
        elif answer != (expected := command.replace(b"PING", b"PONG")) and not (
            has_ended and expected.startswith(answer)
        ):
            raise Broken(f"{self.name}: {command!r} is answered by {answer!r}")
        self._answered += 1


def lines(payload: bytes) -> bytes:
    """Return a message as a line."""
    return payload + b"\n"


def nul_ended(payload: bytes) -> bytes:
    """Return a message with the end that GELF has over TCP."""
    return payload + b"\0"


def counted_octets(payload: bytes) -> bytes:
    """Return a message behind its length (RFC 6587)."""
    return b"%d %s" % (len(payload), payload)


def event_of(payload: bytes) -> bytes:
    """Return the event that the forward protocol makes of a message."""
    return b'{"m":"%s"}' % payload


@dataclass(slots=True, eq=False)
class Chunk:
    """Messages of one request of the forward protocol; ``attempts`` counts how often it was sent."""

    name: str
    payloads: list[bytes]
    attempts: int = 0
    is_acknowledged: bool = False

    def request(self) -> bytes:
        events = [[1_700_000_000 + number, {"m": payload.decode()}] for number, payload in enumerate(self.payloads)]
        request: bytes = msgpack.packb(["tag", events, {"chunk": self.name}])
        return request


class ForwardSender:
    """A sender of the forward protocol, which sends a chunk again until it is acknowledged.

    ``reads_from``: the time from which it reads answers. ``check_stored`` raises Broken unless the log has messages.
    """

    def __init__(
        self,
        name: str,
        listening: ListeningSocket,
        clock: FakeClock,
        dice: random.Random,
        address: Address,
        count: int,
        check_stored: Callable[[list[bytes]], None],
    ) -> None:
        self._check_stored = check_stored
        self.name, self._listening, self._clock, self._dice, self._address = name, listening, clock, dice, address
        self._remaining, self._number = count, 0
        self.chunks: list[Chunk] = []
        self._waiting: dict[str, tuple[Chunk, float]] = {}
        self._stream: ServerStream | None = None
        self._unsent = b""
        self._answers = msgpack.Unpacker()
        self.reads_from = 0.0

    @property
    def is_idle(self) -> bool:
        return not self._remaining and all(chunk.is_acknowledged for chunk in self.chunks)

    def step(self) -> None:
        """Read answers, then connect, begin a chunk or write a part of one."""
        now = self._clock.monotonic()
        if self._stream is not None:
            if now >= self.reads_from:
                self._read_answers(self._stream)
            has_timed_out = any(now > deadline for _, deadline in self._waiting.values())
            if self._stream.is_closed or self._stream.is_reset or self._stream.has_left or has_timed_out:
                self.reset(is_silent=False)
        if self._stream is None:
            if self.is_idle:
                return
            try:
                self._stream = self._listening.connect(self._address)
            except ConnectionRefusedError:
                return
            self._answers = msgpack.Unpacker()
        if not self._unsent and (chunk := self._next_chunk()):
            chunk.attempts += 1
            self._waiting[chunk.name] = chunk, now + ANSWER_TIMEOUT_S
            self._unsent = chunk.request()
        if self._unsent:
            size = self._dice.choice([len(self._unsent), self._dice.randint(1, len(self._unsent))])
            self._stream.peer_send(self._unsent[:size])
            self._unsent = self._unsent[size:]

    def _next_chunk(self) -> Chunk | None:
        for chunk in self.chunks:
            if not chunk.is_acknowledged and chunk.name not in self._waiting:
                return chunk
        if not self._remaining:
            return None
        count = min(self._dice.randint(1, MAX_EVENTS), self._remaining)
        self._remaining -= count
        payloads = [b"%s %d" % (self.name.encode(), self._number + number) for number in range(count)]
        self._number += count
        self.chunks.append(Chunk(f"{self.name}-{len(self.chunks):0{CHUNK_NAME_BYTES}}", payloads))
        return self.chunks[-1]

    def _read_answers(self, stream: ServerStream) -> None:
        self._answers.feed(stream.peer_read())
        try:
            for answer in self._answers:
                self._take_answer(answer)
        except (ValueError, msgpack.UnpackException) as error:
            raise Broken(f"{self.name}: an answer cannot be read: {error}") from None

    def _take_answer(self, answer: object) -> None:
        if not isinstance(answer, dict) or answer.keys() != {"ack"} or answer["ack"] not in self._waiting:
            raise Broken(f"{self.name}: the answer {answer!r} is none to {sorted(self._waiting)}")
        chunk, _ = self._waiting.pop(answer["ack"])
        self._check_stored(chunk.payloads)
        chunk.is_acknowledged = True

    def reset(self, is_silent: bool) -> None:
        """Reset the connection, or leave it open; what was not acknowledged is sent again over another one."""
        if self._stream is not None and not is_silent:
            self._stream.peer_reset()
        self._stream, self._unsent = None, b""
        self._waiting.clear()
