"""Ledger posts of topics that moved to Kafka, without a dependency on Kafka's client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.counts import Name
from penstock.landing.from_kafka.offset_map import OffsetMap, load_maps
from penstock.landing.journal import landed_ends
from penstock.landing.spark_checkpoint import find_plan, newest_commit
from penstock.landing.table_paths import Layout
from penstock.log.read.topic_reader import TopicReader
from penstock.proof.posts.ledger_client import LedgerAway, LedgerClient

SOURCE = "kafka"


def left_behind(topics: Path, offset_map: OffsetMap, since: int) -> dict[tuple[str, int], dict[str, int]]:
    """Count the rows of the log that the pipeline reads from Kafka instead, and the gaps, by source and bucket."""
    reader = TopicReader(topics / offset_map.topic)
    counts: dict[tuple[str, int], dict[str, int]] = {}
    for origin, rows in reader.rows_by_origin(since, offset_map.end).items():
        counts.setdefault(origin, {})[Name.PROMOTED] = rows
    for gap in reader.gaps():
        begin, end = max(gap.begin, since), min(gap.end, offset_map.end)
        for (source, bucket), rows in (gap.rows_by_bucket(begin, end) if begin < end else {}).items():
            gap_counts = counts.setdefault((source or "unknown", bucket), {})
            gap_counts[Name.GAP + gap.reason] = gap_counts.get(Name.GAP + gap.reason, 0) + rows
    return counts


def moved_maps(layout: Layout) -> list[OffsetMap]:
    """Return the maps of the topics that the pipeline reads from Kafka."""
    maps = [offset_map for offset_map in load_maps(layout).values() if offset_map.move is not None]
    # Crash: a move that failed at its end is in the map and the journal, and only the pipeline's position is the log's.
    if (plan := find_plan(layout.checkpoint, newest_commit(layout.checkpoint))) is not None:
        return [offset_map for offset_map in maps if offset_map.topic not in plan.end]
    ends = landed_ends(layout)
    return [
        offset_map for offset_map in maps if offset_map.move and ends.get(offset_map.topic, 0) <= offset_map.move.landed
    ]


def documents(topics: Path, offset_map: OffsetMap, since: int = 0) -> list[dict[str, Any]]:
    """Return the posts of a moved topic: each partition's first offset, and the rows promoted from the log.

    ``since`` is the offset up to which the ledger has counts.
    """
    if offset_map.move is None:
        return []
    # Rows before ``landed`` landed from the log and have proofs of their own: counted here, they would count twice.
    since = max(since, offset_map.move.landed)
    header = {"tier": "landed", "version": 0}
    begins = [
        {
            **header,
            "topic": offset_map.partition_name(partition),
            "through": begin_offset,
            "end": begin_offset,
            "counts": _passed(begin_offset, offset_map.move.bucket),
        }
        for partition, begin_offset in offset_map.move.begins.items()
    ]
    counts = _counts_document(left_behind(topics, offset_map, since)) if since < offset_map.end else []
    return [*begins, {**header, "topic": offset_map.topic, "through": offset_map.end, "counts": counts}]


def _passed(rows: int, bucket: int) -> list[dict[str, Any]]:
    return _counts_document({(SOURCE, bucket): {Name.PASSED_OVER: rows}}) if rows else []


def _counts_document(counts: Mapping[tuple[str, int], Mapping[str, int]]) -> list[dict[str, Any]]:
    return [{"source": s, "bucket": b, "counts": dict(of_key)} for (s, b), of_key in sorted(counts.items())]


def post_moves(topics: Path, layout: Layout, ledger: LedgerClient) -> None:
    """Post the moves that the ledger does not have yet. Raises LedgerAway, LedgerRefused."""
    through = ledger.through()
    for offset_map in moved_maps(layout):
        # Order: proofs of the log's rows first. A post covers all offsets up to its end, so that a later proof would
        # be refused as known.
        if offset_map.move is not None and through.get(offset_map.topic, 0) < offset_map.move.landed:
            raise LedgerAway(f"it does not have all yet that has landed of {offset_map.topic}")
        for document in documents(topics, offset_map, through.get(offset_map.topic, 0)):
            if document["topic"] not in through or document["through"] > through[document["topic"]]:
                ledger.post_document(document)
