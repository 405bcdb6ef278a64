"""A client of the log: append, read, follow, look after topics.

>>> with Log("127.0.0.1:8845") as log:
...     log.append("events", [b"one", b"two"], annotations={"userid": "5"})
...     for entry in log.follow("events", "earliest", filter="k:userid v:5"):
...         print(entry.offset, entry.payload)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc
import pyarrow as pa

from penstock.client.log import admin_calls as admin
from penstock.client.log import calls
from penstock.client.log.admin import Administration
from penstock.client.log.arrow_reads import ArrowReading
from penstock.client.log.batcher import Batcher
from penstock.client.log.calls import PAGE, Call
from penstock.client.log.connection import RETRY_FOR, SERVICE, TIMEOUT, Lanes, Link, Patience, as_it_is
from penstock.client.log.transaction import Doing, Transaction
from penstock.client.log.types import (
    AtCursor,
    ClientError,
    Compacted,
    Cursor,
    Damaged,
    Entry,
    Exhausted,
    Gap,
    NoSuchTopic,
    NoSuchTransaction,
    NotAllowed,
    OutOfSequence,
    Page,
    Payload,
    Refused,
    Start,
    Swept,
    Tls,
    Topic,
    TopicExists,
    TransactionTimedOut,
    Unavailable,
    Unsupported,
)
from penstock.slogd.slogd_pb2 import LogEntry

__all__ = [
    "AtCursor",
    "ClientError",
    "Compacted",
    "Cursor",
    "Damaged",
    "Entry",
    "Exhausted",
    "Gap",
    "Log",
    "NoSuchTopic",
    "NoSuchTransaction",
    "NotAllowed",
    "OutOfSequence",
    "Page",
    "Payload",
    "Refused",
    "Start",
    "Swept",
    "Tls",
    "Topic",
    "TopicExists",
    "TransactionTimedOut",
    "Unavailable",
    "Unsupported",
]
T = TypeVar("T")


class Log(Administration, ArrowReading):
    """The topics of a log daemon at ``rpc_address`` (``host:port``). Usable from several threads.

    A call may take ``timeout`` seconds; while the daemon is away it is made again for ``retry_for`` seconds. Nothing
    is stored twice by that. ``on_retry`` hears of it when it takes longer than a second. ``token``: a bearer token.
    ``tls``: how to trust the daemon, where it speaks TLS. ``flight``: the daemon's Flight address, over
    which ``batches`` and ``table`` read where it is given.
    """

    def __init__(
        self,
        rpc_address: str,
        *,
        timeout: float = TIMEOUT,
        retry_for: float = RETRY_FOR,
        token: str | None = None,
        tls: Tls | None = None,
        on_retry: Callable[[ClientError], None] | None = None,
        flight: str | None = None,
    ) -> None:
        self._link = Link(rpc_address, token, tls, flight)
        credentials, options = self._link.credentials, self._link.options
        self._channel = (
            grpc.secure_channel(rpc_address, credentials, options)
            if credentials
            else grpc.insecure_channel(rpc_address, options)
        )
        self._timeout, self._retry_for, self._on_retry = timeout, retry_for, on_retry
        self._lanes = Lanes()
        self._closed = False

    def append(
        self, topic: str, payloads: Iterable[Payload], annotations: Mapping[str, str] | None = None
    ) -> Sequence[int]:
        """Append one entry for each payload, all or none; their offsets, when they are as durable as the topic says.

        ``annotations`` go with each of them. Raises Refused, Exhausted, Unavailable.
        """
        return self.append_entries(topic, calls.log_entries(payloads, annotations))

    def append_entries(self, topic: str, entries: Sequence[LogEntry]) -> list[int]:
        """As ``append``, with entries as the API has them."""
        if not entries:
            return self._do(calls.append(topic, entries))
        return self._append(topic, lambda producer: calls.append(topic, entries, producer))

    def append_batch(self, topic: str, body: pa.RecordBatch, producer: tuple[str, int] | None = None) -> list[int]:
        """As ``append``, the rows of an Arrow batch with the columns of ``penstock.records.BODY``.

        ``producer``: an id and a sequence number (from 0, one more each time) of the caller's own, so that what it
        appends again after a crash of its own is not stored twice either.
        """
        if producer is not None:
            return self._do(calls.append_batch(topic, body, producer))
        return self._append(topic, lambda producer: calls.append_batch(topic, body, producer))

    def _append(self, topic: str, call: Callable[[tuple[str, int]], Call[list[int]]]) -> list[int]:
        try:
            with self._lanes.producer(topic) as producer:
                return self._do(call(producer))
        except OutOfSequence:  # the server lost what it knew of us; it has stored nothing of this
            self._lanes.forget(topic)
            with self._lanes.producer(topic) as producer:
                return self._do(call(producer))

    def batcher(self, topic: str, *, max_entries: int = 1000, linger: float = 0.05) -> Batcher:
        """Appends single payloads in batches, of at most ``max_entries``, none waiting longer than ``linger`` seconds.

        >>> with log.batcher("events") as batcher:
        ...     batcher.append(b"one")
        """
        return Batcher(lambda entries: self.append_entries(topic, entries), max_entries, linger)

    def transaction(self, timeout: float | None = None) -> Transaction:
        """All that is appended in it, to any topics, is stored when it ends without an exception, or nothing of it.

        >>> with log.transaction() as transaction:
        ...     transaction.append("orders", [b"..."])
        ...     transaction.append("mails", [b"..."])
        >>> transaction.offsets["orders"]
        [0]

        ``timeout``: seconds after which the daemon aborts it; None is what the daemon is configured with.
        """
        doing = Doing(self._do, self._pause, lambda: Patience(self._retry_for, self._on_retry), self._lanes)
        return Transaction(doing, timeout)

    def read(
        self, topic: str, offset: Start = "earliest", max_messages: int = PAGE, *, filter: str | None = None
    ) -> list[Entry]:
        """Up to ``max_messages`` entries from ``offset`` on; with ``"latest"`` the last ones.

        Fewer only at the end of the topic. ``filter``: only entries whose annotations match. Raises NoSuchTopic,
        Refused, Unavailable.
        """
        entries: list[Entry] = []
        start = offset
        while len(entries) < max_messages:
            page = self._do(calls.get(topic, start, max_messages - len(entries), filter))
            if page is None:
                break
            entries += page.entries
            start = page.next
        return entries

    def pages(self, topic: str, offset: Start = "earliest", *, filter: str | None = None) -> Iterator[Page]:
        """Entries from ``offset`` to the end of the topic, as they come. Raises as ``read``."""
        start = self._settled(topic, offset)
        while (page := self._do(calls.get(topic, start, PAGE, filter))) is not None:
            yield page
            start = page.next

    def follow(self, topic: str, offset: Start = "latest", *, filter: str | None = None) -> Iterator[Entry]:
        """Entries from ``offset`` on, then those that are appended, without end; close the iterator to leave.

        Where it starts is settled by this call. A connection that breaks is made again, and goes on where it was.
        Raises NoSuchTopic, Refused, Unavailable.
        """
        return (entry for page in self.follow_pages(topic, offset, filter=filter) for entry in page.entries)

    def follow_pages(self, topic: str, offset: Start = "latest", *, filter: str | None = None) -> Iterator[Page]:
        """As ``follow``, the entries as they come together; with a filter also pages without any."""
        calls.logs_request(topic, offset)  # a start that is none
        return self._follow(topic, self._settled(topic, offset), filter)

    def _settled(self, topic: str, offset: Start) -> Start:
        """``latest`` as an offset, else what is appended while a connection is made again would be left out."""
        if offset != "latest":
            return offset
        try:
            return self._do(admin.describe([topic]))[0].end
        except Unsupported:
            return offset

    def _follow(self, topic: str, start: Start, filter: str | None) -> Iterator[Page]:
        patience = Patience(self._retry_for, self._on_retry)
        stream = self._channel.unary_stream(f"{SERVICE}StreamLogs", as_it_is, as_it_is)
        while True:
            call = self._invoke(stream, calls.logs_request(topic, start, filter=filter))
            try:
                call.initial_metadata()  # the server sends it as soon as it serves us
                if call.is_active():
                    patience.reset()
                for data in call:
                    if (page := calls.page(data, start)) is not None:
                        yield page
                        start = page.next
            except grpc.RpcError as error:
                self._pause(patience, self._typed(error))
            finally:
                call.cancel()

    def check(self) -> None:
        """Whether the daemon answers, now. Raises Unavailable, NotAllowed."""
        self._once(calls.names(), Patience(0))

    def close(self) -> None:
        """Close the connection; calls under way end with Unavailable."""
        self._closed = True
        self._channel.close()

    def _do(self, call: Call[T]) -> T:
        """The answer of a call, made again while the server is away if that does no harm."""
        return self._once(call, Patience(self._retry_for if call.again else 0, self._on_retry))

    def _once(self, call: Call[T], patience: Patience) -> T:
        method = self._channel.unary_unary(SERVICE + call.method, as_it_is, as_it_is)
        while True:
            try:
                answer = self._invoke(method, call.request, call.timeout or self._timeout)
            except grpc.RpcError as error:
                self._pause(patience, self._typed(error, call))
            else:
                return call.take(answer)

    def _invoke(self, method: Callable[..., Any], request: bytes, timeout: float | None = None) -> Any:
        try:
            return method(request, timeout=timeout, metadata=self._link.metadata)
        except ValueError as error:  # what gRPC raises on a closed channel
            raise Unavailable("the client was closed") from error

    def _pause(self, patience: Patience, error: ClientError) -> None:
        """Wait for the next try, or raise the error."""
        pause = None if self._closed else patience.pause(error)
        if pause is None:
            raise error from None
        time.sleep(pause)

    def _typed(self, error: grpc.RpcError, call: Call[Any] | None = None) -> ClientError:
        if not isinstance(error, grpc.Call):
            return ClientError(str(error))
        return calls.failure(error.code(), error.details() or "", self._link.address, call)

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
