"""What a handler is to the forwarder that runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from penstock.counts import Origin
from penstock.errors import PenstockError


class BadSettings(PenstockError, ValueError):
    """A handler cannot be made with its settings; the text has a line for each bad key."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of the messages of one batch: together they are its rows.

    ``dropped`` are those that the handler's settings keep from going anywhere.
    """

    delivered: int
    failed: int = 0
    dropped: int = 0


@runtime_checkable
class Handler(Protocol):
    """Takes messages, a batch at a time, in their order.

    It may have ``close()``, called before its process ends, and ``stat()``, a JSON-ready mapping that STAT
    shows. Its own process may hang or die: the same batch comes again then, a few times.
    """

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        """Take ``batch`` (schema ``records.BODY``); ``origin`` says from which listener and minute it is.

        Returns when its messages need not come again. An exception has the whole batch come again, a few times.
        """
        ...
