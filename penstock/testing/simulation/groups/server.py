"""The endpoint of Kafka's protocol in one life of the daemon: real handlers, requests and answers as bytes.

Sockets are left out. Requests of members are tasks of the daemon's event loop, as on connections of their own;
producers have connections.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from penstock.errors import PenstockError
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.rights import ANONYMOUS
from penstock.server.event_loop import LoopCalls
from penstock.server.kafka.calls import Call, DeferredAnswer, QuickHandler
from penstock.server.kafka.connection.connection import Connection, Serving
from penstock.server.kafka.connection.frames import Frames
from penstock.server.kafka.entries.fetch import Fetching
from penstock.server.kafka.entries.produce import Producing
from penstock.server.kafka.groups.group_offsets import GroupOffsets
from penstock.server.kafka.groups.groups import Groups, group_handlers
from penstock.server.kafka.limits import KafkaLimits
from penstock.server.kafka.metadata.cluster import CreationQuota
from penstock.server.kafka.metadata.topics import Topics
from penstock.server.kafka.schema.messages import Api, Parts, Request, encode_answer, entity, parse
from penstock.testing.simulation.groups.event_loop import SimulatedLoop, SimulatedThreads
from penstock.testing.simulation.groups.transport import SimulatedTransport
from penstock.testing.simulation.machine import Killed, Machine
from penstock.testing.simulation.promises import Broken

ADDRESS = ("127.0.0.1", 9092)
MAX_TURNS = 10_000
"""Limit for turns and calls until the loop is quiet; more is a loop without end."""
_writer: Callable[[Any], Any] = cache(entity_writer)
_reader: Callable[[Any], Any] = cache(entity_reader)
Observe = Callable[[Request], Callable[[Any], None]]
"""Notes that a request begins; returns the function that notes its answer."""


def request_frame(api: Api, version: int, client: str, values: Mapping[str, Any], correlation: int = 1) -> bytes:
    """Return a request as a client sends it, without its length."""
    schema = load_request_schema(api, version)
    header = {
        "request_api_key": api,
        "request_api_version": version,
        "correlation_id": correlation,
        "client_id": client,
    }
    with io.BytesIO() as sink:
        _writer(schema.__header_schema__)(sink, entity(schema.__header_schema__, header))
        _writer(schema)(sink, entity(schema, values))
        return sink.getvalue()


def decode_answer(api: Api, version: int, frame: bytes) -> Any:
    """Return the message of an answer's frame."""
    schema = load_response_schema(api, version)
    # A frame begins with its length and the request's number; a flexible header has a byte for tagged fields too.
    message, _ = _reader(schema)(frame, 8 + schema.__header_schema__.__flexible__)
    return message


class KafkaServer:
    """The endpoint in one life of the daemon. ``observe`` is called as each request begins."""

    def __init__(self, machine: Machine, api: EntriesApi, observe: Observe) -> None:
        self._files, self._observe = machine.files, observe
        self._loop = SimulatedLoop(machine.clock)
        threads = api.threads
        assert isinstance(threads, SimulatedThreads)
        self.threads: SimulatedThreads = threads
        self._failure: BaseException | None = None
        offsets = GroupOffsets(api)
        calls, limits = LoopCalls(self._loop), KafkaLimits()
        producing: Producing = Producing(api, calls)
        groups, fetching, topics = Groups(offsets), Fetching(api), Topics(api, CreationQuota(machine.clock.monotonic))
        self._handlers: dict[Api, Callable[[Call], Any]] = {
            Api.FETCH: fetching.fetch,
            Api.PRODUCE: producing.produce,
            Api.INIT_PRODUCER_ID: producing.init_producer_id,
            Api.CREATE_TOPICS: topics.create,
            Api.DELETE_TOPICS: topics.delete,
            **group_handlers(groups, offsets),
        }
        self._limits: KafkaLimits = limits
        quick: dict[Api, QuickHandler] = {Api.PRODUCE: producing.produce_at_once}
        self._serving: Serving = Serving(self._handlers, quick, api.guard, limits, calls)

    def connect(self) -> SimulatedTransport:
        """Return the transport of a new connection."""
        transport = SimulatedTransport(self._loop, self._files)
        self._loop.call_soon(lambda: transport.accept(Frames(self._limits, self._serve_connection)))
        return transport

    async def _serve_connection(self, frames: Frames) -> None:
        try:
            await Connection(frames, self._serving, ADDRESS).run()
        except OSError:
            frames.abort()  # the real endpoint reports the error as well
        except Exception as error:  # noqa: BLE001 - ``turn`` raises it
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None and isinstance(error, PenstockError):
            # The run takes errors of the log for those of a daemon's thread, which tries again.
            self._failure = Broken(f"a handler raises {type(error).__name__}: {error}")
        self._failure = self._failure or error

    def receive(self, frame: bytes, answer: Callable[[Any], None]) -> None:
        """Take a request; ``answer`` gets the decoded answer, or None if the connection ends without one."""
        self._loop.create_task(self._serve(frame, answer))

    async def _serve(self, frame: bytes, answer: Callable[[Any], None]) -> None:
        try:
            request = parse(frame)
            observed = self._observe(request)
            try:
                parts = await self._handle(request)
            except OSError:
                # The real connection reports the error and ends; its client connects again.
                answer(None)
                return
            if self._files.is_dead:
                return
            message = decode_answer(request.api, request.version, b"".join(parts))
            observed(message)
            answer(message)
        except (Killed, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - ``turn`` raises it
            self._fail(error)

    async def _handle(self, request: Request) -> Parts:
        call = Call(request.version, request.message, ANONYMOUS, request.client, "host", ADDRESS)
        outcome: Any = self._handlers[request.api](call)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if isinstance(outcome, DeferredAnswer):
            values = outcome.ready()
            outcome = await outcome.values() if values is None else values
        return encode_answer(request, outcome)

    def turn(self) -> None:
        """Run what is due on the loop. Raises what a handler raised, and Killed if the process died in it."""
        self._loop.turn()
        # A task keeps every error for its caller, also the one that ends the process.
        if self._files.is_dead:
            raise Killed
        if self._failure is not None:
            raise self._failure

    @property
    def has_work(self) -> bool:
        """Report whether a request can go on without the passing of time."""
        return self._loop.has_work or self.threads.has_work

    def settle(self, choose: Callable[[], int]) -> None:
        """Run loop and threads until only time can change anything. ``choose`` chooses the thread that goes on."""
        for _ in range(MAX_TURNS):
            self.turn()
            if not self.has_work:
                return
            self.threads.run_one(choose())
        raise RuntimeError(f"the event loop is not quiet after {MAX_TURNS} turns")

    def die(self) -> None:
        """End as by SIGKILL."""
        self._loop.close()
