"""What programs use to send messages, and to write and read the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.client.logging_handler import PenstockHandler
from penstock.client.sender import TcpSender, UdpSender
from penstock.client.sent_report import LedgerReport, ReportFailed

if TYPE_CHECKING:
    from penstock.client.log.async_client import AsyncLog
    from penstock.client.log.client import Log

__all__ = ["AsyncLog", "LedgerReport", "Log", "PenstockHandler", "ReportFailed", "TcpSender", "UdpSender"]


def __getattr__(name: str) -> Any:
    """The clients of the log are imported when they are asked for: who only sends needs neither gRPC nor Arrow."""
    if name == "Log":
        from penstock.client.log.client import Log

        return Log
    if name == "AsyncLog":
        from penstock.client.log.async_client import AsyncLog

        return AsyncLog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
