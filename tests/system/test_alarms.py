"""A loss in a running pipe is reported to a command, with the receipt."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

from penstock.testing.pipe import Pipe, until


def test_datagrams_dropped_by_the_kernel_raise_one_alarm(pipes: Callable[..., Pipe], tmp_path: Path) -> None:
    alarm_file = tmp_path / "told"
    pipe = pipes(f"alarms.command=tee -a {alarm_file}", "alarms.every=500ms", "listener.events-udp.so_rcvbuf=64KiB")
    pipe.datagrams(b"x")
    until(lambda: pipe.counts("events-udp")["accepted"] == 1)
    until(lambda: pipe.get("/balance")["topics"], what="it was looked at before")
    pipe.signal("receiver events-udp", signal.SIGSTOP)
    pipe.datagrams(*[b"x" * 1000] * 3000)
    pipe.signal("receiver events-udp", signal.SIGCONT)
    until(lambda: alarm_file.exists() and alarm_file.read_text().endswith("}"), 60, "the command is told")
    pipe.settled()
    alarm, _ = json.JSONDecoder().raw_decode(alarm_file.read_text())
    assert (alarm["alarm"], alarm["state"]) == ("PenstockKernelDrops", "begins")
    assert alarm["labels"] == {"listener": "events-udp"}
    assert "dropped by the kernel" in alarm["receipt"]
    assert alarm_file.read_text().count('"begins"') == 1
