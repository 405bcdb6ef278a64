"""Statistics of the processes of a listener's handlers, for STAT.

Each process writes a mapping as text STATISTICS of its page; ``kafka`` has plog's meters by name (``wire.meters``),
``failed_to_send`` the number of messages that could not be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.config import ListenerConfig
from penstock.handover.heartbeat import take_pulse
from penstock.handover.paths import account_file
from penstock.handover.state_page import STATISTICS, StatePage

StatisticsReader = Callable[[], list[dict[str, Any]]]
"""Reader of the statistics of each handler; each mapping has at least its name."""


def statistics_reader(folder: Path, listener: ListenerConfig) -> StatisticsReader:
    """Return a reader of the statistics that the handlers of ``listener`` write below ``folder``."""
    pages: dict[str, StatePage] = {}

    def read(handler: str) -> dict[str, Any]:
        path = account_file(folder, listener.name, handler)
        # A page is opened once: a handler that starts later creates its file then.
        if handler not in pages and path.exists():
            pages[handler] = StatePage(path, texts=STATISTICS + 1)
        statistics = dict(pages[handler].read(STATISTICS) or {}) if handler in pages else {}
        # The log daemon reads heartbeats itself: this copy would be as old as the receiver's.
        take_pulse(statistics)
        return statistics

    return lambda: [{**read(handler.label), "name": handler.label} for handler in listener.routed]


def with_handlers(statistics: Mapping[str, Any], handlers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a listener's statistics together with its handlers' statistics; figures that plog has once are summed."""
    meters = [statistics["kafka"], *(handler["kafka"] for handler in handlers if "kafka" in handler)]
    failed = sum(handler.get("failed_to_send", 0) for handler in handlers)
    kafka = {name: _sum_meters([meter[name] for meter in meters if name in meter]) for name in statistics["kafka"]}
    return {**statistics, "failed_to_send": statistics["failed_to_send"] + failed, "kafka": kafka, "handlers": handlers}


def _sum_meters(meters: list[dict[str, Any]]) -> dict[str, Any]:
    rates = zip(*(meter["rate"] for meter in meters), strict=True)
    return {"count": sum(meter["count"] for meter in meters), "rate": [sum(rate) for rate in rates]}
