"""Where the proof reads the log's messages again when it has no folder of them: the daemon's Flight server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.client import NoSuchTopic
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.proof.evidence import Offsets
from penstock.landing.proof.reread import Reread, Suspect, events_of_rows
from penstock.landing.topics.from_flight import FlightStore
from penstock.landing.topics.topic_store import Range
from penstock.log.store.gaps import Gap
from penstock.log.store.provenance import PROVENANCE
from penstock.records import SCHEMA

PATIENCE = 5.0
"""Seconds. Whoever proves tries again by itself, and must be able to stop."""
_ASKED = pa.schema([SCHEMA.field("offset"), SCHEMA.field("timestamp"), SCHEMA.field("payload"), *PROVENANCE])


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

    def again(self, topic: str, offsets: Offsets) -> Reread:
        """See Records. What is corrupt becomes a gap by being read."""
        found = Reread()
        if len(offsets):
            for batch in self._store.read(Range(topic, int(offsets[0]), int(offsets[-1]) + 1), _ASKED):
                found.suspects += self._suspects(batch, offsets)
        return found

    def _suspects(self, batch: pa.RecordBatch, offsets: Offsets) -> Iterator[Suspect]:
        wanted = np.isin(batch.column("offset").to_numpy(), offsets)
        rows = batch.filter(pa.array(wanted))
        if not rows.num_rows:
            return
        events = events_of_rows(rows, self._event_types)
        micros = rows["timestamp"].cast(pa.int64()).to_numpy().tolist()
        for row, event, at in zip(rows.select(["offset", "source", "bucket"]).to_pylist(), events, micros, strict=True):
            yield Suspect(row["offset"], (row["source"], int(row["bucket"].timestamp())), event, at)


def log_records(connection: DaemonConnection | None, event_types: Sequence[str] = ()) -> FlightRecords | None:
    """None where the topics are read from their folder."""
    return None if connection is None else FlightRecords(connection, event_types)
