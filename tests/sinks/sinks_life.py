"""The writing side of a listener with one forwarder, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from penstock.config import ListenerConfig
from penstock.counts import Counts, Origin
from penstock.ledger.handler_deliveries import HandlerDelivery, handler_deliveries
from penstock.records import body
from penstock.sinks import Delivered, Handler
from penstock.sinks.forwarder import Forwarder
from tests.ingest.ingest_life import Life, live

LISTENER = ListenerConfig.model_validate(
    {"name": "events", "protocol": "udp", "handlers": [{"type": "log"}, {"type": "discard", "name": "mine"}]}
)
TERM = 1 << 16


class RecordingHandler:
    """A handler that stores what it gets; ``before`` is called first, with the payloads."""

    def __init__(self, before: Callable[[list[bytes]], None] = lambda payloads: None) -> None:
        self.payloads: list[bytes] = []
        self.origins: list[Origin] = []
        self.on_wait: Callable[[], None] = lambda: None
        self._before = before

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        payloads = batch.column("payload").to_pylist()
        self._before(payloads)
        self.payloads += payloads
        self.origins.append(origin)
        return Delivered(len(payloads))


def publish(life: Life, *payloads: bytes) -> None:
    counts = Counts({"seen": len(payloads), "accepted": len(payloads)} if payloads else {"empty": 1, "taken": 1})
    life.publisher.publish(body(list(payloads)), counts, 0)


def forward(folder: Path, handler: Handler) -> None:
    """Forward all frames that are present."""
    forwarder = Forwarder(folder, "events", "mine", handler, None)
    forwarder.stop()
    try:
        forwarder.run()
    finally:
        forwarder.close()


def delivery_of(folder: Path) -> HandlerDelivery:
    (delivery,) = handler_deliveries(folder, ["events"])
    return delivery


def unaccounted(folder: Path) -> int:
    return delivery_of(folder).route().unaccounted


def start(folder: Path) -> Life:
    return live(folder, LISTENER, TERM)


def start_without_handler(folder: Path) -> Life:
    """Start the listener with the log alone."""
    return live(folder, LISTENER.model_copy(update={"handlers": LISTENER.handlers[:1]}), TERM)
