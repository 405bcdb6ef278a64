"""The interface between a handler and the forwarder that runs it, and the handler ``discard``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from penstock.counts import Origin
from penstock.errors import PenstockError


class BadSettings(PenstockError, ValueError):
    """A handler cannot be created with its settings; the text has a line for each bad key."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The outcome of a batch; the three counts add up to its rows.

    ``dropped`` are messages that the handler's settings exclude from delivery.
    """

    delivered: int
    failed: int = 0
    dropped: int = 0


@runtime_checkable
class Handler(Protocol):
    """A destination of messages, called with one batch at a time, in order.

    It may have ``close()``, called before its process ends, and ``stat()``, which returns a JSON-ready mapping for
    STAT. Its process may hang or die: then the same batch is delivered again, up to a limit.

    If it has an attribute ``on_wait``, its forwarder sets it to a function without arguments. A delivery that waits
    longer than 3 s calls it every second, so that the forwarder does not count as silent.
    """

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        """Deliver ``batch`` (schema ``records.BODY``); ``origin`` is its listener and minute.

        Return when its messages need not be delivered again. After an exception the whole batch is delivered again, up
        to a limit.
        """
        ...


class Discard:
    """A handler that counts messages and drops them."""

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        """Report ``batch`` as delivered."""
        return Delivered(batch.num_rows)
