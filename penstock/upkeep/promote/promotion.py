"""A topic of the log into Kafka: its rows copied, each once, and the pipeline moved over.

Rows go in transactions, each record with its offset in the log as a header, so that after any crash Kafka itself says
what is there. The move changes one line of the pipeline's checkpoint: its position, from the log's to Kafka's. The
uuids of the duplicate window stay, so that nothing is lost or lands twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # documented there

from penstock.counts import BUCKET_SECONDS
from penstock.errors import PenstockError
from penstock.files.checked_lines import append_lines
from penstock.files.file_system import OS, replace_durably
from penstock.kafka.client.broker_answers import end_offset, partition_numbers
from penstock.landing.from_kafka.offset_map import Move, OffsetMap, load_maps, map_path
from penstock.landing.from_kafka.read_back import consumer
from penstock.landing.from_kafka.rows import CODEC_HEADER
from penstock.landing.journal import Journal, committed_batches, read_plan
from penstock.landing.requests.backfill_requests import load_requests
from penstock.landing.table_paths import Layout
from penstock.log.errors import CorruptBatch
from penstock.log.read.segment_view import StoredBatch
from penstock.log.read.topic_reader import TopicReader
from penstock.upkeep.promote.kafka_writer import PATIENCE, CannotSend, KafkaOut, Outgoing, headers_of, marks

FROM_HEADER = "_penstock_offset"
"""Header with a record's offset in the log."""
ROWS, BYTES = 2000, 8 << 20
"""Most of one transaction."""
PLAIN_CODEC = "plog"
Tell = Callable[[int, int], None]
"""Is told how many of how many rows are copied."""


class CannotMove(PenstockError, RuntimeError):
    """The pipeline cannot go over to Kafka now; the text says why."""


class Promotion:
    """Of one topic. ``kafka``: properties of the client; ``name``: the topic there, made where it is none."""

    def __init__(
        self, topics: Path, layout: Layout, topic: str, kafka: Mapping[str, str], name: str, partitions: int = 1
    ) -> None:
        self._reader, self._kafka = TopicReader(topics / topic), dict(kafka)
        self._out = KafkaOut(kafka, f"penstock-promote-{layout.tables}-{topic}")
        path = map_path(layout, topic)
        self.map = OffsetMap.load(path) or OffsetMap.begin(path, topic, name, self._ends(name, partitions))
        if self.map.kafka_topic != name:
            raise CannotMove(f"{topic} is being copied to {self.map.kafka_topic} already, not to {name}")

    def copy(self, tell: Tell = lambda done, of: None) -> int:
        """Copy what is in the log now and not in Kafka; how many rows. Raises CannotSend."""
        self._recover()
        copied, end = 0, self._reader.end
        for stored in self._batches(end):
            for begin, part in _parts(stored):
                offsets = list(range(begin, begin + part.num_rows))
                places = self._out.send(self.map.kafka_topic, _records(offsets, part, stored))
                self.map.add(offsets, places, begin + part.num_rows)
                copied += len(offsets)
                tell(self.map.end, end)
        if self.map.end < end:
            self.map.add([], [], end)  # the rest is gone from the log
        return copied

    def close(self) -> None:
        self._out.close()

    def _batches(self, end: int) -> Iterator[StoredBatch]:
        """What can be read; corrupt batches are for the log to enter as gaps."""
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
        """Enter what was committed to Kafka and not written down."""
        found: dict[int, tuple[int, int]] = {}
        for partition, at in self.map.copied_ends().items():
            for offset, value in marks(self._kafka, (self.map.kafka_topic, partition), at, FROM_HEADER):
                if int(value) >= self.map.end:
                    found[int(value)] = (partition, offset)
        if found:
            offsets = sorted(found)
            self.map.add(offsets, [found[offset] for offset in offsets], offsets[-1] + 1)

    def _ends(self, name: str, partitions: int) -> dict[int, int]:
        try:
            with consumer(self._kafka) as client:
                admin = AdminClient({k: v for k, v in self._kafka.items() if k != "transactional.id"})
                if name not in admin.list_topics(timeout=PATIENCE).topics:
                    admin.create_topics([NewTopic(name, partitions)])[name].result(PATIENCE)
                known = partition_numbers(admin, name, PATIENCE, is_new=True)
                return {number: end_offset(client, (name, number), PATIENCE) for number in known}
        except KafkaException as error:
            raise CannotSend(f"topic {name}: {error.args[0].str()}") from error


def _parts(stored: StoredBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    size = max(1, min(ROWS, BYTES * stored.rows // max(stored.batch.nbytes, 1)))
    for begin in range(0, stored.rows, size):
        yield stored.base + begin, stored.batch.slice(begin, size)


def _records(offsets: Sequence[int], part: pa.RecordBatch, stored: StoredBatch) -> Iterator[Outgoing]:
    codec = stored.origin.codec
    own = [(CODEC_HEADER, codec.encode())] if codec and codec != PLAIN_CODEC else []
    for offset, row in zip(offsets, part.to_pylist(), strict=True):
        headers = [(FROM_HEADER, str(offset).encode()), *own, *headers_of(row["annotations"])]
        millis = int(row["timestamp"].timestamp() * 1000)
        yield Outgoing(row["payload"], row["key"], headers, millis)


def move(layout: Layout) -> dict[str, Move]:
    """Have the pipeline go on in Kafka; only while it does not run, and nothing of a batch is left to do.

    Every topic that it has landed from the log must have been copied. By topic of the log, what was moved now; none
    where it was moved before. Raises CannotMove.
    """
    done = max(committed_batches(layout.checkpoint), default=-1)
    if done < 0:
        return {}
    Journal(layout).update()
    landed, known = _landed(layout, done), load_maps(layout)
    for topic, end in landed.items():
        if topic not in known or known[topic].end < end:
            raise CannotMove(f"the pipeline reads {topic} too: `penstock promote {topic} --to kafka` comes first")
    bucket = read_plan(layout.checkpoint, done).landed_at // 1000 // BUCKET_SECONDS * BUCKET_SECONDS
    moves = {topic: Move(end, known[topic].kafka_ends_before(end), bucket) for topic, end in landed.items()}
    for topic, one in moves.items():
        known[topic].record_move(one)
    if moves:
        _rewrite(layout, done, moves, known)
    return moves


def _landed(layout: Layout, done: int) -> dict[str, int]:
    """By topic of the log up to where it has landed; none where the pipeline reads Kafka already."""
    if (layout.checkpoint / "offsets" / str(done + 1)).exists():
        raise CannotMove("a batch is half done: `penstock pipeline run --once` finishes it")
    position = read_plan(layout.checkpoint, done).end
    asked = load_requests(layout.refills)
    for name, request in asked.items():
        if position.get(name, 0) < request.rows:
            raise CannotMove(f"a backfill of {request.topic} is half done: run it again first")
    return {topic: end for topic, end in position.items() if topic not in asked and "/" not in topic}


def _rewrite(layout: Layout, batch: int, moves: Mapping[str, Move], known: Mapping[str, OffsetMap]) -> None:
    """The journal first: what it says of Kafka harms nobody while the checkpoint is the log's."""
    places: dict[str, dict[str, int]] = {}
    for topic, one in moves.items():
        mine = places.setdefault(known[topic].kafka_topic, {})
        mine |= {str(partition): offset for partition, offset in one.begins.items()}
    ranges = {f"{name}/{p}": [at, at] for name, of_name in places.items() for p, at in of_name.items()}
    planned = read_plan(layout.checkpoint, batch)
    entry = {"batch": batch, "landed_at": planned.landed_at, "watermark": planned.watermark}
    append_lines(layout.journal, [{**entry, "ranges": ranges, "files": [], "moved": True}])
    path = layout.checkpoint / "offsets" / str(batch)
    version, metadata, _ = path.read_text().splitlines()
    path.with_name(f".{batch}.crc").unlink(missing_ok=True)
    replace_durably(OS, path, "\n".join([version, metadata, json.dumps(places, separators=(",", ":"))]).encode())
