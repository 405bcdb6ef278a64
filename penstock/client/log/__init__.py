"""The client of the log daemon: ``Log`` blocks, ``AsyncLog`` is for asyncio; with their types and errors.

Read ``types``, ``operations`` with ``admin`` and ``arrow_reads`` (the methods of both clients, written once),
``async_client`` and ``client``; then ``retrying_caller``, ``channels``, ``connection``, ``calls`` and ``admin_calls``
(requests and answers without I/O), ``transaction``, ``batching/``, ``blocking`` and ``flight_reads``. Imports
``slogd``, ``counts``, ``records``, ``config`` and ``errors``.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    Setting,
    Start,
    StoredAlready,
    Swept,
    Tls,
    Topic,
    TopicExists,
    TransactionTimedOut,
    Unavailable,
    Unsupported,
)

if TYPE_CHECKING:
    from penstock.client.log.async_client import AsyncLog
    from penstock.client.log.batching.async_batcher import AsyncBatcher
    from penstock.client.log.batching.batcher import Batcher
    from penstock.client.log.client import Log
    from penstock.client.log.transaction import AsyncTransaction, Transaction
else:
    _MODULES = {
        "AsyncBatcher": "batching.async_batcher",
        "AsyncLog": "async_client",
        "AsyncTransaction": "transaction",
        "Batcher": "batching.batcher",
        "Log": "client",
        "Transaction": "transaction",
    }

    def __getattr__(name: str) -> Any:
        """Import a client on first use: a program that needs only the types loads neither gRPC nor Arrow."""
        if name == "LogError":
            warnings.warn("LogError of penstock.client is now ClientError", DeprecationWarning, stacklevel=2)
            return ClientError
        if name in _MODULES:
            return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AsyncBatcher",
    "AsyncLog",
    "AsyncTransaction",
    "AtCursor",
    "Batcher",
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
    "Setting",
    "Start",
    "StoredAlready",
    "Swept",
    "Tls",
    "Topic",
    "TopicExists",
    "Transaction",
    "TransactionTimedOut",
    "Unavailable",
    "Unsupported",
]
