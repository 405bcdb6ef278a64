"""Frames of a connection: any split of bytes, slow clients, and wrong sizes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.process.servers.in_flight_bytes import RequestBytes
from penstock.server.kafka.connection import frames as module
from penstock.server.kafka.connection.frames import Frames, TlsFrames
from penstock.server.kafka.errors import BadFrame
from penstock.server.kafka.limits import MAX_REQUEST_BYTES, KafkaLimits
from tests.server import certificates

pytestmark = pytest.mark.anyio
BODIES = st.lists(st.binary(min_size=1, max_size=9) | st.binary(min_size=60, max_size=300), max_size=8)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


class Wire(asyncio.Transport):
    """A transport that hands over bytes as an event loop does, unless reading is paused."""

    def __init__(self, frames: Frames, most: int = 1 << 20) -> None:
        super().__init__()
        self.frames, self.most, self.paused, self.aborted = frames, most, False, False
        self.sent: list[bytes] = []
        self.left = b""
        self.ending = False
        frames.connection_made(self)

    def end(self) -> None:
        """End the connection behind the bytes that were sent; not seen while reading is paused."""
        self.ending = True
        self.bring(b"")

    def bring(self, octets: bytes) -> None:
        self.left += octets
        while self.left and not self.paused:
            room = self.frames.get_buffer(-1)
            count = min(self.most, len(room), len(self.left))
            room[:count] = self.left[:count]
            self.left = self.left[count:]
            self.frames.buffer_updated(count)
        if self.ending and not self.paused:
            self.frames.eof_received()

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        asyncio.get_running_loop().call_soon(self.bring, b"")

    def write(self, data: object) -> None:
        self.sent.append(bytes(cast("bytes", data)))

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


@asynccontextmanager
async def connected(limits: KafkaLimits | None = None, most: int = 1 << 20) -> AsyncIterator[tuple[Frames, Wire]]:
    async def serve(_: Frames) -> None:
        return

    frames = Frames(limits or KafkaLimits(), serve)
    wire = Wire(frames, most)
    yield frames, wire
    frames.abort()
    frames.connection_lost(None)


@given(BODIES, st.integers(1, 700), st.booleans())
def test_frames_are_equal_for_any_split_of_their_bytes(bodies: list[bytes], most: int, slow: bool) -> None:
    async def run() -> None:
        limits = KafkaLimits()
        async with connected(limits, most) as (frames, wire):
            wire.bring(framed(*bodies))
            for body in bodies:
                if slow:
                    await asyncio.sleep(0)
                frame, request_bytes = cast("module.Frame", await frames.next())
                assert frame == body
                assert request_bytes.complete
                limits.release(request_bytes)
            frames.eof_received()
            assert await frames.next() is None
            assert limits.size == 0

    asyncio.run(run())


@given(BODIES, st.integers(1, 700), st.booleans(), st.integers())
def test_frames_are_offered_or_returned_in_order(bodies: list[bytes], most: int, slow: bool, seed: int) -> None:
    chance = random.Random(seed)  # drawn beforehand: what is raised within a callback ends no test

    async def run() -> None:
        limits, received = KafkaLimits(), []

        def accept(frame: memoryview, held: RequestBytes) -> bool:
            is_accepted = chance.random() < 0.5
            if is_accepted:
                received.append(bytes(frame))
                limits.release(held)
            return is_accepted

        async def read() -> None:
            while (next_frame := await frames.next()) is not None:
                received.append(bytes(next_frame[0]))
                limits.release(next_frame[1])
                if slow:
                    await asyncio.sleep(0)

        async with connected(limits, most) as (frames, wire):
            frames.offer = accept
            reading = asyncio.create_task(read())
            await asyncio.sleep(0)
            for body in bodies:
                wire.bring(framed(body))
                if chance.random() < 0.5:
                    await asyncio.sleep(0)
            wire.end()
            await reading
            assert (received, limits.size) == (bodies, 0)

    asyncio.run(run())


async def test_unread_frames_are_released_at_the_end() -> None:
    limits = KafkaLimits()
    async with connected(limits) as (frames, wire):
        reading = asyncio.create_task(frames.next())
        await asyncio.sleep(0)
        wire.bring(framed(b"one"))
        assert limits.size == 3
        frames.abort()
        assert (await reading, limits.size) == (None, 0)


async def test_complete_frames_before_the_end_are_returned() -> None:
    async with connected() as (frames, wire):
        wire.bring(framed(b"one", b"two") + b"\0\0\0\x09half")
        frames.eof_received()
        assert [bytes(cast("module.Frame", await frames.next())[0]) for _ in range(2)] == [b"one", b"two"]
        assert await frames.next() is None


@pytest.mark.parametrize("busy", [0.0, 0.002])
async def test_tls_frames_before_the_end_reach_a_busy_reader(pair: certificates.Pair, busy: float) -> None:
    received, over = [], asyncio.Event()

    async def serve(frames: Frames) -> None:
        while (frame := await frames.next()) is not None:
            received.append(frame[0][0])
            await asyncio.sleep(busy)
        over.set()

    def send(port: int) -> None:
        context = ssl.create_default_context(cafile=pair.cert)
        with socket.create_connection(("127.0.0.1", port)) as plain:
            sock = context.wrap_socket(plain, server_hostname="localhost")
            sock.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                sock.recv(1)  # the tickets of the session: where they are not read, the end is a reset
            sock.sendall(framed(*[bytes([number]) * 4000 for number in range(60)]))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: TlsFrames(Frames(KafkaLimits(), serve, read_ahead_bytes=TlsFrames.READ_AHEAD_BYTES)),
        "127.0.0.1",
        0,
        ssl=context,
    )
    await loop.run_in_executor(None, send, server.sockets[0].getsockname()[1])
    await asyncio.wait_for(over.wait(), 20)
    server.close()
    assert received == list(range(60))


async def test_large_frame_grows_with_its_bytes() -> None:
    body = bytes(range(256)) * (5 << 12)
    async with connected(most=100_000) as (frames, wire):
        wire.bring(framed(body, b"next"))
        assert cast("module.Frame", await frames.next())[0] == body
        assert cast("module.Frame", await frames.next())[0] == b"next"


async def test_reading_pauses_while_nothing_is_requested() -> None:
    limits = KafkaLimits()
    async with connected(limits) as (frames, wire):
        wire.bring(framed(*[b"x" * 10_000] * 1000))
        assert wire.paused
        assert len(wire.left) > 9_800_000
        for _ in range(1000):
            _, held = cast("module.Frame", await frames.next())
            limits.release(held)
        assert not wire.left
        assert limits.size == 0


async def test_queued_frame_is_read_before_its_deadline() -> None:
    async with connected(KafkaLimits(timeout=0.2)) as (frames, wire):
        wire.bring(framed(b"first", b"x" * 200_000))
        assert wire.paused
        assert cast("module.Frame", await frames.next())[0] == b"first"
        await asyncio.sleep(0.4)  # busy with the first one
        assert not wire.aborted
        assert len(cast("module.Frame", await frames.next())[0]) == 200_000


async def test_missing_frame_times_out() -> None:
    limits = KafkaLimits(timeout=0.1)
    async with connected(limits) as (frames, wire):
        wire.bring(struct.pack(">i", 100) + b"x")
        assert limits.size == 1
        assert await frames.next() is None
        assert wire.aborted
        assert limits.size == 0


async def test_deadline_follows_received_bytes_not_the_announced_length() -> None:
    async with connected(KafkaLimits(timeout=0.2)) as (frames, wire):
        wire.bring(struct.pack(">i", 90 << 20) + b"x")
        assert await asyncio.wait_for(frames.next(), 20) is None
        assert wire.aborted


async def test_fast_frame_outlives_its_first_deadline() -> None:
    async with connected(KafkaLimits(timeout=0.2)) as (frames, wire):
        wire.bring(struct.pack(">i", 200_000) + b"x" * 100_000)
        await asyncio.sleep(0.5)
        assert not wire.aborted
        wire.bring(b"x" * 100_000)
        assert len(cast("module.Frame", await frames.next())[0]) == 200_000


async def test_idle_client_is_disconnected_unless_it_awaits_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_TIMEOUT_S", 0.1)
    async with connected() as (_, wire):
        await asyncio.sleep(0.3)
        assert not wire.aborted
    async with connected() as (frames, wire):
        assert await frames.next() is None
        assert wire.aborted


@pytest.mark.parametrize("size", [0, -1, MAX_REQUEST_BYTES + 1, 2**31 - 1])
async def test_invalid_size_is_refused(size: int) -> None:
    async with connected() as (frames, wire):
        wire.bring(framed(b"good") + struct.pack(">i", size))
        assert cast("module.Frame", await frames.next())[0] == b"good"
        with pytest.raises(BadFrame):
            await frames.next()


async def test_announced_size_takes_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with AsyncExitStack() as stack:
        for _ in range(50):
            _, wire = await stack.enter_async_context(connected())
            wire.bring(struct.pack(">i", MAX_REQUEST_BYTES) + b"x")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


@pytest.mark.survives("Kafka protocol", "flood")
async def test_full_budget_ends_the_largest_incomplete_frame() -> None:
    limits = KafkaLimits(max_bytes=1_000_000)
    async with connected(limits) as (_, wire), connected(limits) as (second_frames, second):
        wire.bring(struct.pack(">i", 5_000_000) + b"x" * 700_000)
        second.bring(framed(b"y" * 400_000))
        assert wire.aborted
        assert len(cast("module.Frame", await second_frames.next())[0]) == 400_000


async def test_full_budget_ends_the_frame_that_completes() -> None:
    limits = KafkaLimits(max_bytes=1_000_000)
    async with connected(limits) as (frames, wire), connected(limits) as (_, second):
        second.bring(struct.pack(">i", 600_000) + b"y" * 400_000)
        wire.bring(framed(b"x" * 700_000))
        assert await frames.next() is None
        assert wire.aborted
        assert not second.aborted
        assert limits.size == 400_000


@pytest.mark.survives("Kafka protocol", "flood")
async def test_full_budget_ends_a_connection_of_small_frames() -> None:
    limits = KafkaLimits(max_bytes=100_000)
    async with connected(limits) as (frames, wire):
        wire.bring(framed(*[b"x" * 30_000] * 4))
        results = [await frames.next() for _ in range(4)]
        assert [frame is not None for frame in results] == [True, True, True, False]
        assert wire.aborted
        assert limits.size == 90_000


async def test_small_answers_are_sent_together_in_order() -> None:
    async with connected() as (frames, wire):
        frames.send([b"a"])
        frames.send([b"b"])
        frames.send([b"head", b"large"])
        frames.send([b"c"])
        assert wire.sent == [b"ab", b"head", b"large"]
        await asyncio.sleep(0)
        assert wire.sent[3:] == [b"c"]


async def test_client_that_does_not_receive_times_out() -> None:
    async with connected(KafkaLimits(timeout=0.1)) as (frames, _):
        await frames.wait_until_drained(10)
        frames.pause_writing()
        with pytest.raises(TimeoutError):
            await frames.wait_until_drained(10)
        frames.resume_writing()
        await frames.wait_until_drained(10)


@settings(max_examples=30)
@given(st.binary(max_size=100), st.integers(1, 30))
def test_any_bytes_are_frames_or_refused(octets: bytes, most: int) -> None:
    async def run() -> None:
        async with connected(most=most) as (frames, wire):
            wire.bring(octets)
            frames.eof_received()
            received = b""
            try:
                while (frame := await frames.next()) is not None:
                    received += framed(bytes(frame[0]))
            except BadFrame:
                pass
            assert octets.startswith(received)

    asyncio.run(run())
