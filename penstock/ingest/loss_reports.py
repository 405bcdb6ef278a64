"""Reporting what a listener could not take: a line for each reason, once a minute, however much it is."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

from penstock.counts import Counts, Name
from penstock.process.reporting import REPEAT_INTERVAL_S

REASONS: Mapping[str, str] = {
    Name.EMPTY: "empty datagrams",
    f"{Name.INVALID}version": "datagrams of an unknown version",
    f"{Name.INVALID}type": "datagrams of an unknown type",
    f"{Name.INVALID}header": "fragments with an invalid header",
    f"{Name.INVALID}unknown_command": "unknown commands",
    f"{Name.INVALID}command_refused": "commands from where commands_from does not allow them",
    f"{Name.INVALID}network": "datagrams from networks that may not send (allow_from)",
    f"{Name.INVALID}slot": "datagrams in the slots of a receiver that ended, which cannot be read",
    Name.FRAGMENT_INVALID: "fragments that do not fit the others of their message",
    Name.BAD_CHECKSUM: "messages whose hash is wrong",
    f"{Name.INCOMPLETE}expired": "messages of which fragments are missing (defrag.expire_time has passed)",
    f"{Name.INCOMPLETE}evicted": "incomplete messages that had to make room (defrag.max_size)",
    f"{Name.INCOMPLETE}crash": "incomplete messages of a receiver that ended",
    f"{Name.REFUSED}oversize": "messages larger than defrag.max_size",
    f"{Name.REFUSED}compressed": "compressed messages (turn the compression of their sender off: rsyslog's ZipLevel)",
    f"{Name.REFUSED}damaged": "messages that cannot be read or unpacked",
    Name.UNVERIFIED: "messages from the slots of a receiver that ended, which no checksum vouches for",
    Name.LINE_OVERLONG: "lines longer than max_line",
    Name.SKIPPED_BYTES: "bytes of lines longer than max_line",
    Name.LINE_EVICTED: "unfinished lines that had to make room (max_unfinished, max_connections)",
    f"{Name.CONNECTION_CLOSED}limit": "connections closed to make room (max_unfinished, max_connections)",
    f"{Name.CONNECTION_CLOSED}idle": "connections closed for their silence (idle_timeout)",
    f"{Name.CONNECTION_CLOSED}network": "connections closed as they come from networks that may not send (allow_from)",
    f"{Name.CONNECTION_CLOSED}tls": "connections closed without a TLS handshake (no TLS, or a certificate not trusted)",
    f"{Name.CONNECTION_CLOSED}name": "connections closed for their certificate's name (client_names)",
    f"{Name.CONNECTION_CLOSED}protocol": "connections closed as what came is none of the listener's codec",
    f"{Name.CONNECTION_CLOSED}key": "connections closed as their sender does not know shared_key",
    Name.KERNEL_DROPPED: "datagrams that the kernel dropped for want of room (so_rcvbuf)",
}
"""What is reported, and how it is called."""
REPORT_EVERY = REPEAT_INTERVAL_S + 1
"""Seconds; sooner, the same number would be held back as a repeat."""
_LOGGER = logging.getLogger(__name__)


class LossReports:
    """Adds up what a listener lost by reason, and reports what is new of each when that is due."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._new = Counts()
        self._reported_at: dict[str, float] = {}

    def add(self, counts: Mapping[str, int]) -> None:
        """Take note of a round's counts."""
        for reason in REASONS:
            if count := counts.get(reason):
                self._new[reason] += count

    def report(self) -> None:
        """Reports what was not reported yet, of each reason once a minute; called often."""
        now = self._clock()
        for reason, count in list(self._new.items()):
            if now - self._reported_at.get(reason, -math.inf) >= REPORT_EVERY:
                self._reported_at[reason] = now
                del self._new[reason]
                _LOGGER.warning("%s: %d", REASONS[reason], count)
