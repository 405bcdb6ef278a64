"""A listener's processes: which of them a change of its configuration restarts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from penstock.config import BufferConfig, ListenerConfig
from penstock.supervise.listener_processes import ListenerProcesses

LOG: dict[str, Any] = {"type": "log", "topic": "t"}


def listener(*handlers: dict[str, Any], **keys: Any) -> ListenerConfig:
    document = {"name": "a", "protocol": "udp", "port": 0, "so_rcvbuf": "64KiB", "handlers": [LOG, *handlers], **keys}
    return ListenerConfig.model_validate(document)


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[ListenerProcesses]:
    processes = ListenerProcesses(listener({"type": "discard"}), BufferConfig(), tmp_path)
    yield processes
    processes.close()


def names(children: list[Any]) -> list[str]:
    return [child.name for child in children]


def test_children_are_a_receiver_and_a_forwarder_per_handler_except_the_log(intake: ListenerProcesses) -> None:
    assert names(intake.children) == ["receiver a", "forwarder a discard"]


def test_changed_listener_key_restarts_only_the_receiver(intake: ListenerProcesses) -> None:
    changed = listener({"type": "discard"}, kill=True)
    assert intake.ending_forwarders(changed) == []
    assert names(intake.change_to(changed)) == ["receiver a"]


def test_access_to_a_file_changes_only_with_its_configuration(tmp_path: Path) -> None:
    def configured(**keys: Any) -> ListenerConfig:
        local = {"name": "a", "protocol": "unix_datagram", "path": str(tmp_path / "log"), "handlers": [LOG]}
        return ListenerConfig.model_validate(local | keys)

    intake = ListenerProcesses(configured(), BufferConfig(), tmp_path)
    try:
        (tmp_path / "log").chmod(0o660)  # as SocketMode= of systemd's unit does
        assert names(intake.change_to(configured(kill=True))) == ["receiver a"]
        assert (tmp_path / "log").stat().st_mode & 0o777 == 0o660
        intake.change_to(configured(mode="0600"))
        assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    finally:
        intake.close()


def test_changed_handler_setting_restarts_only_its_forwarder(intake: ListenerProcesses) -> None:
    before = intake.forwarders["discard"]
    changed = listener({"type": "discard", "timeout": "5s"})
    assert intake.ending_forwarders(changed) == [before]
    assert names(intake.change_to(changed)) == ["forwarder a discard"]
    assert intake.forwarders["discard"] is not before


def test_added_or_removed_handlers_restart_the_receiver_too(intake: ListenerProcesses) -> None:
    changed = listener({"type": "console"})
    assert names(intake.ending_forwarders(changed)) == ["forwarder a discard"]
    assert names(intake.change_to(changed)) == ["receiver a", "forwarder a console"]
    assert names(intake.children) == ["receiver a", "forwarder a console"]
    assert names(intake.ending_forwarders(None)) == ["forwarder a console"]


def test_turned_away_sender_is_refused_and_earlier_datagrams_can_be_read(intake: ListenerProcesses) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(intake.sock.getsockname())
        sender.send(b"before")
        intake.turn_away()
        sender.send(b"after")
        with pytest.raises(ConnectionRefusedError):
            sender.recv(1)
    assert intake.sock.recv(100) == b"before"
    assert not wait([intake.sock], 0)
