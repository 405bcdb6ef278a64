"""What the processes of a listener's handlers tell of themselves, for STAT.

Each leaves a mapping of what it likes to tell as text STATISTICS of its page; under ``kafka`` plog's meters by
name (``wire.meters``), under ``failed_to_send`` how many messages could not be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.config import ListenerConfig
from penstock.handover.paths import account_file
from penstock.handover.state_page import STATISTICS, StatePage

StatisticsReader = Callable[[], list[dict[str, Any]]]
"""The statistics of each of a listener's handlers, at least its name."""


def statistics_reader(folder: Path, listener: ListenerConfig) -> StatisticsReader:
    """Reads what the handlers of ``listener`` left in ``folder``."""
    pages: dict[str, StatePage] = {}

    def read(handler: str) -> dict[str, Any]:
        path = account_file(folder, listener.name, handler)
        if handler not in pages and path.exists():
            pages[handler] = StatePage(path, texts=STATISTICS + 1)
        return dict(pages[handler].read(STATISTICS) or {}) if handler in pages else {}

    return lambda: [{**read(handler.label), "name": handler.label} for handler in listener.routed]


def with_handlers(statistics: Mapping[str, Any], handlers: list[dict[str, Any]]) -> dict[str, Any]:
    """A listener's statistics with those of its handlers; what plog has of all together is added up."""
    meters = [statistics["kafka"], *(handler["kafka"] for handler in handlers if "kafka" in handler)]
    failed = sum(handler.get("failed_to_send", 0) for handler in handlers)
    kafka = {name: _sum_of([each[name] for each in meters if name in each]) for name in statistics["kafka"]}
    return {**statistics, "failed_to_send": statistics["failed_to_send"] + failed, "kafka": kafka, "handlers": handlers}


def _sum_of(meters: list[dict[str, Any]]) -> dict[str, Any]:
    rates = zip(*(meter["rate"] for meter in meters), strict=True)
    return {"count": sum(meter["count"] for meter in meters), "rate": [sum(rate) for rate in rates]}
