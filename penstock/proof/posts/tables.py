"""The content of the tables as posts for a new ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.config import Settings
from penstock.landing.requests.deletions import DeletionRecord, load_deletions
from penstock.landing.table_paths import Layout
from penstock.ledger.posts import LandedPost, Post, parse
from penstock.proof.foreign_deletions import unaccounted_deletions
from penstock.proof.kafka_records import kafka_records
from penstock.proof.posts.moved_topics import documents, moved_maps
from penstock.proof.proofs import BackfillProof, Proof
from penstock.proof.prover import rebuild
from penstock.proof.reread.messages import RereadSource
from penstock.qualified_names import is_partition


def table_posts(settings: Settings) -> Iterator[Post]:
    """Yield the posts of all batches, proved again.

    Order: first the posts in which partitions of Kafka begin, last the posts of the rows of the log that moved there.
    """
    pipeline, layout = settings.pipeline, Layout.for_tables(settings.tables)
    window, types = pipeline.duplicate_window, pipeline.event_types
    kafka = kafka_records(pipeline.kafka if pipeline.source == "kafka" else None, pipeline.expiry_gap, types)
    move_posts = [document for offset_map in moved_maps(layout) for document in documents(settings.topics, offset_map)]
    yield from (parse(document) for document in move_posts if is_partition(document["topic"]))
    yield from posts_of(settings.topics, layout, window=window, event_types=types, kafka=kafka)
    yield from (parse(document) for document in move_posts if not is_partition(document["topic"]))


def posts_of(
    topics: Path,
    layout: Layout,
    *,
    window: float = 600.0,
    event_types: Sequence[str] = (),
    kafka: RereadSource | None = None,
) -> Iterator[LandedPost]:
    """Yield posts of all batches, proved again, and of the rows deleted since."""
    for proof in rebuild(topics, layout, window=window, event_types=event_types, kafka=kafka):
        yield _post_of(proof, kafka)
    for batch, deleted in DeletionRecord(layout).deleted():
        yield LandedPost(deleted.topic, batch, 0, deleted.counts(), 0, deleted.uuids_by_fate(), deletion=deleted.number)
    newest = max((deleted.number for deleted in load_deletions(layout)), default=0)
    for number, rows in enumerate(unaccounted_deletions(layout), newest + 1):
        for deleted in rows.by_topic():
            yield LandedPost(deleted.topic, 0, 0, deleted.counts(), 0, deleted.uuids_by_fate(), deletion=number)


def _post_of(proved: Proof | BackfillProof, kafka: RereadSource | None) -> LandedPost:
    if isinstance(proved, BackfillProof):
        proof = proved.proof
        return LandedPost(proof.topic, proof.batch, 0, proof.counts_by, 0, proof.uuids, proved.number, proved.ahead)
    end = kafka.end(proved.topic) if kafka else 0
    return LandedPost(proved.topic, proved.batch, proved.end, proved.counts_by, end, proved.uuids)
