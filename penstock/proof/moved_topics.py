"""What the ledger is told of topics that moved to Kafka; Kafka's client is not needed for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.counts import Name
from penstock.landing.from_kafka.offset_map import OffsetMap, counts_document, maps
from penstock.landing.table_paths import Layout
from penstock.log.read.topic_reader import TopicReader
from penstock.proof.ledger_posts import LedgerAway, LedgerClient

SOURCE = "kafka"


def left_behind(topics: Path, one: OffsetMap, since: int) -> dict[tuple[str, int], dict[str, int]]:
    """By source and bucket, the rows of the log from an offset on that the pipeline finds in Kafka, and the gaps."""
    reader = TopicReader(topics / one.topic)
    counts: dict[tuple[str, int], dict[str, int]] = {}
    for place, rows in reader.rows_by_origin(since, one.end).items():
        counts.setdefault(place, {})[Name.PROMOTED] = rows
    for gap in reader.gaps():
        begin, end = max(gap.begin, since), min(gap.end, one.end)
        for (source, bucket), rows in (gap.rows_by_bucket(begin, end) if begin < end else {}).items():
            of_place = counts.setdefault((source or "unknown", bucket), {})
            of_place[Name.GAP + gap.reason] = of_place.get(Name.GAP + gap.reason, 0) + rows
    return counts


def documents(topics: Path, one: OffsetMap, since: int = 0) -> list[dict[str, Any]]:
    """Posts of a topic that moved: where its partitions begin to count, and what of the log was passed on.

    ``since``: what the ledger knows already.
    """
    if one.move is None:
        return []
    since = max(since, one.move.landed)
    told = {"tier": "landed", "version": 0}
    begins = [
        {**told, "topic": one.name(partition), "through": at, "end": at, "counts": _passed(at, one.move.bucket)}
        for partition, at in one.move.begins.items()
    ]
    counts = counts_document(left_behind(topics, one, since)) if since < one.end else []
    return [*begins, {**told, "topic": one.topic, "through": one.end, "counts": counts}]


def _passed(rows: int, bucket: int) -> list[dict[str, Any]]:
    return counts_document({(SOURCE, bucket): {Name.PASSED_OVER: rows}}) if rows else []


def tell(topics: Path, layout: Layout, ledger: LedgerClient) -> None:
    """Tell the ledger what it does not know of the topics that moved. Raises LedgerAway, LedgerRefused."""
    known = ledger.through()
    for one in maps(layout).values():
        if one.move is not None and known.get(one.topic, 0) < one.move.landed:
            raise LedgerAway(f"it does not have all yet that has landed of {one.topic}")
        for document in documents(topics, one, known.get(one.topic, 0)):
            if document["topic"] not in known or document["through"] > known[document["topic"]]:
                ledger.tell(document)
