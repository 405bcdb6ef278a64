"""Public API for programs: senders, a logging handler, and clients that write and read the log.

Read ``sender`` (with ``send_many``), ``logging_handler``, ``log/``, ``tail/`` (log files), then
``relay/`` (topics to another Penstock). Imports ``files``, ``wire``, ``slogd``, ``records``, ``counts``, ``config``,
``process`` and ``errors``; the log's clients bring
gRPC and Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.client import log
from penstock.client.logging_handler import PenstockHandler
from penstock.client.sender import LedgerReport, TcpSender, UdpSender
from penstock.process.ledger_posts import ReportFailed

if TYPE_CHECKING:
    from penstock.client.log import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """Import a name of ``log`` on first use: a program that only sends loads neither gRPC nor Arrow."""
        return getattr(log, name)


__all__ = ["LedgerReport", "PenstockHandler", "ReportFailed", "TcpSender", "UdpSender"]
__all__ += log.__all__
