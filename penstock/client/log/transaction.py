"""Transactions: entries for any topics that are stored together or not at all.

The client keeps every append until the end, with its producer's number. It can therefore repeat a whole transaction
that the server lost (after a restart or a broken connection), and nothing is stored twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType

import pyarrow as pa

from penstock.client.log import calls
from penstock.client.log.blocking import Blocking, blocking, run
from penstock.client.log.connection import ProducerId
from penstock.client.log.retrying_caller import RetryingCaller
from penstock.client.log.types import ClientError, NoSuchTransaction, Payload, Unavailable

LOST = (NoSuchTransaction, Unavailable)
Staged = Callable[[str], calls.Call[None]]
"""The call that stages an append, in the transaction with this id."""


class AsyncTransaction:
    """Created by ``AsyncLog.transaction``, used in an ``async with``: committed at its end, aborted by an exception."""

    def __init__(self, caller: RetryingCaller, timeout: float | None) -> None:
        self._caller, self._timeout = caller, timeout
        self._id = ""
        self._staged: list[Staged] = []
        self._lanes: dict[str, ProducerId] = {}
        self.offsets: dict[str, list[int]] = {}
        """Offsets of all entries by topic, in the order of the appends; empty before the commit."""

    @property
    def id(self) -> str:
        """The transaction's id. Raises ValueError outside of the ``with``."""
        if not self._id:
            raise ValueError("the transaction is not open")
        return self._id

    async def append(
        self, topic: str, payloads: Iterable[Payload], annotations: Mapping[str, str] | None = None
    ) -> None:
        """Stage one entry per payload. Raises Refused, Exhausted, TransactionTimedOut, Unavailable."""
        entries = calls.log_entries(payloads, annotations)
        producer = self._next(topic)
        await self._stage(lambda transaction: calls.stage(transaction, topic, entries, producer))

    async def append_batch(self, topic: str, body: pa.RecordBatch, producer: tuple[str, int] | None = None) -> None:
        """Stage the rows of an Arrow batch with the columns of ``penstock.records.BODY``; otherwise like
        ``append``.

        ``producer``: the caller's own id and sequence number, as for ``Log.append_batch``. The commit skips rows that
        are already stored under it, and raises OutOfSequence if the stored rows differ.
        """
        number = producer or self._next(topic)
        await self._stage(lambda transaction: calls.stage_batch(transaction, topic, body, number))

    def _next(self, topic: str) -> tuple[str, int]:
        """Return a producer's number for the next append to a topic."""
        if topic not in self._lanes:
            self._lanes[topic] = self._caller.lanes.acquire(topic)
        lane = self._lanes[topic]
        # Each append of a transaction has a number of its own, so that a repeated commit skips what is stored.
        lane.sequence += 1
        return lane.id, lane.sequence - 1

    async def _stage(self, staged: Staged) -> None:
        call = staged(self.id)
        # Order: remembered before the call, so that `_repeat` also stages this append if the call fails.
        self._staged.append(staged)
        try:
            await self._caller.do(call)
        except LOST:
            await self._repeat()

    async def _repeat(self) -> None:
        """Begin a new transaction and stage every append again. Raises Unavailable."""
        patience = self._caller.patience()
        while True:
            try:
                await self._begin()
                for staged in self._staged:
                    await self._caller.do(staged(self._id))
                return
            except LOST as error:
                await self._caller.pause(patience, error)

    async def _begin(self) -> None:
        self._id = await self._caller.do(calls.begin(self._timeout))

    async def _commit(self) -> dict[str, list[int]]:
        patience = self._caller.patience()
        while True:
            try:
                return await self._caller.do(calls.commit(self.id))
            except NoSuchTransaction as error:
                # The transaction was lost, or committed and only the answer was lost. In the second case the numbers
                # of its appends make the repetition harmless.
                await self._caller.pause(patience, Unavailable(str(error)))
                await self._repeat()

    async def __aenter__(self) -> AsyncTransaction:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            # Order: the producers go back only after the commit. An outcome in doubt leaves their next numbers
            # uncertain.
            self.offsets = await self._commit()
            self._id = ""
            for topic, lane in self._lanes.items():
                self._caller.lanes.release(topic, lane)
            return
        transaction_id, self._id = self._id, ""
        # The abort may fail: the server then aborts the transaction after its time-out.
        with contextlib.suppress(ClientError):
            await self._caller.do(calls.abort(transaction_id))


class Transaction(Blocking[AsyncTransaction]):
    """Created by ``Log.transaction``, used in a ``with``: committed at its end, aborted by an exception."""

    append = blocking(AsyncTransaction.append)
    append_batch = blocking(AsyncTransaction.append_batch)

    @property
    def id(self) -> str:
        """The transaction's id. Raises ValueError outside of the ``with``."""
        return self._core.id

    @property
    def offsets(self) -> dict[str, list[int]]:
        """Offsets of all entries by topic, in the order of the appends; empty before the commit."""
        return self._core.offsets

    def __enter__(self) -> Transaction:
        run(self._core.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._core.__aexit__(kind, error, trace))
