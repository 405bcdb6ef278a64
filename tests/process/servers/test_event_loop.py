"""Servers that run out of file descriptors."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket

import pytest

from penstock.process.servers.event_loop import ServerLoop


class NoDescriptors(socket.socket):
    """A listening socket without a descriptor for the next connection, as long as ``is_short``."""

    is_short = True

    def accept(self) -> tuple[socket.socket, object]:
        if self.is_short:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_accept_without_descriptors_is_retried_once_and_a_stop_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with NoDescriptors() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        listener.setblocking(False)

        async def serve(closes: bool) -> None:
            connected = asyncio.Event()

            async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                connected.set()
                writer.close()

            server = await asyncio.start_server(serve_client, sock=listener, backlog=2048)
            with socket.create_connection(listener.getsockname()):
                await asyncio.sleep(0.1)
                listener.is_short = False
                if closes:
                    server.close()
                    await asyncio.sleep(1.1)
                else:
                    await asyncio.wait_for(connected.wait(), 10)
                    listener.is_short = True

        with caplog.at_level(logging.ERROR), asyncio.Runner(loop_factory=ServerLoop) as runner:
            runner.run(serve(closes=False))
            assert [record.getMessage().splitlines()[0] for record in caplog.records] == [
                "socket.accept() out of system resource"
            ]
            runner.run(serve(closes=True))
        assert len(caplog.records) <= 2
