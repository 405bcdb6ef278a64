"""A client that still sends gets the last answer: its bytes cause no reset, and its silence ends the connection."""

from __future__ import annotations

import asyncio
import socket

import pytest

from penstock.process.servers import lingering_transport
from penstock.process.servers.lingering_transport import LingeringTransport

ANSWER = b"refused"


class Refusing(asyncio.Protocol):
    """Connection that answers its first bytes and closes; ``received`` bytes come from the transport."""

    def __init__(self, is_client_sending: bool) -> None:
        self.is_client_sending = is_client_sending
        self.received = self.ignored_from = 0
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = LingeringTransport(transport, self)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if not self.transport.is_closing():
            self.transport.write(ANSWER)
            self.transport.close()

    def ignore_input(self) -> None:
        self.ignored_from = self.received

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


async def send(connection: Refusing, ends: bool = True) -> bytes:
    """Send before and behind the answer; return what comes, and wait until the server's side has ended."""
    server = await asyncio.get_running_loop().create_server(lambda: connection, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"a")
        await reader.readexactly(1)
        for _ in range(50):
            writer.write(b"a" * 100_000)
            await writer.drain()
        answer = ANSWER[:1] + await reader.read()
        if ends:
            writer.close()
        await asyncio.wait_for(connection.ended.wait(), 30)
        writer.close()
        return answer


def test_answer_is_read_behind_bytes_that_come_later() -> None:
    async def run() -> None:
        connection = Refusing(is_client_sending=True)
        assert await send(connection) == ANSWER
        assert (connection.ignored_from, connection.received) == (1, 5_000_001)

    asyncio.run(run())


def test_connection_ends_although_its_client_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering_transport, "LINGER_S", 0.5)
    asyncio.run(send(Refusing(is_client_sending=True), ends=False))


def test_connection_ends_at_once_without_more_to_come_or_at_the_second_close() -> None:
    async def run(is_client_sending: bool, closes: int) -> bool:
        connection = Refusing(is_client_sending)
        server = await asyncio.get_running_loop().create_server(lambda: connection, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"a")
            assert await reader.read() == ANSWER
            for _ in range(closes - 1):
                connection.transport.close()
            await asyncio.sleep(0.1)
            writer.close()
            return connection.ended.is_set()

    assert asyncio.run(run(False, closes=1))
    assert asyncio.run(run(True, closes=2))
    assert not asyncio.run(run(True, closes=1))


def test_close_behind_a_reset_that_is_not_seen_yet_is_no_error() -> None:
    class Silent(Refusing):
        def data_received(self, data: bytes) -> None:
            self.received += len(data)

    async def run() -> None:
        connection = Silent(is_client_sending=True)
        server = await asyncio.get_running_loop().create_server(lambda: connection, "127.0.0.1", 0)
        async with server:
            with socket.create_connection(server.sockets[0].getsockname()) as client:
                client.sendall(b"a")
                while not connection.received:
                    await asyncio.sleep(0)
            connection.transport.write(ANSWER)
            connection.transport.close()
            await asyncio.wait_for(connection.ended.wait(), 30)

    asyncio.run(run())
