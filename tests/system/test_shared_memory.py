"""What all processes need is in memory once."""

from __future__ import annotations

from pathlib import Path

from penstock.testing.pipe import LISTENERS, Pipe
from penstock.testing.processes import anonymous, descendants, memory_of_all, resident


def test_processes_share_what_is_loaded_and_are_listed_by_what_they_do(pipe: Pipe) -> None:
    assert pipe.process
    supervisor = pipe.process.pid
    listed = {pid: Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0") for pid in descendants(supervisor)}
    assert set(listed.values()) == {
        "penstock.server.daemon: log daemon",
        *(f"penstock.ingest.receiver: receiver {name}" for name in LISTENERS),
    }
    receivers = [pid for pid, name in listed.items() if "receiver" in name]
    assert all(anonymous(pid) < 24 << 20 for pid in receivers), "40 MiB for one that shares nothing"
    assert memory_of_all(supervisor, resident) < 210 << 20, "above 310 MiB where they share nothing"
