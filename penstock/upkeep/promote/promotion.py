"""Promote a topic of the log to Kafka: copy each row once, and move the pipeline over.

Rows are copied in transactions, each record with its log offset as a header. Crash: Kafka itself has the copied
offsets, so a repeated run copies nothing twice. The move changes one line of the pipeline's checkpoint, its position,
from the log's to Kafka's. The uuids of the duplicate window stay, so no row is lost or lands twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # documented there

from penstock.counts import BUCKET_SECONDS, Origin
from penstock.errors import PenstockError
from penstock.files.checked_lines import append_lines
from penstock.kafka.client.broker_answers import end_offset, partition_numbers
from penstock.kafka.origin_header import LOG_OFFSET_HEADER, ORIGIN_HEADER
from penstock.landing.from_kafka.continuity import REMEDY, KafkaContinuity
from penstock.landing.from_kafka.offset_map import Move, OffsetMap, load_maps, map_path
from penstock.landing.from_kafka.read_back import consumer
from penstock.landing.from_kafka.rows import CODEC_HEADER
from penstock.landing.journal import Journal
from penstock.landing.requests.backfill_requests import load_requests
from penstock.landing.spark_checkpoint import newest_commit, newest_plan, read_plan, write_plan
from penstock.landing.table_paths import Layout
from penstock.log.errors import CorruptBatch
from penstock.log.read.segment_view import StoredBatch
from penstock.log.read.topic_reader import TopicReader
from penstock.qualified_names import is_partition, is_relayed
from penstock.server.kafka.records.creation_times import shown_times, split_creation_times
from penstock.upkeep.promote.kafka_writer import (
    TIMEOUT_S,
    KafkaWriter,
    OutgoingRecord,
    headers_from_annotations,
    kafka_errors,
    read_header_values,
)

MAX_TRANSACTION_ROWS, MAX_TRANSACTION_BYTES = 2000, 8 << 20
"""Limits of one transaction, in rows and bytes: it is held in memory, and Kafka's readers wait for its end."""
PLAIN_CODEC = "plog"
ReportProgress = Callable[[int, int], None]
"""Callback with the number of copied rows and of all rows."""


class CannotMove(PenstockError, RuntimeError):
    """The pipeline cannot move to Kafka now; the text names the reason."""


class Promotion:
    """The copy of one topic to Kafka topic ``name``, which is created if missing. ``kafka``: the client's
    properties.
    """

    def __init__(
        self, topics: Path, layout: Layout, topic: str, kafka: Mapping[str, str], name: str, partitions: int = 1
    ) -> None:
        self._reader, self._kafka = TopicReader(topics / topic), dict(kafka)
        self._out = KafkaWriter(kafka, f"penstock-promote-{layout.tables}-{topic}")
        path, continuity = map_path(layout, topic), KafkaContinuity(kafka, ["*"], layout.continuity)
        offset_map = OffsetMap.load(path, repair=True)
        if offset_map and offset_map.kafka_topic != name:
            raise CannotMove(f"{topic} is already copied to {offset_map.kafka_topic}, not to {name}")
        # Invariant: one topic's rows, because a row is found in Kafka by its offset in the log.
        for other in load_maps(layout).values():
            if other.kafka_topic == name and other.topic != topic:
                raise CannotMove(f"topic {name} of Kafka has the rows of {other.topic} already: name another with --as")
        if offset_map:
            _check_copies([offset_map], kafka, continuity)
        self.map = offset_map or OffsetMap.begin(
            path, topic, name, self._partition_ends(name, partitions), continuity.topic_ids([name]).get(name, "")
        )

    def copy(self, report: ReportProgress = lambda copied, total: None) -> int:
        """Copy all rows of the log that are not in Kafka and return their number. Raises CannotSend, CannotMove."""
        self._recover()
        copied, end = 0, self._reader.end
        for stored in self._read_batches(end):
            for begin, rows in _parts(stored):
                offsets = list(range(begin, begin + rows.num_rows))
                positions = self._out.send(self.map.kafka_topic, to_records(offsets, rows, stored.origin))
                # Order: Kafka first, the map second; `_recover` adds what a crash in between left out of the map.
                self.map.add(offsets, positions, begin + rows.num_rows)
                copied += len(offsets)
                report(self.map.end, end)
        if self.map.end < end:
            # Retention dropped the remaining offsets.
            self.map.add([], [], end)
        return copied

    def close(self) -> None:
        self._out.close()

    def _read_batches(self, end: int) -> Iterator[StoredBatch]:
        """Yield readable batches; corrupt ones are left to the log, which records them as gaps."""
        begin = self.map.end
        while begin < end:
            try:
                for stored in self._reader.read(begin, end=end):
                    yield stored
                    begin = stored.end
                return
            except CorruptBatch as error:
                begin = max(error.end, begin + 1)

    def _recover(self) -> None:
        """Add rows to the map that Kafka has: of a run that was killed before it wrote them down, or of damaged
        lines.
        """
        positions: dict[int, tuple[int, int]] = {}
        begins = self.map.begins if self.map.is_damaged else self.map.copied_ends()
        for partition, begin in begins.items():
            for offset, header_value in read_header_values(
                self._kafka, (self.map.kafka_topic, partition), begin, LOG_OFFSET_HEADER
            ):
                if self.map.kafka_position(int(header_value)) is None:
                    positions[int(header_value)] = (partition, offset)
                elif not self.map.is_damaged:
                    # Behind the copied rows there are only later ones. Another log's would count as copied here.
                    raise CannotMove(
                        f"partition {self.map.partition_name(partition)} of Kafka has rows of another log than "
                        f"{self.map.topic}, such as at offset {offset}: copy each log to a topic of its own, with --as"
                    )
        if self.map.is_damaged:
            self.map.mend(positions)
        elif positions:
            offsets = sorted(positions)
            self.map.add(offsets, [positions[offset] for offset in offsets], offsets[-1] + 1)

    def _partition_ends(self, name: str, partitions: int) -> dict[int, int]:
        with kafka_errors(f"topic {name}"), consumer(self._kafka) as client:
            admin = AdminClient({k: v for k, v in self._kafka.items() if k != "transactional.id"})
            if name not in admin.list_topics(timeout=TIMEOUT_S).topics:
                admin.create_topics([NewTopic(name, partitions)])[name].result(TIMEOUT_S)
            numbers = partition_numbers(admin, name, TIMEOUT_S, is_new=True)
            return {number: end_offset(client, (name, number), TIMEOUT_S) for number in numbers}


def _check_copies(maps: Collection[OffsetMap], kafka: Mapping[str, str], continuity: KafkaContinuity) -> None:
    """Check that the topics of Kafka are those to which rows were copied, and have them.

    Raises CannotMove, CannotSend, KafkaAway.
    """
    ids = continuity.topic_ids({offset_map.kafka_topic for offset_map in maps})
    for offset_map in maps:
        name, topic = offset_map.kafka_topic, offset_map.topic
        if name in ids and offset_map.topic_id in ("", ids[name]):
            _check_ends(offset_map, kafka)
            continue
        step = f"delete {offset_map.path} and run `penstock promote {topic}` again: it copies what the log still has"
        if offset_map.move:
            step = REMEDY
        raise CannotMove(f"topic {name} of Kafka was deleted or created again since {topic} was copied to it: {step}")


def _check_ends(offset_map: OffsetMap, kafka: Mapping[str, str]) -> None:
    """Check that no partition ends before the rows that were copied to it. Raises CannotMove, CannotSend."""
    with kafka_errors(f"topic {offset_map.kafka_topic}"), consumer(kafka) as client:
        for partition, copied_end in offset_map.copied_ends().items():
            kafka_end = end_offset(client, (offset_map.kafka_topic, partition), TIMEOUT_S)
            if kafka_end < copied_end:
                raise CannotMove(
                    f"partition {offset_map.partition_name(partition)} of Kafka ends at {kafka_end}, and had copied "
                    f"rows up to {copied_end}: Kafka lost them, as after a power failure. Delete {offset_map.path}, "
                    f"and copy {offset_map.topic} to another topic with --as"
                )


def _parts(stored: StoredBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    size = max(1, min(MAX_TRANSACTION_ROWS, MAX_TRANSACTION_BYTES * stored.rows // max(stored.batch.nbytes, 1)))
    for begin in range(0, stored.rows, size):
        yield stored.base + begin, stored.batch.slice(begin, size)


def to_records(offsets: Sequence[int], part: pa.RecordBatch, origin: Origin) -> Iterator[OutgoingRecord]:
    """Yield stored rows as records of Kafka: with their producer's time, else the log's, and the headers it sent.

    Relayed rows also get the header of their origin, so that the landing counts them under the same host and minute.
    """
    codec_header = [(CODEC_HEADER, origin.codec.encode())] if origin.codec and origin.codec != PLAIN_CODEC else []
    # Limit: rows of a listener of this instance have no host in their source. With a header their messages would count
    # as received by another host, and again by this one.
    has_host = is_relayed(origin.source)
    origin_header = [(ORIGIN_HEADER, f"{origin.source}@{origin.bucket}".encode())] if has_host else []
    annotations, _ = split_creation_times(part.column("annotations"))
    columns = (part.column("payload"), part.column("key"), annotations)
    rows = zip(offsets, *(column.to_pylist() for column in columns), shown_times(part).tolist(), strict=True)
    for offset, payload, key, pairs, millis in rows:
        headers: list[tuple[str, bytes | None]] = [
            (LOG_OFFSET_HEADER, str(offset).encode()),
            *codec_header,
            *origin_header,
        ]
        headers += headers_from_annotations(pairs)
        yield OutgoingRecord(payload, key, headers, millis)


def move_pipeline(layout: Layout, kafka: Mapping[str, str]) -> dict[str, Move]:
    """Move the pipeline to Kafka and return the moves by topic of the log; empty if it was moved before.

    Requires that the pipeline does not run, that no batch is half done, and that every topic it landed from the log is
    copied. ``kafka``: the client's properties. Raises CannotMove, KafkaAway.
    """
    last_batch = newest_commit(layout.checkpoint)
    if last_batch < 0:
        return {}
    Journal(layout).update()
    landed, maps = _landed_ends(layout, last_batch), load_maps(layout)
    for topic, end in landed.items():
        if topic in maps and maps[topic].is_damaged:
            raise CannotMove(
                f"{maps[topic].path} is damaged: run `penstock promote {topic} --copy-only`, which mends it"
            )
        if topic not in maps or maps[topic].end < end:
            raise CannotMove(f"the pipeline also reads {topic}: run `penstock promote {topic} --to kafka` first")
    bucket = read_plan(layout.checkpoint, last_batch).batch_time_ms // 1000 // BUCKET_SECONDS * BUCKET_SECONDS
    moves = {topic: Move(end, maps[topic].kafka_ends_before(end), bucket) for topic, end in landed.items()}
    continuity = KafkaContinuity(kafka, ["*"], layout.continuity)
    _check_copies([maps[topic] for topic in moves], kafka, continuity)
    # Order: the ids before the move, so that a topic that is created again after it is recognized by the first batch.
    # They are stored once the position is Kafka's: the file has the marks of the log's topics until then.
    continuity.before_reading(
        {
            maps[topic].partition_name(partition): offset
            for topic in moves
            for partition, offset in moves[topic].begins.items()
        }
    )
    for topic, topic_move in moves.items():
        maps[topic].record_move(topic_move)
    if moves:
        _write_position(layout, last_batch, moves, maps)
        continuity.store_ids()
    return moves


def _landed_ends(layout: Layout, last_batch: int) -> dict[str, int]:
    """Return the landed end of each topic of the log; empty if the pipeline already reads Kafka."""
    if newest_plan(layout.checkpoint) > last_batch:
        raise CannotMove("a batch is unfinished: run `penstock pipeline run --once` first")
    position = read_plan(layout.checkpoint, last_batch).end
    requests = load_requests(layout.backfills)
    for name, request in requests.items():
        if position.get(name, 0) < request.rows:
            raise CannotMove(f"a backfill of {request.topic} is unfinished: run it again first")
    return {topic: end for topic, end in position.items() if topic not in requests and not is_partition(topic)}


def _write_position(layout: Layout, batch: int, moves: Mapping[str, Move], maps: Mapping[str, OffsetMap]) -> None:
    """Write the moved position to journal and checkpoint."""
    position = {
        maps[topic].partition_name(partition): offset
        for topic, topic_move in moves.items()
        for partition, offset in topic_move.begins.items()
    }
    ranges = {name: [offset, offset] for name, offset in position.items()}
    planned = read_plan(layout.checkpoint, batch)
    entry = {"batch": batch, "landed_at": planned.batch_time_ms, "watermark": planned.watermark}
    # Order: the journal first. Its ranges of Kafka are harmless while the checkpoint still has the log's position.
    append_lines(layout.journal, [{**entry, "ranges": ranges, "files": [], "moved": True}])
    write_plan(layout.checkpoint, batch, replace(planned, end=position))
