"""One client's connection: requests in order, answers in order, a few of them under way at once."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from penstock.process.in_flight_bytes import RequestBytes
from penstock.server.auth.rights import Principal, TokenAuthenticator
from penstock.server.event_loop import LoopCalls
from penstock.server.kafka.calls import Address, Answer, Call, Handler, QuickHandler
from penstock.server.kafka.connection.answers import Answers
from penstock.server.kafka.connection.frames import Frames
from penstock.server.kafka.connection.requests import Requests, begun_at_once
from penstock.server.kafka.connection.sasl import Sasl
from penstock.server.kafka.errors import BadFrame
from penstock.server.kafka.limits import KafkaLimits
from penstock.server.kafka.metadata.cluster import api_versions
from penstock.server.kafka.schema.messages import Api, Request
from penstock.slogd.errors import Unauthenticated

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Serving:
    """What all connections share. ``quick`` begin what producers and consumers send without a task for each."""

    handlers: dict[Api, Handler]
    quick: dict[Api, QuickHandler]
    guard: TokenAuthenticator
    limits: KafkaLimits
    calls: LoopCalls


class Connection:
    """Answers one client until it goes, or sends what cannot be understood."""

    def __init__(self, frames: Frames, serving: Serving, address: Address) -> None:
        self._frames, self._serving, self._address = frames, serving, address
        self._sasl = Sasl(serving.guard)
        self._host = str((frames.transport.get_extra_info("peername") or ("",))[0])
        self._requests = Requests()
        self._tried: memoryview | None = None
        """The request that could not be begun at once."""
        self._answers = Answers(frames, serving.limits, serving.calls)

    async def run(self) -> None:
        """Until the connection is over."""
        reading = asyncio.create_task(self._read())
        self._frames.offer = self._begun_at_once
        try:
            # Where the client is gone, nobody waits for the answers; where it takes none, nothing more is read.
            await asyncio.wait([reading, self._answers.failed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            ended = await asyncio.gather(reading, self._answers.failed, self._answers.close(), return_exceptions=True)
            self._frames.abort()
        self._tell([error for error in ended if isinstance(error, Exception)])

    def _tell(self, errors: list[Exception]) -> None:
        """Say what ended the connection, where it was not the client. Raises what nobody expects."""
        for error in errors:
            if not isinstance(error, BadFrame | ConnectionError | TimeoutError):
                raise error
            _LOGGER.debug("a connection of Kafka from %s is closed: %s", self._host, error)

    async def _read(self) -> None:
        while (found := await self._frames.next()) is not None:
            octets, held = found
            try:
                await self._answers.room()
                request, tried = self._requests.parse(octets), octets is self._tried
                self._tried = None
                del octets, found
                self._answers.add(request, held, await self._begun(request, tried))
                held = RequestBytes(lambda: None)
            finally:
                self._serving.limits.release(held)

    async def _begun(self, request: Request, tried: bool) -> Answer:
        if request.api is Api.API_VERSIONS:
            return api_versions(request.unknown)
        if request.api is Api.SASL_HANDSHAKE:
            return self._sasl.handshake(request.message.mechanism)
        if request.api is Api.SASL_AUTHENTICATE:
            return self._sasl.authenticate(request.message.auth_bytes)
        call = self._call(request)
        if not tried and request.api in self._serving.quick:
            begun = self._serving.quick[request.api](call)
            if begun is not None:
                return begun
        return await self._serving.handlers[request.api](call)

    def _begun_at_once(self, octets: memoryview, held: RequestBytes) -> bool:
        """Whether a request is begun already; what cannot be is read as all others are, which tells why."""
        if self._answers.full or not begun_at_once(octets):
            return False
        try:
            request = self._requests.parse(octets)
            begun = self._serving.quick[request.api](self._call(request))
        except BadFrame:
            return False
        if begun is None:
            self._tried = octets
            return False
        self._answers.add(request, held, begun)
        return True

    def _call(self, request: Request) -> Call:
        return Call(request.version, request.message, self._caller(), request.client, self._host, self._address)

    def _caller(self) -> Principal:
        """Who it is: asked anew each time, as tokens may go. Raises BadFrame."""
        try:
            return self._serving.guard.caller(self._sasl.authorization)
        except Unauthenticated as error:
            raise BadFrame(str(error)) from None
