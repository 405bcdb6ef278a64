"""Messages of the log read again over Arrow Flight, for a pipeline without access to the folder of topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.client import NoSuchTopic
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.offset_runs import Runs, is_inside
from penstock.landing.topics.from_flight import FlightStore
from penstock.landing.topics.topic_store import Range
from penstock.log.store.gaps import Gap
from penstock.log.store.provenance import PROVENANCE
from penstock.proof.reread.messages import Reread, suspects_in
from penstock.records import SCHEMA

RETRY_LIMIT_S = 5.0
"""Limit: the proof worker retries on its own and must be able to stop in between."""
_PLACE = ["source", "bucket"]
_COLUMNS = pa.schema([*(SCHEMA.field(name) for name in ("offset", "timestamp", "payload", "annotations")), *PROVENANCE])


class FlightRecords:
    """The topics of a log daemon. Each call raises ClientError; the proof is then retried as a whole."""

    def __init__(self, connection: DaemonConnection, event_types: Sequence[str] = ()) -> None:
        self._store = FlightStore(replace(connection, retry_for=min(connection.retry_for, RETRY_LIMIT_S)))
        self._event_types = tuple(event_types)

    def gaps(self, topic: str) -> list[Gap]:
        try:
            return self._store.gaps(topic)
        except NoSuchTopic:
            return []

    def end(self, topic: str) -> int:
        """Return 0: the ledger, at the daemon, knows the ends of the log's topics itself."""
        return 0

    def read_again(self, topic: str, runs: Runs) -> Reread:
        """Read the messages at these offsets; the daemon turns a corrupt batch into a gap when it is read."""
        reread = Reread()
        if len(runs):
            # One range from the first to the last offset: a request per run would cost a round trip each.
            for batch in self._store.read(Range(topic, int(runs[0, 0]), int(runs[-1, 1])), _COLUMNS):
                rows = batch.filter(pa.array(is_inside(batch.column("offset").to_numpy(), runs)))
                origins = [(row["source"], int(row["bucket"].timestamp())) for row in rows.select(_PLACE).to_pylist()]
                reread.suspects += suspects_in(rows, origins, self._event_types) if origins else ()
        return reread


def log_records(connection: DaemonConnection | None, event_types: Sequence[str] = ()) -> FlightRecords | None:
    """Return the records of a daemon; None for topics in a folder."""
    return None if connection is None else FlightRecords(connection, event_types)
