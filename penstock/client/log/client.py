"""A client of the log: append, read, follow, look after topics.

>>> with Log("127.0.0.1:8845") as log:
...     log.append("events", [b"one", b"two"], annotations={"userid": "5"})
...     for entry in log.follow("events", "earliest", filter="k:userid v:5"):
...         print(entry.offset, entry.payload)
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from penstock.client.log import calls
from penstock.client.log.batching.batcher import Batcher
from penstock.client.log.blocking import Blocking, blocking, iterate, iterating, run
from penstock.client.log.channels import BlockingChannel
from penstock.client.log.connection import RETRY_FOR, TIMEOUT, Endpoint
from penstock.client.log.operations import Operations
from penstock.client.log.retrying_caller import OnRetry, RetryingCaller
from penstock.client.log.transaction import AsyncTransaction, Transaction
from penstock.client.log.types import Entry, Page, Start, Tls


class Log(Blocking[Operations]):
    """The topics of a log daemon at ``rpc_address`` (``host:port``). Usable from several threads.

    ``timeout``: limit of a call in seconds. ``retry_for``: seconds for which a call is retried while the daemon is
    away; a retry stores nothing twice. ``on_retry`` is called if that takes longer than a second. ``token``: a bearer
    token. ``tls``: the trusted authorities, if the daemon speaks TLS. ``flight``: the daemon's Flight address;
    ``batches`` and ``table`` read over it. ``watched``: give up a connection that carries nothing during a call, as
    after a partition, within 15 seconds; a call may then take a second longer for each 8 KiB that it sends. The methods
    are documented in ``Operations``.
    """

    def __init__(
        self,
        rpc_address: str,
        *,
        timeout: float = TIMEOUT,
        retry_for: float = RETRY_FOR,
        token: str | None = None,
        tls: Tls | None = None,
        on_retry: OnRetry | None = None,
        flight: str | None = None,
        watched: bool = False,
    ) -> None:
        link = Endpoint(rpc_address, token, tls, flight, watched)
        self._caller = RetryingCaller(BlockingChannel(link), link, timeout, retry_for, on_retry)
        super().__init__(Operations(self._caller))

    append = blocking(Operations.append)
    append_entries = blocking(Operations.append_entries)
    append_batch = blocking(Operations.append_batch)
    append_batches = blocking(Operations.append_batches)
    read = blocking(Operations.read)
    pages = iterating(Operations.pages)
    batches = iterating(Operations.batches)
    table = blocking(Operations.table)
    topics = blocking(Operations.topics)
    describe = blocking(Operations.describe)
    create_topic = blocking(Operations.create_topic)
    configure_topic = blocking(Operations.configure_topic)
    delete_topic = blocking(Operations.delete_topic)
    cursors = blocking(Operations.cursors)
    commit_cursor = blocking(Operations.commit_cursor)
    remove_cursor = blocking(Operations.remove_cursor)
    verify = blocking(Operations.verify)
    compact = blocking(Operations.compact)
    cleanup = blocking(Operations.cleanup)
    post_ledger = blocking(Operations.post_ledger)
    check = blocking(Operations.check)
    close = blocking(Operations.close)

    def follow(self, topic: str, offset: Start = "latest", *, filter: str | None = None) -> Iterator[Entry]:
        """Iterate over the entries from ``offset``, then over new ones, without end; close the iterator to stop.

        The start is fixed by this call. A broken connection is restored, and the iteration continues at its offset.
        Raises NoSuchTopic, Refused, Unavailable.
        """
        return (entry for page in self.follow_pages(topic, offset, filter=filter) for entry in page.entries)

    def follow_pages(self, topic: str, offset: Start = "latest", *, filter: str | None = None) -> Iterator[Page]:
        """Iterate like ``follow``, page by page; with a filter some pages are empty."""
        calls.logs_request(topic, offset)  # an invalid start raises here, not at the first entry
        start = run(self._caller.resolve_latest(topic, offset))
        return iterate(self._core.follow_pages(topic, start, filter=filter))

    def batcher(self, topic: str, *, max_entries: int = 1000, linger: float = 0.05) -> Batcher:
        """Return a batcher: it appends single payloads in batches of at most ``max_entries``, after at most
        ``linger`` seconds.

        >>> with log.batcher("events") as batcher: ... batcher.append(b"one")
        """
        return Batcher(lambda entries: self.append_entries(topic, entries), max_entries, linger)

    def transaction(self, timeout: float | None = None) -> Transaction:
        """Return a transaction: its appends, to any topics, are stored together when the block ends without an
        exception.

        >>> with log.transaction() as transaction: ... transaction.append("orders", [b"..."]) ...
        transaction.append("mails", [b"..."]) >>> transaction.offsets["orders"] [0]

        ``timeout``: seconds after which the daemon aborts it; None is the daemon's configured time-out.
        """
        return Transaction(AsyncTransaction(self._caller, timeout))

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
