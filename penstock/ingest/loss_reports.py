"""Log lines about a listener's losses: at most one per reason and minute."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from penstock.config import ListenerConfig
from penstock.counts import Counts, Name
from penstock.process.reporting import REPEAT_INTERVAL_S

REASONS: Mapping[str, str] = {
    Name.EMPTY: "empty datagrams",
    f"{Name.INVALID}version": "datagrams of an unknown version",
    f"{Name.INVALID}type": "datagrams of an unknown type",
    f"{Name.INVALID}header": "fragments with an invalid header",
    f"{Name.INVALID}unknown_command": "unknown commands",
    f"{Name.INVALID}command_refused": "commands from addresses outside commands_from",
    f"{Name.INVALID}network": "datagrams from networks outside allow_from",
    f"{Name.INVALID}slot": "unreadable datagrams in the slots of a stopped receiver",
    Name.FRAGMENT_INVALID: "fragments that do not fit the others of their message",
    Name.BAD_CHECKSUM: "messages with a wrong hash",
    f"{Name.INCOMPLETE}expired": "messages with missing fragments after defrag.expire_time",
    f"{Name.INCOMPLETE}evicted": "incomplete messages evicted (defrag.max_size)",
    f"{Name.INCOMPLETE}crash": "incomplete messages of a stopped receiver",
    f"{Name.REFUSED}oversize": "messages larger than defrag.max_size",
    f"{Name.REFUSED}compressed": "compressed messages (turn off the sender's compression, such as rsyslog's ZipLevel)",
    f"{Name.REFUSED}damaged": "messages that cannot be read or unpacked",
    Name.UNVERIFIED: "messages without a checksum from the slots of a stopped receiver",
    Name.LINE_OVERLONG: "lines longer than max_line",
    Name.SKIPPED_BYTES: "bytes of lines longer than max_line",
    Name.LINE_EVICTED: "unfinished lines evicted (max_unfinished, max_connections)",
    f"{Name.CONNECTION_CLOSED}limit": "connections closed to make room (max_unfinished, max_connections)",
    f"{Name.CONNECTION_CLOSED}idle": "idle connections closed (idle_timeout)",
    f"{Name.CONNECTION_CLOSED}network": "connections from networks outside allow_from",
    f"{Name.CONNECTION_CLOSED}tls": "connections closed without a TLS handshake (no TLS, or an untrusted certificate)",
    f"{Name.CONNECTION_CLOSED}name": "connections closed because of their certificate's name (client_names)",
    f"{Name.CONNECTION_CLOSED}protocol": "connections closed because their bytes do not fit the listener's codec",
    f"{Name.CONNECTION_CLOSED}key": "connections closed because of a wrong shared_key",
    Name.KERNEL_DROPPED: "datagrams dropped by the kernel, because the receive buffer was full (so_rcvbuf)",
}
"""Counts that are reported, with their text."""
FORWARD_OVERSIZE = "records larger than max_line, or requests larger than 16 MiB, max_body or max_messages"
"""Text of ``refused.oversize`` for Fluent's forward protocol."""
REPORT_INTERVAL_S = REPEAT_INTERVAL_S + 1
"""Interval per reason; a shorter one would let the filter of repeated lines suppress an equal number."""
_LOGGER = logging.getLogger(__name__)


def oversize_text(listener: ListenerConfig) -> str:
    """Return the text of ``refused.oversize`` with the key of the limit that messages of this listener have."""
    if listener.codec == "forward":
        return FORWARD_OVERSIZE
    return f"messages larger than {'defrag.max_size' if listener.takes_datagrams else 'max_line'}"


class LossReports:
    """Sums of a listener's losses by reason, logged when due. Used by one thread."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        limits: Mapping[str, int] = MappingProxyType({}),
        oversize: str = REASONS[f"{Name.REFUSED}oversize"],
    ) -> None:
        """Create the reports.

        ``limits``: bytes by the key that a text of ``REASONS`` ends with. ``oversize``: text of ``refused.oversize``,
        whose limit depends on the protocol.
        """
        self._clock, self._limits = clock, limits
        self._texts = {**REASONS, f"{Name.REFUSED}oversize": oversize}
        self._new = Counts()
        self._reported_at: dict[str, float] = {}

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of a round."""
        for reason in REASONS:
            if count := counts.get(reason):
                self._new[reason] += count

    def report(self) -> None:
        """Log new losses, each reason once a minute; called often."""
        now = self._clock()
        # Limit: a flood of bad input must not become a flood of log lines.
        for reason, count in list(self._new.items()):
            if now - self._reported_at.get(reason, -math.inf) >= REPORT_INTERVAL_S:
                self._reported_at[reason] = now
                del self._new[reason]
                _LOGGER.warning("%s%s: %d", self._texts[reason], self._limit_of(reason), count)

    def _limit_of(self, reason: str) -> str:
        limit = self._limits.get(self._texts[reason].split()[-1])
        return "" if limit is None else f" ({limit} bytes)"
