from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from penstock.server.event_loop import LoopCalls, LoopFutures


def test_results_and_errors_arrive_from_any_thread() -> None:
    async def run() -> list[object]:
        arrivals = LoopFutures(asyncio.get_running_loop())
        futures: list[Future[int]] = [Future() for _ in range(200)]
        waiting = asyncio.gather(*(arrivals.wait(future) for future in futures), return_exceptions=True)
        await asyncio.sleep(0)

        def answer(part: int) -> None:
            for number in range(part, 200, 4):
                if number == 7:
                    futures[number].set_exception(OSError("seven"))
                else:
                    futures[number].set_result(number)

        for part in range(4):
            threading.Thread(target=answer, args=(part,)).start()
        return list(await asyncio.wait_for(waiting, 20))

    results = asyncio.run(run())
    assert isinstance(results[7], OSError)
    assert [r for r in results if r is not results[7]] == [number for number in range(200) if number != 7]


def test_cancelled_wait_does_not_cancel_the_future() -> None:
    async def run() -> bool:
        arrivals = LoopFutures(asyncio.get_running_loop())
        future: Future[int] = Future()
        task = asyncio.create_task(arrivals.wait(future))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        future.set_result(1)
        return await arrivals.wait(future) == 1 and not future.cancelled()

    assert asyncio.run(run())


class LateQueue(deque[Any]):
    """A queue of calls to which a thread adds one at the moment when it has been found empty."""

    def __init__(self, add: Callable[[], object]) -> None:
        self._add: Callable[[], object] | None = add

    def __bool__(self) -> bool:
        if not (is_empty := len(self) == 0) or self._add is None:
            return not is_empty
        thread = threading.Thread(target=self._add)
        self._add = None
        thread.start()
        thread.join()
        return False


def test_call_that_arrives_when_the_queue_has_just_been_emptied_runs() -> None:
    async def run() -> None:
        calls, is_done = LoopCalls(asyncio.get_running_loop()), asyncio.Event()
        calls._waiting = LateQueue(lambda: calls.soon(is_done.set))
        calls.soon(lambda: None)
        await asyncio.wait_for(is_done.wait(), 10)

    asyncio.run(run())
