"""Coroutines without an event loop, and the equality of the methods of both clients."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator

import pytest

from penstock.client import AsyncLog, Log
from penstock.client.log.blocking import Blocking, blocking, iterate, iterating, run
from tests.server.running import Running


class Core:
    """The wrapped object."""

    def __init__(self) -> None:
        self.closed = False

    async def double(self, number: int, *, times: int = 1) -> int:
        """Return twice the number."""
        if number < 0:
            raise ValueError("negative")
        return number * 2**times

    async def count(self, end: int) -> AsyncGenerator[int]:
        """Count from 0 to ``end``."""
        try:
            for number in range(end):
                yield await self.double(number, times=0)
        finally:
            self.closed = True


class Shell(Blocking[Core]):
    double = blocking(Core.double)
    count = iterating(Core.count)


def test_method_blocks_for_the_result_or_error_of_the_coroutine() -> None:
    shell = Shell(Core())
    assert shell.double(3) == 6
    assert shell.double(3, times=2) == 12
    with pytest.raises(ValueError, match="negative"):
        shell.double(-1)
    assert Shell.double.__doc__ == "Return twice the number."
    assert list(inspect.signature(shell.double).parameters) == ["number", "times"]


def test_entries_are_yielded_singly_and_the_generator_is_closed() -> None:
    core = Core()
    shell = Shell(core)
    assert list(shell.count(3)) == [0, 1, 2]
    core.closed = False
    items = iterate(core.count(3))
    assert next(items) == 0
    assert not core.closed
    items.close()  # type: ignore[attr-defined]
    assert core.closed


def test_coroutine_that_waits_for_a_loop_is_refused() -> None:
    with pytest.raises(RuntimeError, match="needs an event loop"):
        run(asyncio.sleep(0))


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    def methods(of: type) -> dict[str, list[str]]:
        public = {name: kind for name, kind in inspect.getmembers(of, callable) if not name.startswith("_")}
        return {name: list(inspect.signature(method).parameters) for name, method in public.items()}

    assert methods(Log) == methods(AsyncLog)


def test_blocking_client_works_inside_an_event_loop(running: Running) -> None:
    async def body() -> None:
        with Log(running.bound.grpc) as log:
            assert log.append("t", [b"0", b"1"]) == [0, 1]
            assert next(log.follow("t", "earliest")).offset == 0
            assert [entry.offset for page in log.pages("t") for entry in page.entries] == [0, 1]

    asyncio.run(asyncio.wait_for(body(), 60))
