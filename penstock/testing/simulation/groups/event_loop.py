"""The daemon's event loop and its reader threads in steps: a loop on virtual time, an executor without threads.

Invariant: nothing runs between steps, and the order of calls depends on the arguments of ``SimulatedThreads.run_one``
alone, so that a seed determines a run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from penstock.testing.crashes import FakeClock

_Call = tuple[Future[Any], Callable[[], Any]]


class SimulatedThreads(Executor):
    """Threads of an executor without threads: each step runs one of the first ``threads`` calls that wait.

    A call that began earlier may end later, as on real threads.
    """

    def __init__(self, threads: int, *_: Any) -> None:
        self._threads = threads
        self._waiting: list[_Call] = []
        self._stuck: list[tuple[int, _Call]] = []
        self._steps = 0
        self.stick_for = 0
        """For how many steps the next call is stuck, as on a slow disk."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Queue a call for a later step."""
        future: Future[Any] = Future()
        self._waiting.append((future, lambda: call(*arguments, **named)))
        return future

    @property
    def has_work(self) -> bool:
        """Report whether a call waits."""
        return bool(self._waiting or self._stuck)

    def run_one(self, choice: int) -> None:
        """Run one of the calls that a thread has taken."""
        self._steps += 1
        self._waiting += [call for end, call in self._stuck if end <= self._steps]
        self._stuck = [(end, call) for end, call in self._stuck if end > self._steps]
        if self._waiting and self.stick_for:
            self._stuck.append((self._steps + self.stick_for, self._waiting.pop(0)))
            self.stick_for = 0
        if not self._waiting:
            return
        future, call = self._waiting.pop(choice % min(len(self._waiting), self._threads))
        if future.set_running_or_notify_cancel():
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - the caller of the future gets it
                future.set_exception(error)
            else:
                future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Forget what waits."""
        self._waiting.clear()
        self._stuck.clear()


class _NoSelector:
    """The loop has no sockets, and its time passes only between turns."""

    def select(self, timeout: float | None) -> list[Any]:
        return []

    def close(self) -> None: ...


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop on virtual time that runs only within ``turn``. ``close`` ends all of its tasks."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock
        self._selector = _NoSelector()
        self._tasks: set[asyncio.Task[Any]] = set()

    def time(self) -> float:
        return self._clock.monotonic()

    def create_task(self, coro: Any, **named: Any) -> asyncio.Task[Any]:
        task = super().create_task(coro, **named)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def turn(self) -> None:
        """Run what is due, once; calls that this makes due run in the next turn."""
        asyncio._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            asyncio._set_running_loop(None)

    @property
    def has_work(self) -> bool:
        """Report whether a call is due that is not a timer."""
        return bool(self._ready)  # type: ignore[attr-defined]

    @staticmethod
    def _process_events(events: list[Any]) -> None:
        """Do nothing: there are no sockets."""

    @staticmethod
    def _write_to_self() -> None:
        """Do nothing: no thread waits for events."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore tasks that a kill leaves behind; the server reports what its handlers raise."""

    def close(self) -> None:
        """End all tasks as a kill does: no step of them follows."""
        while self._tasks:
            coroutine: Any = self._tasks.pop().get_coro()
            with contextlib.suppress(RuntimeError):  # its ``finally`` awaits, and begins tasks
                coroutine.close()
            coroutine.close()
        super().close()
