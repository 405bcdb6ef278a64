"""The handler that takes messages to nowhere."""

from __future__ import annotations

import pyarrow as pa

from penstock.counts import Origin
from penstock.sinks.handler import Delivered


class Discard:
    """Counts, and that is all."""

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        """Take ``batch``."""
        return Delivered(batch.num_rows)
