"""Handlers that were taken out: what waited for them is dropped and counted, and they may come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.handover.paths import position_file
from penstock.supervise.removed_handlers import settle_removed
from tests.sinks.sinks_life import LISTENER, TERM, Taking, forward, publish, standing, start, unaccounted

ALONE = ListenerConfig.model_validate({"name": "events", "protocol": "udp", "handlers": [{"type": "log"}]})


def test_what_waited_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = start(tmp_path)
    publish(life, b"one", b"two")
    forward(tmp_path, Taking())
    publish(life, b"three")
    life.end()
    settle_removed(tmp_path, {"events": set()})
    (reported,) = caplog.messages
    assert "1 messages" in reported
    route = standing(tmp_path).route()
    assert (route.accepted, route.delivered, route.policy_drop, route.in_buffer) == (3, 2, 1, 0)
    assert not position_file(tmp_path, "events", "mine").exists()
    settle_removed(tmp_path, {"events": set()})
    assert caplog.messages == [reported]


def test_those_that_are_configured_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = start(tmp_path)
    publish(life, b"one")
    life.end()
    settle_removed(tmp_path, {"events": {"mine"}})
    assert caplog.messages == []
    assert standing(tmp_path).route().in_buffer == 1


def test_one_that_never_ran_leaves_too(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish(life, b"one")
    life.end()
    settle_removed(tmp_path, {})
    route = standing(tmp_path).route()
    assert (route.accepted, route.policy_drop, route.unaccounted) == (1, 1, 0)


def test_messages_that_came_while_it_was_out_are_not_its(tmp_path: Path) -> None:
    from tests.ingest.ingest_life import live

    life = start(tmp_path)
    publish(life, b"one", b"two")
    life.end()
    settle_removed(tmp_path, {})
    without = live(tmp_path, ALONE, TERM)
    publish(without, b"not for it")
    without.end()
    back = live(tmp_path, LISTENER, TERM)
    publish(back, b"three")
    handler = Taking()
    forward(tmp_path, handler)
    assert handler.payloads == [b"three"]
    route = standing(tmp_path).route()
    assert (route.accepted, route.delivered, route.policy_drop, unaccounted(tmp_path)) == (3, 1, 2, 0)


def test_what_it_had_in_its_hands_has_failed(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def killed(payloads: list[bytes]) -> None:
        raise Killed

    life = start(tmp_path)
    publish(life, b"one", b"two")
    try:
        forward(tmp_path, Taking(killed))
    except Killed:
        publish(life, b"three")
    life.end()
    settle_removed(tmp_path, {})
    route = standing(tmp_path).route()
    assert (route.handler_failed, route.policy_drop, route.in_buffer, route.unaccounted) == (2, 1, 0, 0)
