"""The process of a receiver."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from penstock.config import BufferConfig, ListenerConfig
from penstock.handover.heartbeat import HEARTBEAT, Pulse, take_pulse
from penstock.handover.paths import state_file
from penstock.handover.state_page import STATISTICS, StatePage
from penstock.ingest.receiver import Receiver, describe_shortage
from penstock.ingest.sockets import CannotListen, open_socket


def test_receiver_that_cannot_start_does_not_look_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = ListenerConfig(name="lines", protocol="tcp", host="127.0.0.1", port=0, max_line=32768)
    page = StatePage(state_file(tmp_path, "lines"))
    old = {"pid": 1, "at_s": time.monotonic() - 60, "paused_at_s": 0.0, "pause_s": 0.0}
    page.write(STATISTICS, {"pid": 1, "total": 7, HEARTBEAT: old})
    pulses: list[Pulse] = []

    def fail(*_: object) -> None:
        pulses.append(take_pulse(page.read(STATISTICS), page.path))
        raise CannotListen("a reason")

    monkeypatch.setattr(Receiver, "_make_message_receiver", fail)
    with open_socket(listener) as sock, contextlib.closing(page):
        task = {
            "listener": listener.model_dump(mode="json"),
            "buffer": BufferConfig(term_length=2 << 20, slots=64).model_dump(mode="json"),
            "folder": str(tmp_path),
            "wakes": [],
            "socket": os.dup(sock.fileno()),
        }
        with pytest.raises(CannotListen, match="a reason"):
            Receiver(task)
        statistics = page.read(STATISTICS)
    assert (statistics["pid"], statistics["total"]) == (1, 7)
    assert [(pulse.is_running, pulse.is_stopped) for pulse in pulses] == [(True, False)]


@pytest.mark.parametrize(
    ("protocol", "keys"), [("udp", "buffer.term_length or buffer.slots"), ("tcp", "buffer.term_length")]
)
def test_shortage_names_each_key_that_makes_the_files_smaller(tmp_path: Path, protocol: str, keys: str) -> None:
    listener = ListenerConfig.model_validate({"name": "a", "protocol": protocol, "port": 0})
    task = {"listener": listener.model_dump(mode="json"), "buffer": BufferConfig().model_dump(mode="json")}
    assert f"lower {keys}, or move data_dir" in str(describe_shortage(task | {"folder": str(tmp_path)}))
