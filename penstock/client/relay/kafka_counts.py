"""The counts of handlers that forward to Kafka with the header of the origin, as this host posts them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from penstock import __version__
from penstock.config import KafkaHandler, Settings
from penstock.counts import Counts
from penstock.handover.dropped_frames import MAX_BUCKETS
from penstock.handover.positions.accounts import CORRUPT, DELIVERED, DROPPED, FAILED
from penstock.ledger.handler_deliveries import HandlerDelivery, handler_deliveries
from penstock.ledger.hosts.host_posts import MAX_LISTENERS
from penstock.ledger.hosts.kafka_hosts import KafkaPost, KafkaReport


class KafkaCounts:
    """The posts of one process: their versions increase."""

    def __init__(self, settings: Settings, host: str, disk: str) -> None:
        self._buffers, self._host, self._disk = settings.buffers, host, disk
        self._handlers = {listener: handler.label for listener, handler in origin_handlers(settings)}
        self._process, self._version = uuid.uuid4().hex, 0

    def next_post(self) -> KafkaPost:
        """Return the counts as of now. Raises OSError."""
        self._version += 1
        return KafkaPost(
            host=self._host,
            disk=self._disk,
            process=self._process,
            version=self._version,
            time_ms=time.time_ns() // 1_000_000,
            software=__version__,
            listeners=kafka_reports(self._buffers, self._handlers),
        )


def origin_handlers(settings: Settings) -> list[tuple[str, KafkaHandler]]:
    """Return the listeners with their handler that sends the origin to Kafka."""
    return [
        (listener.name, handler)
        for listener in settings.listener
        for handler in listener.forwarded
        if isinstance(handler, KafkaHandler) and handler.origin_header
    ]


def kafka_reports(buffers: Path, handlers: Mapping[str, str]) -> dict[str, KafkaReport]:
    """Return the counts of listeners, given the label of the handler of each one.

    Limit: a post has the first MAX_LISTENERS listeners.
    """
    names = sorted(handlers)[:MAX_LISTENERS]
    deliveries = handler_deliveries(buffers, names)
    return {
        delivery.listener: report_of(delivery)
        for delivery in deliveries
        if delivery.handler == handlers[delivery.listener]
    }


def report_of(delivery: HandlerDelivery) -> KafkaReport:
    """Return the counts of a handler, with the minutes that it still has separately."""
    total = Counts()
    for fates in delivery.fates.values():
        total.absorb(fates)
    # Limit: the account and what the writer dropped have up to MAX_BUCKETS minutes each, a post has fewer.
    minutes = sorted(minute for minute in delivery.fates if minute > delivery.folded)[1 - MAX_BUCKETS :]
    return KafkaReport(
        accepted=delivery.accepted,
        forwarded=total[DELIVERED],
        failed=total[FAILED],
        dropped=total[DROPPED] + total[CORRUPT],
        pending=delivery.in_buffer,
        minutes={minute: (delivery.fates[minute][DELIVERED], delivery.fates[minute][FAILED]) for minute in minutes},
    )
