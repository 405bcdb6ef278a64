"""Where the proof reads the log's messages again when it has no folder of them: the daemon's Flight server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.client import NoSuchTopic
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.offset_runs import Runs, inside
from penstock.landing.topics.from_flight import FlightStore
from penstock.landing.topics.topic_store import Range
from penstock.log.store.gaps import Gap
from penstock.log.store.provenance import PROVENANCE
from penstock.proof.reread import Reread, suspects_in
from penstock.records import SCHEMA

PATIENCE = 5.0
"""Seconds. Whoever proves tries again by itself, and must be able to stop."""
_PLACE = ["source", "bucket"]
_ASKED = pa.schema([*(SCHEMA.field(one) for one in ("offset", "timestamp", "payload", "annotations")), *PROVENANCE])


class FlightRecords:
    """The topics of a log daemon. All calls raise ClientError: then nothing is decided, and it is to be asked again."""

    def __init__(self, connection: DaemonConnection, event_types: Sequence[str] = ()) -> None:
        self._store = FlightStore(replace(connection, retry_for=min(connection.retry_for, PATIENCE)))
        self._event_types = tuple(event_types)

    def gaps(self, topic: str) -> list[Gap]:
        try:
            return self._store.gaps(topic)
        except NoSuchTopic:
            return []

    def end(self, topic: str) -> int:
        return 0

    def again(self, topic: str, runs: Runs) -> Reread:
        """See Records. What is corrupt becomes a gap by being read."""
        found = Reread()
        if len(runs):
            for batch in self._store.read(Range(topic, int(runs[0, 0]), int(runs[-1, 1])), _ASKED):
                rows = batch.filter(pa.array(inside(batch.column("offset").to_numpy(), runs)))
                places = [(row["source"], int(row["bucket"].timestamp())) for row in rows.select(_PLACE).to_pylist()]
                found.suspects += suspects_in(rows, places, self._event_types) if places else ()
        return found


def log_records(connection: DaemonConnection | None, event_types: Sequence[str] = ()) -> FlightRecords | None:
    """None where the topics are read from their folder."""
    return None if connection is None else FlightRecords(connection, event_types)
