"""Requests that are read on an event loop: a request shares a frame with all that arrive at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.config import ListenerConfig
from penstock.handover.buffer import HandlerPosition
from penstock.handover.stored_waits import Fate, epoll_timeout
from penstock.handover.writer import FrameWriter
from penstock.ingest.requests.request_writer import MAX_HOLD_S, RequestWriter, Sender, refusal_of
from penstock.wire.requests import Received

CALM_TURNS = 3
"""Turns of the event loop without a new request until pending ones are written: all arrived requests share a frame."""


class Submissions:
    """Requests of one listener; used on one event loop. ``wake`` is called once frames are written."""

    def __init__(
        self,
        listener: ListenerConfig,
        writer: FrameWriter,
        readers: Sequence[HandlerPosition],
        wake: Callable[[], None],
    ) -> None:
        self._requests = RequestWriter(listener, writer, readers, wake)
        self.count_refusal, self.tick = self._requests.count_refusal, self._requests.tick
        self._is_watching = self._is_held = False

    async def store(self, received: Received, codec: str, sender: Sender) -> None:
        """Return once the log has stored the messages. Raises Refused if it lacks room or does not take them."""
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[Fate] = loop.create_future()
        is_first = not self._requests.pending
        self._requests.add(received, codec, sender, lambda fate: _settle(stored, fate))
        if is_first:
            loop.call_soon(self._flush_once_calm, 0, 0)
        # Invariant: the sender is answered only now; a process that dies before leaves it without an answer, and it
        # retries.
        if (fate := await stored) is not Fate.STORED:
            raise refusal_of(fate)

    def _flush_once_calm(self, previous: int, quiet_turns: int) -> None:
        """Write pending requests once no new ones arrive and earlier ones are synced: one frame for several."""
        pending = self._requests.pending
        quiet_turns = quiet_turns + 1 if pending == previous else 0
        if quiet_turns < CALM_TURNS and not self._requests.fills_a_frame:
            asyncio.get_running_loop().call_soon(self._flush_once_calm, pending, quiet_turns)
        elif self._requests.holds_back:
            self._is_held = True
        else:
            self._requests.flush()
            self._schedule_check()

    def _schedule_check(self) -> None:
        if not self._is_watching and self._requests.pause is not None:
            self._is_watching = True
            pause = epoll_timeout(min(self._requests.pause, MAX_HOLD_S))
            asyncio.get_running_loop().call_later(pause, self._check_waits)

    def _check_waits(self) -> None:
        self._is_watching = False
        self._requests.settle_decided()
        if self._is_held and not self._requests.holds_back:
            self._is_held = False
            asyncio.get_running_loop().call_soon(self._flush_once_calm, 0, 0)
        self._schedule_check()


def _settle(stored: asyncio.Future[Fate], fate: Fate) -> None:
    if not stored.done():  # its sender may have disconnected
        stored.set_result(fate)
