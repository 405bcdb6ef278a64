"""The cause of drops by the kernel, and the one change that helps."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.console import kernel_drops
from penstock.console.kernel_drops import KernelDrops, receiver_load

BURST = KernelDrops("in", granted_bytes=212_992, rmem_max=212_992, load=0.12)


def event(**more: Any) -> dict[str, Any]:
    text = "7 datagrams that the kernel dropped while in was stopped for 12.4 s"
    return {
        "kind": "stopped",
        "at": 5_000,
        "place": "in",
        "what": "in",
        "lost": {"kernel_dropped": 7},
        "text": text,
    } | more


def test_figures_name_buffer_limit_and_load() -> None:
    assert BURST.figures == (
        "the receive buffer holds 212,992 bytes, net.core.rmem_max is 212,992, the receiver uses 12% of a core"
    )
    assert KernelDrops("in", 0).figures == ""


def test_burst_needs_a_larger_buffer_and_the_limit_of_the_kernel_if_that_is_lower() -> None:
    assert BURST.advice == (
        "allow a larger buffer, sysctl -w net.core.rmem_max=851968, and set listener.in.so_rcvbuf = 851968"
    )
    assert replace(BURST, rmem_max=16 << 20).advice == "enlarge the receive buffer: listener.in.so_rcvbuf = 851968"


def test_busy_receiver_needs_a_second_one() -> None:
    assert replace(BURST, load=0.93).advice.endswith("listener.in.receivers = 2")


def test_stopped_receiver_is_the_cause_of_its_drops(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = tmp_path / "rmem_max"
    limit.write_text("4194304\n")
    monkeypatch.setattr(kernel_drops, "RMEM_MAX", limit)
    others = [
        event(at=4_000),  # before the hour
        event(place="other", what="other"),
        event(lost={}),
        event(kind="loss"),
    ]
    statistics = {"receive_buffer": 65_536, "pid": os.getpid()}
    drops = KernelDrops.gather("in", statistics, [event(), *others], since_ms=5_000)
    assert (drops.absences, drops.rmem_max, drops.granted_bytes) == ((event(),), 4_194_304, 65_536)
    assert drops.figures.endswith("while in was stopped for 12.4 s")
    assert drops.advice.startswith("find what stopped the receiver")
    limit.unlink()
    unknown = KernelDrops.gather("in", {}, [], since_ms=0)
    assert unknown == KernelDrops("in", 0)


def test_load_of_a_busy_process_is_near_one_and_unknown_for_none() -> None:
    code = "import time\nprint(flush=True)\nwhile time.process_time() < 1.2: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        process.stdout.readline()
        process.stdout.readline()
        load = receiver_load(process.pid)
        assert load is not None
        assert 0 < load <= 1.1
        process.communicate("\n")
    assert receiver_load(0) is None
