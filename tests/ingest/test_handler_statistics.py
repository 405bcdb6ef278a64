"""What a listener's handlers tell of themselves."""

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


def test_each_handler_is_named_and_tells_what_its_process_left(tmp_path: Path) -> None:
    told = statistics_reader(tmp_path, LISTENER)
    assert told() == [{"name": "log"}, {"name": "console"}, {"name": "bin"}]
    page = StatePage(account_file(tmp_path, "events", "bin"), texts=2)
    for delivered in (3, 5):
        page.write(STATISTICS, {"delivered": delivered, "name": "whatever"})
        assert told()[2] == {"name": "bin", "delivered": delivered}


def test_what_plog_has_of_all_handlers_together_is_added_up() -> None:
    own = Statistics().as_dict()
    kafka = {"kafka": {"byteRate": {"count": 5, "rate": [1.0, 2.0, 3.0]}}, "failed_to_send": 2}
    handlers = [{"name": "log"}, {"name": "one", **kafka}, {"name": "two", **kafka}]
    told = with_handlers(own, handlers)
    assert told["kafka"]["byteRate"] == {"count": 10, "rate": [2.0, 4.0, 6.0]}
    assert told["kafka"]["resendRate"] == {"count": 0, "rate": [0.0, 0.0, 0.0]}
    assert (told["failed_to_send"], told["handlers"]) == (4, handlers)
    assert own["kafka"]["byteRate"]["count"] == 0
