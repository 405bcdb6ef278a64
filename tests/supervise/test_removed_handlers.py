"""Removed handlers: messages that wait for them are dropped and counted, and the handlers may return."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.handover.dropped_frames import last_move
from penstock.handover.paths import position_file, state_file
from penstock.handover.state_page import StatePage
from penstock.supervise.removed_handlers import settle_removed_handlers
from tests.ingest.ingest_life import live
from tests.sinks.sinks_life import LISTENER, TERM, RecordingHandler, delivery_of, forward, publish, start, unaccounted

LOG_ONLY = ListenerConfig.model_validate({"name": "events", "protocol": "udp", "handlers": [{"type": "log"}]})


def test_waiting_messages_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = start(tmp_path)
    publish(life, b"one", b"two")
    forward(tmp_path, RecordingHandler())
    publish(life, b"three")
    life.end()
    settle_removed_handlers(tmp_path, {"events": set()})
    (reported,) = caplog.messages
    assert "1 messages" in reported
    route = delivery_of(tmp_path).route()
    assert (route.accepted, route.delivered, route.policy_drop, route.in_buffer) == (3, 2, 1, 0)
    assert not position_file(tmp_path, "events", "mine").exists()
    settle_removed_handlers(tmp_path, {"events": set()})
    assert caplog.messages == [reported]


def test_configured_handlers_are_not_touched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = start(tmp_path)
    publish(life, b"one")
    life.end()
    settle_removed_handlers(tmp_path, {"events": {"mine"}})
    assert caplog.messages == []
    assert delivery_of(tmp_path).route().in_buffer == 1


def test_handler_that_never_ran_is_settled(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish(life, b"one")
    life.end()
    settle_removed_handlers(tmp_path, {})
    route = delivery_of(tmp_path).route()
    assert (route.accepted, route.policy_drop, route.unaccounted) == (1, 1, 0)


def test_returning_handler_does_not_get_messages_of_its_absence(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish(life, b"one", b"two")
    life.end()
    settle_removed_handlers(tmp_path, {})
    without = live(tmp_path, LOG_ONLY, TERM)
    publish(without, b"not for it")
    without.end()
    back = live(tmp_path, LISTENER, TERM)
    publish(back, b"three")
    handler = RecordingHandler()
    forward(tmp_path, handler)
    assert handler.payloads == [b"three"]
    route = delivery_of(tmp_path).route()
    assert (route.accepted, route.delivered, route.policy_drop, unaccounted(tmp_path)) == (3, 1, 2, 0)


def test_messages_that_were_dropped_before_a_power_failure_are_not_dropped_again(tmp_path: Path) -> None:
    handlers = [{"type": "log"}, {"type": "discard", "name": "mine", "overflow": "drop"}]
    listener = ListenerConfig.model_validate({"name": "events", "protocol": "udp", "handlers": handlers})
    life = live(tmp_path, listener, TERM)
    position, sent = position_file(tmp_path, "events", "mine"), 0
    on_disk = position.read_bytes()
    page = StatePage(state_file(tmp_path, "events"))
    while not last_move(page, "mine").to:
        on_disk = position.read_bytes()
        log = life.position
        log.position = log.claim = life.publisher.position
        log.mark = life.publisher.total
        publish(life, b"x" * 1500)
        sent += 1
    page.close()
    life.end()
    # The power failure takes the page with the floor.
    position.write_bytes(on_disk)
    settle_removed_handlers(tmp_path, {})
    route = delivery_of(tmp_path).route()
    assert (route.accepted, route.policy_drop, route.unaccounted) == (sent, sent, 0)


def test_batch_in_progress_of_a_removed_handler_has_failed(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def killed(payloads: list[bytes]) -> None:
        raise Killed

    life = start(tmp_path)
    publish(life, b"one", b"two")
    try:
        forward(tmp_path, RecordingHandler(killed))
    except Killed:
        publish(life, b"three")
    life.end()
    settle_removed_handlers(tmp_path, {})
    route = delivery_of(tmp_path).route()
    assert (route.handler_failed, route.policy_drop, route.in_buffer, route.unaccounted) == (2, 1, 0, 0)
