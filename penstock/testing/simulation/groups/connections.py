"""Clients' ends of connections with several requests in flight. Start with ``ClientConnection``.

A client that ends a connection may leave requests behind, which the daemon takes later: also requests that the client
has sent again by then.
"""

from __future__ import annotations

import math
import random
import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.server.kafka.connection.frames import LENGTH_BYTES
from penstock.server.kafka.schema.messages import Api
from penstock.testing.simulation.groups.server import KafkaServer, decode_answer, request_frame
from penstock.testing.simulation.promises import Broken
from penstock.testing.simulation.senders import World

ANSWER_TIMEOUT_S = 10.0
MAX_PART_BYTES = 3_000
"""Most bytes that arrive at once."""
RESET_SHARE = 0.3
"""Share of ended connections of which nothing more arrives."""
MAX_DELAY_S = 25.0
"""Longest time until more of an ended connection arrives: producers are in a later epoch by then."""
_CORRELATION = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A request without an answer. ``is_lost``: its answer and all later ones of the connection do not arrive."""

    api: Api
    version: int
    correlation: int
    deadline: float
    is_lost: bool
    handle: Callable[[Any, bool], None]


class ClientConnection:
    """The client's end of a connection, with several requests in flight."""

    def __init__(self, world: World, server: KafkaServer, client: str) -> None:
        self._world, self.server, self._client = world, server, client
        self.transport = server.connect()
        self._in_flight: deque[_InFlight] = deque()
        self._requests = 0
        self.resumes_s = 0.0
        """The time from which on more of the ended connection arrives."""
        self.is_deaf = False
        """Whether no further answer reaches the client."""
        self._unheard_deadline = math.inf
        """The deadline of the first request whose answer was lost."""

    def send(
        self,
        api: Api,
        version: int,
        values: Mapping[str, Any],
        handle: Callable[[Any, bool], None],
        *,
        has_answer: bool = True,
    ) -> None:
        """Send a request. ``handle`` gets each answer that the daemon sends, and whether it reaches the client."""
        self._requests += 1
        frame = request_frame(api, version, self._client, values, self._requests)
        self.transport.arriving += _CORRELATION.pack(len(frame)) + frame
        deadline = self._world.machine.clock.monotonic() + ANSWER_TIMEOUT_S
        if has_answer:
            request = _InFlight(api, version, self._requests, deadline, self._world.loses_answer(), handle)
            self._in_flight.append(request)

    @property
    def is_waiting(self) -> bool:
        """Report whether a request is in flight."""
        return bool(self._in_flight)

    def take_answers(self) -> None:
        """Handle all answers that have come. Raises Broken if they are not in the order of their requests."""
        sent = self.transport.sent
        while len(sent) > LENGTH_BYTES and len(sent) >= (end := LENGTH_BYTES + _CORRELATION.unpack_from(sent)[0]):
            frame = bytes(sent[:end])
            del sent[:end]
            (correlation,) = _CORRELATION.unpack_from(frame, LENGTH_BYTES)
            request = self._in_flight.popleft() if self._in_flight else None
            if request is None or request.correlation != correlation:
                raise Broken(f"{self._client}: an answer to request {correlation}, not to {request}")
            self.is_deaf |= request.is_lost
            if self.is_deaf:
                self._unheard_deadline = min(self._unheard_deadline, request.deadline)
            request.handle(decode_answer(request.api, request.version, frame), not self.is_deaf)

    @property
    def is_late(self) -> bool:
        """Report whether the time for the oldest request is over."""
        deadlines = (self._unheard_deadline, *(request.deadline for request in self._in_flight))
        return self._world.machine.clock.monotonic() > min(deadlines)


class Connections:
    """The way to the server of the daemon's current life, and the ended connections of which requests still arrive."""

    def __init__(self, world: World, server: Callable[[], KafkaServer | None], dice: random.Random) -> None:
        self.world, self._server, self.dice = world, server, dice
        self.has_faults = True
        self._ended: list[ClientConnection] = []

    def connect(self, client: str) -> ClientConnection | None:
        """Return a new connection; None if there is no server."""
        server = self._server()
        return None if server is None else ClientConnection(self.world, server, client)

    def end(self, connection: ClientConnection) -> None:
        """End a connection; what it has sent may arrive later."""
        connection.is_deaf = True
        if self.is_open(connection):
            connection.transport.end_client(is_reset=self.dice.random() < RESET_SHARE)
            connection.resumes_s = self.world.machine.clock.monotonic() + self.dice.uniform(0, MAX_DELAY_S)
            self._ended.append(connection)

    def is_open(self, connection: ClientConnection) -> bool:
        """Report whether both the daemon's life and its end of the connection go on."""
        return self._server() is connection.server and not connection.transport.is_closing()

    def deliver(self, connection: ClientConnection) -> None:
        """Let a part of the requests arrive; all of them if there are no faults."""
        if self.is_open(connection):
            connection.transport.deliver(self.dice.randint(1, MAX_PART_BYTES) if self.has_faults else 1 << 30)

    def step(self) -> None:
        """Let a part of an ended connection arrive, and check its answers, which reach no client."""
        now = self.world.machine.clock.monotonic()
        arriving = [ended for ended in self._ended if ended.resumes_s <= now or not self.has_faults]
        if arriving:
            connection = self.dice.choice(arriving)
            self.deliver(connection)
            connection.take_answers()
            self._ended = [ended for ended in self._ended if self.is_open(ended) or ended.transport.sent]
