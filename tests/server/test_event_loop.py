from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from penstock.server.event_loop import LoopFutures


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
