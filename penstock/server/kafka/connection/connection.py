"""The connection of one Kafka client: requests start in order and are answered in order, several in flight.

Start with ``Connection.run``.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from penstock.process.servers.in_flight_bytes import RequestBytes
from penstock.server.auth.rights import Principal, TokenAuthenticator
from penstock.server.event_loop import LoopCalls
from penstock.server.kafka.calls import Address, Answer, Call, Handler, QuickHandler
from penstock.server.kafka.connection.answers import Answers
from penstock.server.kafka.connection.frames import Frames
from penstock.server.kafka.connection.requests import Requests, may_start_at_once
from penstock.server.kafka.connection.sasl import Sasl
from penstock.server.kafka.errors import BadFrame, UnansweredRefusal
from penstock.server.kafka.limits import KafkaLimits
from penstock.server.kafka.metadata.cluster import api_versions
from penstock.server.kafka.schema.messages import Api, Request
from penstock.slogd.errors import Unauthenticated

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Serving:
    """Objects shared by all connections. ``quick`` handlers start frequent requests without a task for each."""

    handlers: dict[Api, Handler]
    quick: dict[Api, QuickHandler]
    guard: TokenAuthenticator
    limits: KafkaLimits
    calls: LoopCalls


class Connection:
    """A client's connection, served until it ends or sends an invalid request. Owned by the event loop."""

    def __init__(self, frames: Frames, serving: Serving, address: Address) -> None:
        self._frames, self._serving, self._address = frames, serving, address
        self._sasl = Sasl(serving.guard)
        self._host = str((frames.transport.get_extra_info("peername") or ("",))[0])
        self._requests = Requests()
        self._not_quick: memoryview | None = None
        """The request that could not start at once; its quick handler is not tried again."""
        self._answers = Answers(frames, serving.limits, serving.calls)

    async def run(self) -> None:
        """Serve the connection until it ends."""
        reading = asyncio.create_task(self._read())
        self._frames.offer = self._start_at_once
        try:
            # Reading ends if the client is gone, and sending fails if it receives nothing: either ends the connection.
            await asyncio.wait([reading, self._answers.failed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            outcomes = await asyncio.gather(
                reading, self._answers.failed, self._answers.close(), return_exceptions=True
            )
            self._frames.abort()
        self._report_end([error for error in outcomes if isinstance(error, Exception)])

    @property
    def is_idle(self) -> bool:
        """Whether no request is being received or answered."""
        return self._frames.is_idle and not self._answers.pending

    def _report_end(self, errors: list[Exception]) -> None:
        """Log what ended the connection, if it was the client. Raises unexpected errors."""
        for error in errors:
            if not isinstance(error, BadFrame | UnansweredRefusal | ConnectionError | TimeoutError):
                raise error
            _LOGGER.debug("kafka: connection from %s closed: %s", self._host, error)

    async def _read(self) -> None:
        while (frame := await self._frames.next()) is not None:
            octets, request_bytes = frame
            try:
                await self._answers.wait_for_room()
                request, is_not_quick = self._requests.parse(octets), octets is self._not_quick
                self._not_quick = None
                # Release the memory of the request before its answer is awaited; records are views into it.
                del octets, frame
                self._answers.add(request, request_bytes, await self._start(request, is_not_quick))
                # From here on the queue of answers releases the bytes; this one is a dummy for ``finally``.
                request_bytes = RequestBytes(lambda: None)
            finally:
                self._serving.limits.release(request_bytes)

    async def _start(self, request: Request, is_not_quick: bool) -> Answer:
        if request.api is Api.API_VERSIONS:
            return api_versions(request.is_unsupported)
        if request.api is Api.SASL_HANDSHAKE:
            return self._sasl.handshake(request.message.mechanism)
        if request.api is Api.SASL_AUTHENTICATE:
            return self._sasl.authenticate(request.message.auth_bytes)
        call = self._call(request)
        if not is_not_quick and request.api in self._serving.quick:
            answer = self._serving.quick[request.api](call)
            if answer is not None:
                return answer
        return await self._serving.handlers[request.api](call)

    def _start_at_once(self, octets: memoryview, request_bytes: RequestBytes) -> bool:
        """Start a request without a task; return whether it is started.

        All others are left to ``_read``, which also reports their errors.
        """
        if self._answers.full or not may_start_at_once(octets):
            return False
        try:
            request = self._requests.parse(octets)
            answer = self._serving.quick[request.api](self._call(request))
        except BadFrame:
            return False
        if answer is None:
            self._not_quick = octets
            return False
        self._answers.add(request, request_bytes, answer)
        return True

    def _call(self, request: Request) -> Call:
        return Call(request.version, request.message, self._caller(), request.client, self._host, self._address)

    def _caller(self) -> Principal:
        """Return the client's identity. Raises BadFrame."""
        try:
            # Checked for each request: a token may be revoked while its connection is open.
            return self._serving.guard.caller(self._sasl.authorization)
        except Unauthenticated as error:
            raise BadFrame(str(error)) from None
