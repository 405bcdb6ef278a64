"""Statistics of a listener's handlers."""

from __future__ import annotations

from pathlib import Path

from penstock.config import ListenerConfig
from penstock.handover.paths import account_file
from penstock.handover.state_page import STATISTICS, StatePage
from penstock.ingest.handler_statistics import statistics_reader, with_handlers
from penstock.wire.plog.statistics import Statistics

LISTENER = ListenerConfig.model_validate(
    {
        "name": "events",
        "protocol": "udp",
        "handlers": [{"type": "log"}, {"type": "console"}, {"type": "discard", "name": "bin"}],
    }
)


def test_each_handler_has_its_name_and_statistics(tmp_path: Path) -> None:
    statistics = statistics_reader(tmp_path, LISTENER)
    assert statistics() == [{"name": "log"}, {"name": "console"}, {"name": "bin"}]
    page = StatePage(account_file(tmp_path, "events", "bin"), texts=2)
    for delivered in (3, 5):
        page.write(STATISTICS, {"delivered": delivered, "name": "whatever"})
        assert statistics()[2] == {"name": "bin", "delivered": delivered}


def test_figures_of_all_handlers_are_summed() -> None:
    listener_statistics = Statistics().as_dict()
    kafka = {"kafka": {"byteRate": {"count": 5, "rate": [1.0, 2.0, 3.0]}}, "failed_to_send": 2}
    handlers = [{"name": "log"}, {"name": "one", **kafka}, {"name": "two", **kafka}]
    statistics = with_handlers(listener_statistics, handlers)
    assert statistics["kafka"]["byteRate"] == {"count": 10, "rate": [2.0, 4.0, 6.0]}
    assert statistics["kafka"]["resendRate"] == {"count": 0, "rate": [0.0, 0.0, 0.0]}
    assert (statistics["failed_to_send"], statistics["handlers"]) == (4, handlers)
    assert listener_statistics["kafka"]["byteRate"]["count"] == 0
