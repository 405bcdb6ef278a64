"""One client's connection: requests in order, answers in order, a few of them under way at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from penstock.process.bytes_under_way import Held
from penstock.server.auth.rights import Principal, TokenAuthenticator
from penstock.server.kafka.calls import Address, Call, Handler, Later
from penstock.server.kafka.cluster import api_versions
from penstock.server.kafka.errors import BadFrame
from penstock.server.kafka.frames import Frames
from penstock.server.kafka.limits import KafkaLimits
from penstock.server.kafka.messages import Api, Request, Values, answer, parse
from penstock.server.kafka.sasl import Sasl
from penstock.slogd.errors import Unauthenticated

UNDER_WAY = 8
"""Requests of one connection that may wait for their answers at once."""
_LOGGER = logging.getLogger(__name__)
_Waiting = tuple[Request, Held, Awaitable[Values | None]]


class Connection:
    """Answers one client until it goes, or sends what cannot be understood."""

    def __init__(
        self,
        frames: Frames,
        handlers: dict[Api, Handler],
        guard: TokenAuthenticator,
        limits: KafkaLimits,
        address: Address,
    ) -> None:
        self._frames, self._handlers, self._guard = frames, handlers, guard
        self._limits, self._address = limits, address
        self._sasl = Sasl(guard)
        self._host = str((frames.transport.get_extra_info("peername") or ("",))[0])
        self._answers: asyncio.Queue[_Waiting] = asyncio.Queue(UNDER_WAY)

    async def run(self) -> None:
        """Until the connection is over."""
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        try:
            # Where the client is gone, nobody waits for the answers; where it takes none, nothing more is read.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            self._release_all()
            self._frames.abort()
        self._tell([error for error in ended if isinstance(error, Exception)])

    def _tell(self, errors: list[Exception]) -> None:
        """Say what ended the connection, where it was not the client. Raises what nobody expects."""
        for error in errors:
            if not isinstance(error, BadFrame | ConnectionError | TimeoutError):
                raise error
            _LOGGER.debug("a connection of Kafka from %s is closed: %s", self._host, error)

    def _release_all(self) -> None:
        while not self._answers.empty():
            _, held, values = self._answers.get_nowait()
            self._limits.released(held)
            _drop(values)

    async def _read(self) -> None:
        while (found := await self._frames.next()) is not None:
            octets, held = found
            try:
                request = parse(octets)
                del octets, found
                values = await self._begun(request)
                try:
                    await self._answers.put((request, held, values))
                except asyncio.CancelledError:
                    _drop(values)
                    raise
                held = Held(lambda: None)
            finally:
                self._limits.released(held)

    async def _begun(self, request: Request) -> Awaitable[Values | None]:
        if request.api is Api.API_VERSIONS:
            return _now(api_versions(request.unknown))
        if request.api is Api.SASL_HANDSHAKE:
            return _now(self._sasl.handshake(request.message.mechanism))
        if request.api is Api.SASL_AUTHENTICATE:
            return _now(self._sasl.authenticate(request.message.auth_bytes))
        call = Call(request.version, request.message, self._caller(), request.client, self._host, self._address)
        found = await self._handlers[request.api](call)
        return found.values if isinstance(found, Later) else _now(found)

    def _caller(self) -> Principal:
        """Who it is: asked anew each time, as tokens may go. Raises BadFrame."""
        try:
            return self._guard.caller(self._sasl.authorization)
        except Unauthenticated as error:
            raise BadFrame(str(error)) from None

    async def _write(self) -> None:
        while True:
            request, held, values = await self._answers.get()
            try:
                told = await values
            finally:
                self._limits.released(held)
            if told is not None:
                self._frames.send(parts := answer(request, told))
                del told
                await self._frames.taken(sum(map(len, parts)))


async def _now(values: Values) -> Values:
    return values


def _drop(values: Awaitable[Values | None]) -> None:
    """An answer that nobody waits for any more."""
    if asyncio.iscoroutine(values):
        values.close()
