"""Records of Kafka that are not in the table, read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException

from penstock.counts import Name, SourceBucket
from penstock.kafka.absent_offsets import Absence, AbsentOffsets, ClassifiedRange
from penstock.kafka.client.broker_answers import end_offset
from penstock.kafka.errors import KafkaAway
from penstock.kafka.large.safe_offsets import TopicAndPartition
from penstock.kafka.origin_header import NO_ORIGIN, OriginReader
from penstock.landing.from_kafka.range_assembler import RangeAssembler
from penstock.landing.from_kafka.read_back import LookBack, consumer, read
from penstock.landing.from_kafka.rows import ROW, rows_from_records
from penstock.landing.offset_runs import Runs, difference, is_inside, runs_of
from penstock.log.store.gaps import Gap
from penstock.proof.reread.messages import Reread, Suspect, suspects_in
from penstock.qualified_names import split_partition
from penstock.records import concatenated

GAP_REASONS = {
    Absence.CONTROL: f"{Name.NOT_A_MESSAGE}control",
    Absence.ABORTED: f"{Name.NOT_A_MESSAGE}aborted",
    Absence.COMPACTED: str(Name.COMPACTED),
    Absence.EXPIRED: "expired_unread",
    # A committed range lies before the stable end, so the topic was created again since, or its end was cut.
    Absence.UNDECIDED: "expired_unread",
    Absence.UNKNOWN: "absent",
}
"""Reasons of gaps by what Kafka's batches show. An offset with a record is not a gap: it is unaccounted."""
ABSENCE_WORDS = {Absence.PRESENT: "", Absence.UNDECIDED: "behind the end of the partition"}
"""Words for reasons that are not named well enough by themselves."""
EXPIRED_BEFORE = "expired_before"
"""Reason of a gap at offset 0: Kafka had dropped the head before the pipeline's first batch."""
ANSWER_TIMEOUT_S = 10.0
MAX_SKIPPED_OFFSETS = 1000
"""Limit: a longer distance between two wanted offsets is skipped by a seek; a shorter one is read through."""


GATHERED_RECORDS, GATHERED_BYTES = 4096, 8 << 20
"""Limit: records that are judged together."""


class KafkaRecords:
    """Partitions of a Kafka cluster (``events/0``). ``kafka``: properties of the client."""

    def __init__(self, kafka: Mapping[str, str], gap: int, event_types: Sequence[str] = ()) -> None:
        self._kafka, self._gap, self._event_types = dict(kafka), gap, tuple(event_types)
        self._absent_offsets = AbsentOffsets(kafka)

    def gaps(self, topic: str) -> list[Gap]:
        """Return no gaps: Kafka records none, ``read_again`` finds the absent offsets."""
        return []

    def end(self, topic: str) -> int:
        """Return the partition's end; 0 if Kafka does not answer within 5 s."""
        try:
            with consumer(self._kafka) as client:
                return end_offset(client, split_partition(topic), 5)
        except KafkaException:
            return 0

    def read_again(self, topic: str, runs: Runs) -> Reread:
        """Read the records at these offsets: whole messages become suspects, the other records segments of messages."""
        partition_key = split_partition(topic)
        reread, origins = Reread(), {}
        assembler, origin_reader = RangeAssembler(LookBack(self._kafka, self._gap), self._gap), OriginReader()
        for batch in self._read(partition_key, runs):
            origins.update(_origins_by_offset(rows_from_records(batch, origin_reader)))
            for rows in assembler.add_batch(batch):
                reread.suspects += self._suspects(rows)
        for rows in assembler.finish():
            reread.suspects += self._suspects(rows)
        messages = {suspect.offset for suspect in reread.suspects}
        reread.segments = {offset: origin for offset, origin in origins.items() if offset not in messages}
        absent_runs = difference(runs, runs_of(np.array(sorted(origins), np.int64)))
        reread.absent = [
            Gap(span.begin, span.end, _gap_reason(span), {NO_ORIGIN: {0: span.end - span.begin}})
            for span in self._absent_offsets.classify(partition_key, absent_runs.tolist())
            if span.absence in GAP_REASONS
        ]
        return reread

    def messages(self, topic: str, runs: Runs) -> Iterator[pa.RecordBatch]:
        """Yield the messages (ROW) at these offsets; of a large message, the offset of its last chunk.

        Raises CannotReadBack, KafkaAway.
        """
        partition_key = split_partition(topic)
        with _translate_errors(topic), consumer(self._kafka) as client:
            # A missing topic, and brokers that do not answer, are an error at once: reading waits for records.
            end_offset(client, partition_key, ANSWER_TIMEOUT_S)
            for part in _split_at_distances(runs):
                assembler = RangeAssembler(LookBack(self._kafka, self._gap), self._gap)
                # Chunks of a message lie at offsets without a row, so everything in between is read.
                records = _gather(read(client, partition_key, int(part[0, 0]), int(part[-1, 1])))
                for rows in chain(chain.from_iterable(map(assembler.add_batch, records)), _finished(assembler)):
                    yield rows.filter(pa.array(is_inside(rows["offset"].to_numpy(), part))).select(ROW.names)

    def absences(self, topic: str, runs: Runs) -> list[tuple[int, int, str]]:
        """Return ranges [begin, end) and why they have no record; an empty reason for an existing one.

        Raises CannotClassify, KafkaAway.
        """
        with _translate_errors(topic):
            spans = self._absent_offsets.classify(split_partition(topic), runs.tolist())
        return [(span.begin, span.end, ABSENCE_WORDS.get(span.absence, span.absence)) for span in spans]

    def _read(self, partition_key: TopicAndPartition, runs: Runs) -> Iterator[pa.RecordBatch]:
        """Yield the existing records at these offsets."""
        with consumer(self._kafka) as client:
            yield from _gather(
                batch
                for part in _split_at_distances(runs)
                for batch in read(client, partition_key, int(part[0, 0]), int(part[-1, 1]), part)
            )

    def _suspects(self, rows: pa.RecordBatch) -> Iterator[Suspect]:
        origins = _origins_by_offset(rows)
        return suspects_in(rows, [origins[offset] for offset in rows["offset"].to_numpy().tolist()], self._event_types)


@contextmanager
def _translate_errors(topic: str) -> Iterator[None]:
    """Raise KafkaAway for errors of the client."""
    try:
        yield
    except KafkaException as error:
        raise KafkaAway(f"Kafka does not give {topic}: {error.args[0].str()}") from None


def _finished(assembler: RangeAssembler) -> Iterator[pa.RecordBatch]:
    # Order: a generator, so that it runs after the last record was added.
    yield from assembler.finish()


def _split_at_distances(runs: Runs) -> list[Runs]:
    """Split runs where a seek is cheaper than reading on."""
    splits = np.flatnonzero(runs[1:, 0] - runs[:-1, 1] >= MAX_SKIPPED_OFFSETS) + 1
    return np.split(runs, splits) if len(runs) else []


def _gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records in larger batches: judging a batch costs 10 ms, and a read of 500 has about five duplicates."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        gathered.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GATHERED_RECORDS or size >= GATHERED_BYTES:
            yield concatenated(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield concatenated(gathered)


def _gap_reason(span: ClassifiedRange) -> str:
    is_head = span.absence is Absence.EXPIRED and span.begin == 0
    return EXPIRED_BEFORE if is_head else GAP_REASONS[span.absence]


def _origins_by_offset(rows: pa.RecordBatch) -> dict[int, SourceBucket]:
    """Source and bucket of each offset of rows (ROW)."""
    offsets, sources = rows.column("offset").to_numpy().tolist(), rows.column("source").to_pylist()
    buckets = rows.column("bucket").cast(pa.int64()).to_numpy() // 1_000_000
    return {o: (str(s), b) for o, s, b in zip(offsets, sources, buckets.tolist(), strict=True)}
