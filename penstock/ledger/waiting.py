"""What waits in the log buffers: the counts of the frames that the log has not taken yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.counts import Counts, by_bucket
from penstock.ingest.files import LOG, buffer_file, position_file
from penstock.ingest.frames import frame_receipt
from penstock.ledger.posts import Key
from penstock.logbuffer.errors import Lapped
from penstock.logbuffer.mapped import Frame
from penstock.logbuffer.position import ReaderPosition
from penstock.logbuffer.subscription import Subscription
from penstock.records import BadBatch


def waiting(folder: Path, listeners: Iterable[str]) -> dict[Key, Counts]:
    """By source and bucket, over the log buffers of ``listeners`` in ``folder``."""
    total: dict[Key, Counts] = {}
    for listener in listeners:
        if position_file(folder, listener, LOG).exists() and buffer_file(folder, listener).exists():
            _add(total, folder, listener)
    return total


def _add(total: dict[Key, Counts], folder: Path, listener: str) -> None:
    position = ReaderPosition(position_file(folder, listener, LOG))
    subscription = Subscription(buffer_file(folder, listener), position.position)
    try:
        for frame in _frames(subscription):
            try:
                origin = frame_receipt(frame.data).origin
            except BadBatch:
                continue  # the log counts it as corrupt when it comes to it
            for bucket, counts in by_bucket(origin.bucket, origin.counts).items():
                total.setdefault((origin.source, bucket), Counts()).absorb(counts)
    finally:
        subscription.close()
        position.close()


def _frames(subscription: Subscription) -> Iterator[Frame]:
    """All frames up to the tail; a poll ends with its term."""
    before = -1
    while subscription.position > before:
        before = subscription.position
        try:
            yield from subscription.poll()
        except Lapped:
            return  # the log has taken them meanwhile, and the receiver has gone on
