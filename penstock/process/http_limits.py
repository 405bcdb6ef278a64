"""Limits of HTTP: connections, bodies of requests under way in all, and how long a slow client may take."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.errors import PenstockError
from penstock.process.bytes_under_way import BytesUnderWay, Held

TIMEOUT = 30.0
CONNECTION, BODY, SLOW = "connection", "body", "slow"
"""Why something is refused."""
_LOGGER = logging.getLogger(__name__)


class BodyTooSlow(PenstockError, TimeoutError):
    """The body of a request did not come in time."""


class TooManyBodies(PenstockError, RuntimeError):
    """More is being sent at once than is taken."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """``most`` bytes of bodies under way; ``timeout``: seconds for a request's head, and for a body that is small.

    ``refused`` counts by reason what was refused: ``connection``, ``body``, ``slow``. ``keys``: what is to be changed
    where bodies, connections or times are refused.
    """

    most: int = 256 << 20
    timeout: float = TIMEOUT
    connections: int = 1000
    keys: tuple[str, str, str] = ("log.max_bodies", "log.max_connections", "log.request_timeout")
    refused: Counter[str] = field(default_factory=Counter)


class LimitedBodies:
    """Middleware: bodies that are read by the application, within limits.

    Where there is no room for all, the body that holds most of it and is not whole yet goes first (503). One that
    comes too slowly is given up (408).
    """

    def __init__(
        self, app: ASGIApp, limits: HttpLimits, told: Callable[[Exception], Exception] = lambda error: error
    ) -> None:
        """``told``: what the application is to be told in the place of BodyTooSlow and TooManyBodies."""
        self._app, self.limits, self.told = app, limits, told
        self.under_way = BytesUnderWay(limits.most, limits.timeout)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(receive, send, self)
        try:
            await self._app(scope, body.receive, body.send)
        finally:
            self.under_way.released(body.held)


class _Body:
    """The body of one request; it is ``held.whole`` when its end has come, or it was refused."""

    def __init__(self, receive: Receive, send: Send, bodies: LimitedBodies) -> None:
        self._receive, self._send, self._bodies = receive, send, bodies
        self._began = asyncio.get_running_loop().time()
        self._waiting: asyncio.Timeout | None = None
        self._refused: Exception | None = None
        self.held = Held(self._give_up)

    async def receive(self) -> Message:
        """Raises BodyTooSlow and TooManyBodies."""
        if self._refused:
            raise self._refused
        if self.held.whole:
            return await self._receive()
        until = self._began + self._bodies.under_way.time_for(self.held.size)
        try:
            async with asyncio.timeout_at(until) as self._waiting:
                message = await self._receive()
        except TimeoutError:
            self._waiting = None
            if not self._refused:
                self._bodies.limits.refused[SLOW] += 1
                _LOGGER.warning(
                    "a request of HTTP is given up: its body comes too slowly (%s)", self._bodies.limits.keys[2]
                )
                self._refuse(self._bodies.told(BodyTooSlow("The body of the request does not come")))
            assert self._refused
            raise self._refused from None
        self._waiting = None
        self.held.whole = not message.get("more_body", False)
        self._bodies.under_way.grown(self.held, len(message.get("body", b"")))
        if self._refused:
            raise self._refused
        return message

    def _give_up(self) -> None:
        bodies = self._bodies
        bodies.limits.refused[BODY] += 1
        size, key = bodies.under_way.size, bodies.limits.keys[0]
        _LOGGER.warning("a request of HTTP is refused: bodies of %d bytes are under way (%s)", size, key)
        self._refuse(bodies.told(TooManyBodies("Too much is being sent at once; try again")))

    def _refuse(self, why: Exception) -> None:
        """Read no more of it, also where it is waited for just now."""
        self._refused, self.held.whole = why, True
        if self._waiting is not None:
            self._waiting.reschedule(0)

    async def send(self, message: Message) -> None:
        """Of a refused one the rest is not wanted: the connection ends with the answer."""
        if self._refused and message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await self._send(message)


class LimitedProtocol(H11Protocol):
    """Closes a connection whose client is waited for too long, and one where there are too many.

    It is waited for the head of a request, or for the rest of one that is answered already. What a body may take that
    is being read, ``LimitedBodies`` knows.
    """

    limits = HttpLimits()

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._patience: asyncio.TimerHandle | None = None
        self._heard = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def _make_room(self) -> None:
        """Close the one that is silent for the longest time, with no request that is being answered; else this one."""
        idle = [one for one in self.connections if isinstance(one, LimitedProtocol) and one.is_idle]
        first = min(idle, key=lambda one: one._heard, default=self)
        self.limits.refused[CONNECTION] += 1
        text = "a connection of HTTP is closed: there are more than %d (%s)"
        _LOGGER.warning(text, self.limits.connections, self.limits.keys[1])
        first.transport.abort()
        first.connections.discard(first)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being read or answered."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._calm()

    def _look(self) -> None:
        answered = self.cycle is not None and self.is_idle
        if self.conn.their_state is not h11.IDLE and not answered:
            self._calm()
        elif self._patience is None:
            self._patience = self.loop.call_later(self.limits.timeout, self._give_up)

    def _give_up(self) -> None:
        self.limits.refused[SLOW] += 1
        self.transport.close()

    def _calm(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def limited_protocol(limits: HttpLimits) -> type[LimitedProtocol]:
    """The protocol with these limits."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
