"""A listener as the supervisor has it: what a change of its configuration starts anew."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config import BufferConfig, ListenerConfig
from penstock.supervise.listener_processes import ListenerProcesses

LOG: dict[str, Any] = {"type": "log", "topic": "t"}


def listener(*handlers: dict[str, Any], **keys: Any) -> ListenerConfig:
    given = {"name": "a", "protocol": "udp", "port": 0, "so_rcvbuf": "64KiB", "handlers": [LOG, *handlers], **keys}
    return ListenerConfig.model_validate(given)


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[ListenerProcesses]:
    made = ListenerProcesses(listener({"type": "discard"}), BufferConfig(), tmp_path)
    yield made
    made.close()


def names(children: list[Any]) -> list[str]:
    return [child.name for child in children]


def test_its_children_are_a_receiver_and_a_forwarder_for_each_handler_but_the_log(intake: ListenerProcesses) -> None:
    assert names(intake.children) == ["receiver a", "forwarder a discard"]


def test_a_key_of_the_listener_starts_the_receiver_alone(intake: ListenerProcesses) -> None:
    changed = listener({"type": "discard"}, kill=True)
    assert intake.leaving(changed) == []
    assert names(intake.become(changed)) == ["receiver a"]


def test_a_setting_of_a_handler_starts_its_forwarder_alone_woken_as_before(intake: ListenerProcesses) -> None:
    before = intake.forwarders["discard"]
    changed = listener({"type": "discard", "timeout": "5s"})
    assert intake.leaving(changed) == [before]
    assert names(intake.become(changed)) == ["forwarder a discard"]
    assert intake.forwarders["discard"] is not before


def test_handlers_that_come_and_go_start_the_receiver_too_as_it_counts_for_them(intake: ListenerProcesses) -> None:
    changed = listener({"type": "console"})
    assert names(intake.leaving(changed)) == ["forwarder a discard"]
    assert names(intake.become(changed)) == ["receiver a", "forwarder a console"]
    assert names(intake.children) == ["receiver a", "forwarder a console"]
    assert names(intake.leaving(None)) == ["forwarder a console"]


def test_who_is_turned_away_hears_so_and_what_came_before_can_be_read(intake: ListenerProcesses) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(intake.sock.getsockname())
        sender.send(b"before")
        intake.turn_away()
        sender.send(b"after")
        with pytest.raises(ConnectionRefusedError):
            sender.recv(1)
    assert intake.sock.recv(100) == b"before"
    assert not select.select([intake.sock], [], [], 0)[0]
