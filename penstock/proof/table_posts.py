"""What the tables hold, as posts to a ledger that knows nothing of it yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.config import Settings
from penstock.landing.from_kafka.offset_map import maps
from penstock.landing.requests.deletions import Record, all_deletions
from penstock.landing.table_paths import Layout
from penstock.ledger.posts import LandedPost, Post, is_partition, parse
from penstock.proof.foreign_deletions import unaccounted_deletions
from penstock.proof.kafka_records import kafka_records
from penstock.proof.moved_topics import documents
from penstock.proof.proofs import BackfillProof, Proof
from penstock.proof.prover import rebuild
from penstock.proof.reread import RereadSource


def table_posts(settings: Settings) -> Iterator[Post]:
    """All batches proved again, between the posts of topics that moved to Kafka: where partitions begin, what moved."""
    pipeline, layout = settings.pipeline, Layout.of(settings.tables)
    window, types = pipeline.duplicate_window, pipeline.event_types
    kafka = kafka_records(pipeline.kafka if pipeline.source == "kafka" else None, pipeline.expiry_gap, types)
    moved = [document for one in maps(layout).values() for document in documents(settings.topics, one)]
    yield from (parse(document) for document in moved if is_partition(document["topic"]))
    yield from posts_of(settings.topics, layout, window=window, event_types=types, kafka=kafka)
    yield from (parse(document) for document in moved if not is_partition(document["topic"]))


def posts_of(
    topics: Path,
    layout: Layout,
    *,
    window: float = 600.0,
    event_types: Sequence[str] = (),
    kafka: RereadSource | None = None,
) -> Iterator[LandedPost]:
    """All batches proved again, and what was taken out of the table since."""
    for proof in rebuild(topics, layout, window=window, event_types=event_types, kafka=kafka):
        yield _post_of(proof, kafka)
    for batch, one in Record(layout).deleted():
        yield LandedPost(one.topic, batch, 0, one.counts(), 0, one.uuids_now(), deletion=one.number)
    newest = max((one.number for one in all_deletions(layout)), default=0)
    for number, rows in enumerate(unaccounted_deletions(layout), newest + 1):
        for one in rows.by_topic():
            yield LandedPost(one.topic, 0, 0, one.counts(), 0, one.uuids_now(), deletion=number)


def _post_of(found: Proof | BackfillProof, kafka: RereadSource | None) -> LandedPost:
    if isinstance(found, BackfillProof):
        proof = found.proof
        return LandedPost(proof.topic, proof.batch, 0, proof.counts_by, 0, proof.uuids, found.number, found.ahead)
    end = kafka.end(found.topic) if kafka else 0
    return LandedPost(found.topic, found.batch, found.end, found.counts_by, end, found.uuids)
