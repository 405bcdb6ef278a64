"""Refused batches of producers that want no answers (``acks=0``): counted by reason, and reported in the log.

Nothing else shows them: there is no answer, and the end of the connection shows the first one only.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

from penstock.log import Appended
from penstock.server.event_loop import LoopCalls
from penstock.server.kafka.calls import Call
from penstock.server.kafka.schema.messages import Values

_LOGGER = logging.getLogger(__name__)
REPORT_INTERVAL_S = 10.0


class UnansweredRefusals:
    """Counts refused batches by the name of their error in ``counts``. Owned by the event loop of ``calls``."""

    def __init__(self, counts: Counter[str], calls: LoopCalls) -> None:
        self._counts, self._calls = counts, calls
        self._unreported, self._last_refusal = 0, ""
        self._has_reported = False
        """Whether there was a report in the last REPORT_INTERVAL_S."""

    def watch(self, call: Call, topic: str, stored: Future[Appended], error: Callable[[], Values | None]) -> None:
        """Count a queued batch once it is refused; ``error`` returns its fields then, else None. Thread-safe."""
        # Not when its answer is due: the first refusal ends the connection, and the answers behind it are never built.
        stored.add_done_callback(lambda _: self._calls.soon(self._count_if_refused, call, topic, error))

    def add(self, call: Call, topic: str, error: Values) -> None:
        """Count a batch that is refused with the fields of ``error``. Thread-safe."""
        self._calls.soon(self._count, call, topic, error)

    def _count_if_refused(self, call: Call, topic: str, find_error: Callable[[], Values | None]) -> None:
        if (error := find_error()) is not None:
            self._count(call, topic, error)

    def _count(self, call: Call, topic: str, error: Values) -> None:
        self._counts[error["error_code"].name] += 1
        self._unreported += 1
        # Limit: topic, client and reason come from the client and have any length.
        reason = error.get("error_message") or error["error_code"].name
        self._last_refusal = f"topic {topic[:100]!r}, client {call.client[:100]!r} of {call.host}: {reason[:300]}"
        if not self._has_reported:
            self.report()

    def report(self) -> None:
        """Log the refusals since the last report, if there are any, and again after REPORT_INTERVAL_S."""
        self._has_reported = bool(self._unreported)
        if self._unreported:
            text = "kafka: batches of producers with acks=0 lost: %d since the last line; last: %s"
            _LOGGER.warning(text, self._unreported, self._last_refusal)
            self._unreported = 0
            # Limit: one line in a while, however many batches are refused; none of them stays without a line.
            self._calls.loop.call_later(REPORT_INTERVAL_S, self.report)
