"""The queue of a connection's answers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.log import Appended
from penstock.process.servers.in_flight_bytes import RequestBytes
from penstock.server.event_loop import LoopCalls
from penstock.server.kafka.calls import Answer, AnswerOnceStored, DeferredAnswer
from penstock.server.kafka.connection.answers import MAX_IN_FLIGHT, Answers
from penstock.server.kafka.limits import KafkaLimits
from penstock.server.kafka.schema.messages import Api, Parts, Request, Values
from tests.server.kafka.connection.test_frames import Wire, connected

pytestmark = pytest.mark.anyio
STORED = Appended(0, 1, np.zeros(1, np.int64))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Sender:
    """Requests of one connection, and the futures that their answers wait for."""

    def __init__(self, answers: Answers, limits: KafkaLimits) -> None:
        self.answers, self.limits = answers, limits
        self.waited: list[Future[Appended] | asyncio.Event | None] = []

    def send(self, kind: str) -> None:
        held = RequestBytes(lambda: None, complete=True)
        self.limits.grow(held, 10)
        number = len(self.waited)
        self.answers.add(Request(Api.HEARTBEAT, 0, number, "", None), held, self._answer(kind))

    def _answer(self, kind: str) -> Answer:
        if kind == "now":
            self.waited.append(None)
            return {}
        if kind == "soon":
            future: Future[Appended] = Future()
            self.waited.append(future)
            return AnswerOnceStored([future], lambda request: encoded_answer(request.correlation))
        event = asyncio.Event()
        self.waited.append(event)
        return DeferredAnswer(lambda: self._later(event), lambda: {} if event.is_set() else None)

    async def _later(self, event: asyncio.Event) -> Values:
        await event.wait()
        return {}

    def happens(self, number: int) -> None:
        waited = self.waited[number]
        if isinstance(waited, Future):
            waited.set_result(STORED)
        elif waited is not None:
            waited.set()


def encoded_answer(number: int) -> Parts:
    return [struct.pack(">iih", 6, number, 0)]


def numbers(wire: Wire) -> list[int]:
    octets = b"".join(wire.sent)
    return [struct.unpack_from(">i", octets, position + 4)[0] for position in range(0, len(octets), 10)]


@asynccontextmanager
async def sender() -> AsyncIterator[tuple[Sender, Wire]]:
    limits = KafkaLimits()
    async with connected(limits) as (frames, wire):
        client = Sender(Answers(frames, limits, LoopCalls(asyncio.get_running_loop())), limits)
        yield client, wire
        await client.answers.close()


async def settled() -> None:
    """Let all waiting answers proceed: each takes two turns of the loop."""
    for _ in range(4 * MAX_IN_FLIGHT):
        await asyncio.sleep(0)


KINDS = st.lists(st.sampled_from(["now", "soon", "later"]), min_size=1, max_size=MAX_IN_FLIGHT)


@given(KINDS, st.permutations(range(MAX_IN_FLIGHT)))
@example(["later"] * MAX_IN_FLIGHT, list(reversed(range(MAX_IN_FLIGHT))))
def test_answers_are_sent_in_order_as_soon_as_possible(kinds: list[str], order: list[int]) -> None:
    async def run() -> None:
        async with sender() as (client, wire):
            for kind in kinds:
                client.send(kind)
            there = {number for number, kind in enumerate(kinds) if kind == "now"}
            for number in (number for number in order if number < len(kinds)):
                client.happens(number)
                there.add(number)
                await settled()
                assert numbers(wire) == list(range(next(n for n in range(len(kinds) + 1) if n not in there)))
            assert client.limits.size == 0

    asyncio.run(run())


@given(KINDS)
def test_disconnect_releases_all_pending_requests(kinds: list[str]) -> None:
    async def run() -> None:
        async with sender() as (client, wire):
            for kind in kinds:
                client.send(kind)
            await settled()
            before = numbers(wire)
            await client.answers.close()
            for number in range(len(kinds)):
                client.happens(number)
            await settled()
            assert (numbers(wire), client.limits.size) == (before, 0)

    asyncio.run(run())


async def test_requests_in_flight_are_limited() -> None:
    async with sender() as (client, _):
        for _ in range(MAX_IN_FLIGHT):
            client.send("soon")
        room = asyncio.create_task(client.answers.wait_for_room())
        await settled()
        assert client.answers.full
        assert not room.done()
        client.happens(0)
        await asyncio.wait_for(room, 5)


async def test_failing_answer_ends_the_connection() -> None:
    async with sender() as (client, wire):

        def broken(_: Request) -> Parts:
            raise ValueError("no answer")

        client.answers.add(
            Request(Api.HEARTBEAT, 0, 0, "", None), RequestBytes(lambda: None), AnswerOnceStored([], broken)
        )
        client.answers.add(Request(Api.HEARTBEAT, 0, 1, "", None), RequestBytes(lambda: None), {})
        with pytest.raises(ValueError, match="no answer"):
            await asyncio.wait_for(client.answers.failed, 5)
        assert not wire.sent


async def test_request_without_answer_does_not_block_the_next() -> None:
    async with sender() as (client, wire):
        client.answers.add(
            Request(Api.PRODUCE, 9, 0, "", None), RequestBytes(lambda: None), AnswerOnceStored([], lambda _: [])
        )
        client.answers.add(Request(Api.HEARTBEAT, 0, 1, "", None), RequestBytes(lambda: None), {})
        await settled()
        assert numbers(wire) == [1]


@pytest.mark.survives("Kafka protocol", "slow peer")
async def test_sending_pauses_for_a_client_that_does_not_receive() -> None:
    async with sender() as (client, wire):
        wire.frames.pause_writing()
        for _ in range(3):
            client.send("now")
        await settled()
        assert numbers(wire) == [0]
        wire.frames.resume_writing()
        await settled()
        assert numbers(wire) == [0, 1, 2]
