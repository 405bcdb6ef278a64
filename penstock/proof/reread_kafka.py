"""The records of Kafka that are not in the table, read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException

from penstock.counts import SourceBucket
from penstock.kafka.client.broker_answers import end_offset
from penstock.kafka.large.safe_offsets import TopicAndPartition
from penstock.landing.from_kafka.range_assembler import RangeAssembler
from penstock.landing.from_kafka.read_back import LookBack, consumer, read
from penstock.landing.from_kafka.rows import SOURCE, rows_of
from penstock.landing.journal import PARTITION_MARK
from penstock.landing.offset_runs import Runs, inside, outside, runs_of
from penstock.log.store.gaps import Gap
from penstock.proof.reread import Reread, Suspect, suspects_in

ABSENT = "absent"
"""Reason of a gap: control records, aborted transactions, what was compacted or has expired. Kafka does not say."""
FAR = 1000
"""Offsets between two that are asked for, from which on reading what lies between would cost more."""


class KafkaRecords:
    """The partitions of Kafka (``events/0``). ``kafka``: properties of the client."""

    def __init__(self, kafka: Mapping[str, str], gap: int, event_types: Sequence[str] = ()) -> None:
        self._kafka, self._gap, self._event_types = dict(kafka), gap, tuple(event_types)

    def gaps(self, topic: str) -> list[Gap]:
        """None is known before it is looked for."""
        return []

    def end(self, topic: str) -> int:
        """The partition's end; 0 where Kafka does not say it now."""
        name, _, partition = topic.rpartition(PARTITION_MARK)
        try:
            with consumer(self._kafka) as client:
                return end_offset(client, (name, int(partition)), 5)
        except KafkaException:
            return 0

    def again(self, topic: str, runs: Runs) -> Reread:
        """Whole messages among these records are suspects; the others are segments of messages."""
        name, _, partition = topic.rpartition(PARTITION_MARK)
        place = (name, int(partition))
        found, places = Reread(), {}
        assembler = RangeAssembler(LookBack(self._kafka, self._gap), self._gap)
        for batch in self._read(place, runs):
            places.update(_places(batch))
            for rows in assembler.take(batch):
                found.suspects += self._suspects(rows)
        for rows in assembler.finish():
            found.suspects += self._suspects(rows)
        messages = {suspect.offset for suspect in found.suspects}
        found.segments = {offset: origin for offset, origin in places.items() if offset not in messages}
        absent = outside(runs, runs_of(np.array(sorted(places), np.int64)))
        found.gone = [Gap(a, b, ABSENT, {SOURCE: {0: b - a}}) for a, b in absent.tolist()]
        return found

    def _read(self, place: TopicAndPartition, runs: Runs) -> Iterator[pa.RecordBatch]:
        """The records at these offsets that there are."""
        far = np.flatnonzero(runs[1:, 0] - runs[:-1, 1] >= FAR) + 1
        with consumer(self._kafka) as client:
            for part in np.split(runs, far) if len(runs) else ():
                for batch in read(client, place, int(part[0, 0]), int(part[-1, 1])):
                    yield batch.filter(pa.array(inside(batch.column("offset").to_numpy(), part)))

    def _suspects(self, rows: pa.RecordBatch) -> Iterator[Suspect]:
        origins = _places(rows)
        return suspects_in(rows, [origins[offset] for offset in rows["offset"].to_numpy().tolist()], self._event_types)


def _places(records: pa.RecordBatch) -> dict[int, SourceBucket]:
    """Source and bucket of each offset."""
    rows = records if "bucket" in records.schema.names else rows_of(records)
    buckets = rows.column("bucket").cast(pa.int64()).to_numpy() // 1_000_000
    return {o: (SOURCE, b) for o, b in zip(rows.column("offset").to_numpy().tolist(), buckets.tolist(), strict=True)}
