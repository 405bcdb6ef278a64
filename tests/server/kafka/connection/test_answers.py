"""Answers of a connection: in the order of the requests, whatever is there first, and nothing is kept at the end."""

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
from penstock.process.in_flight_bytes import RequestBytes
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


class Asked:
    """Requests of one connection, and what their answers wait for."""

    def __init__(self, answers: Answers, limits: KafkaLimits) -> None:
        self.answers, self.limits = answers, limits
        self.waited: list[Future[Appended] | asyncio.Event | None] = []

    def ask(self, kind: str) -> None:
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
            return AnswerOnceStored([future], lambda request: told(request.correlation))
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


def told(number: int) -> Parts:
    return [struct.pack(">iih", 6, number, 0)]


def numbers(wire: Wire) -> list[int]:
    octets = b"".join(wire.sent)
    return [struct.unpack_from(">i", octets, at + 4)[0] for at in range(0, len(octets), 10)]


@asynccontextmanager
async def asking() -> AsyncIterator[tuple[Asked, Wire]]:
    limits = KafkaLimits()
    async with connected(limits) as (frames, wire):
        asked = Asked(Answers(frames, limits, LoopCalls(asyncio.get_running_loop())), limits)
        yield asked, wire
        await asked.answers.close()


async def settled() -> None:
    """Each answer that is waited for by a task takes two turns of the loop, one behind the other."""
    for _ in range(4 * MAX_IN_FLIGHT):
        await asyncio.sleep(0)


KINDS = st.lists(st.sampled_from(["now", "soon", "later"]), min_size=1, max_size=MAX_IN_FLIGHT)


@given(KINDS, st.permutations(range(MAX_IN_FLIGHT)))
@example(["later"] * MAX_IN_FLIGHT, list(reversed(range(MAX_IN_FLIGHT))))
def test_they_go_in_the_order_of_the_requests_each_as_soon_as_it_may(kinds: list[str], order: list[int]) -> None:
    async def run() -> None:
        async with asking() as (asked, wire):
            for kind in kinds:
                asked.ask(kind)
            there = {number for number, kind in enumerate(kinds) if kind == "now"}
            for number in (number for number in order if number < len(kinds)):
                asked.happens(number)
                there.add(number)
                await settled()
                assert numbers(wire) == list(range(next(n for n in range(len(kinds) + 1) if n not in there)))
            assert asked.limits.size == 0

    asyncio.run(run())


@given(KINDS)
def test_where_the_client_is_gone_nothing_of_them_is_kept(kinds: list[str]) -> None:
    async def run() -> None:
        async with asking() as (asked, wire):
            for kind in kinds:
                asked.ask(kind)
            await settled()
            before = numbers(wire)
            await asked.answers.close()
            for number in range(len(kinds)):
                asked.happens(number)
            await settled()
            assert (numbers(wire), asked.limits.size) == (before, 0)

    asyncio.run(run())


async def test_no_more_are_begun_than_may_wait() -> None:
    async with asking() as (asked, _):
        for _ in range(MAX_IN_FLIGHT):
            asked.ask("soon")
        room = asyncio.create_task(asked.answers.wait_for_room())
        await settled()
        assert asked.answers.full
        assert not room.done()
        asked.happens(0)
        await asyncio.wait_for(room, 5)


async def test_one_that_cannot_be_told_ends_them() -> None:
    async with asking() as (asked, wire):

        def broken(_: Request) -> Parts:
            raise ValueError("no answer")

        asked.answers.add(
            Request(Api.HEARTBEAT, 0, 0, "", None), RequestBytes(lambda: None), AnswerOnceStored([], broken)
        )
        asked.answers.add(Request(Api.HEARTBEAT, 0, 1, "", None), RequestBytes(lambda: None), {})
        with pytest.raises(ValueError, match="no answer"):
            await asyncio.wait_for(asked.answers.failed, 5)
        assert not wire.sent


async def test_where_none_is_wanted_the_next_one_goes() -> None:
    async with asking() as (asked, wire):
        asked.answers.add(
            Request(Api.PRODUCE, 9, 0, "", None), RequestBytes(lambda: None), AnswerOnceStored([], lambda _: [])
        )
        asked.answers.add(Request(Api.HEARTBEAT, 0, 1, "", None), RequestBytes(lambda: None), {})
        await settled()
        assert numbers(wire) == [1]


async def test_nothing_is_sent_to_who_takes_nothing() -> None:
    async with asking() as (asked, wire):
        wire.frames.pause_writing()
        for _ in range(3):
            asked.ask("now")
        await settled()
        assert numbers(wire) == [0]
        wire.frames.resume_writing()
        await settled()
        assert numbers(wire) == [0, 1, 2]
