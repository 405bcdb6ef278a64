"""What programs import: senders, a logging handler, and clients that write and read the log.

Read ``sender`` (with ``send_many`` and ``sent_report``), ``logging_handler``, ``listener_commands``, then ``log/``.
Imports ``wire``, ``slogd``, ``records``, ``counts``, ``config`` and ``errors``; the log's clients bring gRPC and Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.client.logging_handler import PenstockHandler
from penstock.client.sender import TcpSender, UdpSender
from penstock.client.sent_report import LedgerReport, ReportFailed

if TYPE_CHECKING:
    from penstock.client.log import (
        AsyncBatcher,
        AsyncLog,
        AsyncTransaction,
        AtCursor,
        Batcher,
        ClientError,
        Compacted,
        Cursor,
        Damaged,
        Entry,
        Exhausted,
        Gap,
        Log,
        NoSuchTopic,
        NoSuchTransaction,
        NotAllowed,
        OutOfSequence,
        Page,
        Payload,
        Refused,
        Setting,
        Start,
        Swept,
        Tls,
        Topic,
        TopicExists,
        Transaction,
        TransactionTimedOut,
        Unavailable,
        Unsupported,
    )
else:

    def __getattr__(name: str) -> Any:
        """Import the log's clients when they are asked for: who only sends needs neither gRPC nor Arrow."""
        if name in (*__all__, "LogError"):
            return getattr(import_module("penstock.client.log"), name)
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
    "LedgerReport",
    "Log",
    "NoSuchTopic",
    "NoSuchTransaction",
    "NotAllowed",
    "OutOfSequence",
    "Page",
    "Payload",
    "PenstockHandler",
    "Refused",
    "ReportFailed",
    "Setting",
    "Start",
    "Swept",
    "TcpSender",
    "Tls",
    "Topic",
    "TopicExists",
    "Transaction",
    "TransactionTimedOut",
    "UdpSender",
    "Unavailable",
    "Unsupported",
]
