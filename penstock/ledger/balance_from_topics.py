"""The balance of a book and the files next to it: the offsets that have not landed, their gaps, and log buffers.

The ledger and the rebuild of a balance share it: the book says what landed, the topics' folders say what did not.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from penstock.counts import Counts, Name, SourceBucket
from penstock.handover.paths import listeners_in
from penstock.ledger.balance import Balance, UnlandedTail, Within, balance
from penstock.ledger.book.book_from_topics import gap_rows
from penstock.ledger.book.book_pages import BookPages
from penstock.ledger.book.bucket_tables import CountTable
from penstock.ledger.book.daily_rollup import roll_counts
from penstock.ledger.handler_deliveries import handler_deliveries, routes
from penstock.log import Gap, TopicReader
from penstock.log.store.gaps import FILE_NAME, load
from penstock.qualified_names import is_partition


def all_listeners(buffers: Path, configured: Iterable[str]) -> list[str]:
    """Return all listeners that are configured or have left a log buffer."""
    return sorted({*configured, *listeners_in(buffers)})


def balance_of(
    pages: BookPages,
    topics: Path,
    in_buffer: Mapping[SourceBucket, Counts],
    within: Within = None,
    buffers: Path | None = None,
) -> Balance:
    """Return the balance of ``pages``, with the offsets after the landed ones taken from the topics' folders.

    With ``buffers``, the folder of the log buffers, it includes routes to handlers that are separate processes.
    """
    tails = {name: unlanded_tail(topics, pages, name) for name in pages.logged}
    balance_of_log = balance(pages, tails, in_buffer, within)
    if buffers is None:
        return balance_of_log
    deliveries = handler_deliveries(buffers, listeners_in(buffers))
    # Routes of all time come from running totals. Fast path: a listener without further handlers has no such route.
    listeners = set() if within is None else {delivery.listener for delivery in deliveries}
    accepted = accepted_by_bucket(pages.received, roll_counts(in_buffer, pages.rolled), listeners)
    handler_routes = routes(buffers, deliveries, accepted, within, pages.rolled)
    return replace(
        balance_of_log,
        routes=sorted([*balance_of_log.routes, *handler_routes], key=lambda route: (route.source, route.handler)),
    )


def accepted_by_bucket(
    received: CountTable, in_buffer: Mapping[SourceBucket, Counts], listeners: Collection[str]
) -> dict[SourceBucket, int]:
    """Return the accepted messages of ``listeners`` by source and bucket."""
    total = {
        (listener, bucket): received[listener, bucket][Name.ACCEPTED]
        for listener in listeners
        for bucket in received.buckets(listener)
    }
    for key, counts in in_buffer.items():
        if key[0] in listeners:
            total[key] = total.get(key, 0) + counts[Name.ACCEPTED]
    return total


def unlanded_tail(topics: Path, pages: BookPages, name: str) -> UnlandedTail:
    """Return what a topic's files contain after the landed offsets: pending messages and gaps."""
    landed = pages.landed.get(name)
    through = landed.through if landed else 0
    if is_partition(name):
        return UnlandedTail({("kafka", 0): pages.ends[name] - through})
    runs = landed.beyond(pages.ends[name]) if landed else []
    if landed and not runs:
        # Fast path: most topics have landed completely, and need no look at their files.
        return UnlandedTail()
    pending: Counter[SourceBucket] = Counter()
    for begin, end in runs:
        pending.update(TopicReader(topics / name).rows_by_origin(begin, end))
    gaps: dict[SourceBucket, Counts] = {}
    for gap in gaps_of(topics / name):
        for begin, end in runs if landed else [(0, gap.end)]:
            for key, rows in gap_rows(gap, max(begin, gap.begin), min(end, gap.end)).items():
                gaps.setdefault(key, Counts())[f"{Name.GAP}{gap.reason}"] += rows
    return UnlandedTail(pending, gaps)


def identity_of_gaps(topics: Path, name: str) -> tuple[int, int, int] | None:
    """Return an identity of the file of a topic's gaps that differs once it is replaced; None without gaps."""
    try:
        status = os.stat(f"{topics}/{name}/{FILE_NAME}")
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def gaps_of(topic: Path) -> list[Gap]:
    """Load the gaps of the topic in a folder."""
    try:
        return load(topic / FILE_NAME)
    except FileNotFoundError:
        return []
