"""Transactions: entries for any topics that are stored together or not at all.

What was appended is kept until the end, each append with a producer's number: so that a transaction which a server
lost (it restarts, or a connection breaks at a bad moment) is made again as it was, and never stored twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from penstock.client.log import calls
from penstock.client.log.connection import Lane, Lanes, Patience
from penstock.client.log.types import ClientError, NoSuchTransaction, Payload, Unavailable
from penstock.slogd.slogd_pb2 import LogEntry

LOST = (NoSuchTransaction, Unavailable)
Staged = tuple[str, Sequence[LogEntry], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Doing:
    """What a transaction needs of a client: to make a call, to wait for the next try or raise, and producers."""

    call: Callable[[calls.Call[Any]], Any]
    pause: Callable[[Patience, ClientError], Any]
    patience: Callable[[], Patience]
    lanes: Lanes


class _Common:
    def __init__(self, doing: Doing, timeout: float | None) -> None:
        self._doing, self._timeout = doing, timeout
        self._id = ""
        self._staged: list[Staged] = []
        self._lanes: dict[str, Lane] = {}
        self.offsets: dict[str, list[int]] = {}
        """Of all entries by topic, in the order in which they were appended; once it is committed."""

    @property
    def id(self) -> str:
        """The transaction's id. Raises ValueError outside of the ``with``."""
        if not self._id:
            raise ValueError("the transaction is not open")
        return self._id

    def _stage(self, topic: str, entries: Sequence[LogEntry]) -> calls.Call[None]:
        if topic not in self._lanes:
            self._lanes[topic] = self._doing.lanes.take(topic)
        lane = self._lanes[topic]
        staged = (topic, entries, (lane.id, lane.sequence))
        call = calls.stage(self.id, *staged)
        lane.sequence += 1
        self._staged.append(staged)
        return call

    def _committed(self, offsets: dict[str, list[int]]) -> None:
        self._id, self.offsets = "", offsets
        for topic, lane in self._lanes.items():
            self._doing.lanes.give(topic, lane)


class Transaction(_Common):
    """Made by ``Log.transaction``, used in a ``with``: committed at its end, aborted by an exception."""

    def append(self, topic: str, payloads: Iterable[Payload], annotations: Mapping[str, str] | None = None) -> None:
        """Stage one entry for each payload. Raises Refused, Exhausted, TransactionTimedOut, Unavailable."""
        call = self._stage(topic, calls.log_entries(payloads, annotations))
        try:
            self._doing.call(call)
        except LOST:
            self._repeat()

    def _repeat(self) -> None:
        """Begin once more and stage all again. Raises Unavailable."""
        patience = self._doing.patience()
        while True:
            try:
                self._id = self._doing.call(calls.begin(self._timeout))
                for staged in self._staged:
                    self._doing.call(calls.stage(self._id, *staged))
                return
            except LOST as error:
                self._doing.pause(patience, error)

    def _commit(self) -> dict[str, list[int]]:
        patience = self._doing.patience()
        while True:
            try:
                return dict(self._doing.call(calls.commit(self.id)))
            except NoSuchTransaction as error:  # it is lost, or committed and the answer was lost
                self._doing.pause(patience, Unavailable(str(error)))
                self._repeat()

    def __enter__(self) -> Transaction:
        self._id = self._doing.call(calls.begin(self._timeout))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._committed(self._commit())
            return
        ended, self._id = self._id, ""
        with contextlib.suppress(ClientError):  # it ends by its time-out
            self._doing.call(calls.abort(ended))


class AsyncTransaction(_Common):
    """As ``Transaction``, in an ``async with``."""

    async def append(
        self, topic: str, payloads: Iterable[Payload], annotations: Mapping[str, str] | None = None
    ) -> None:
        """As ``Transaction.append``."""
        call = self._stage(topic, calls.log_entries(payloads, annotations))
        try:
            await self._do(call)
        except LOST:
            await self._repeat()

    async def _repeat(self) -> None:
        patience = self._doing.patience()
        while True:
            try:
                self._id = await self._do(calls.begin(self._timeout))
                for staged in self._staged:
                    await self._do(calls.stage(self._id, *staged))
                return
            except LOST as error:
                await self._doing.pause(patience, error)

    async def _commit(self) -> dict[str, list[int]]:
        patience = self._doing.patience()
        while True:
            try:
                return dict(await self._do(calls.commit(self.id)))
            except NoSuchTransaction as error:
                await self._doing.pause(patience, Unavailable(str(error)))
                await self._repeat()

    def _do(self, call: calls.Call[Any]) -> Awaitable[Any]:
        done: Awaitable[Any] = self._doing.call(call)
        return done

    async def __aenter__(self) -> AsyncTransaction:
        self._id = await self._do(calls.begin(self._timeout))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._committed(await self._commit())
            return
        ended, self._id = self._id, ""
        with contextlib.suppress(ClientError):
            await self._do(calls.abort(ended))
