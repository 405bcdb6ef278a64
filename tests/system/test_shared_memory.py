"""Memory shared by all processes is loaded once."""

from __future__ import annotations

from pathlib import Path

from penstock.handover.paths import buffer_file
from penstock.process.kernel import descendants
from penstock.testing.pipe import LISTENERS, Pipe, wait_until
from penstock.testing.processes import anonymous, memory_of_all, resident

TCP = "events-tcp"


def test_processes_share_loaded_code_and_are_listed_by_role(pipe: Pipe) -> None:
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


def resident_kib(pid: int, file: str) -> int:
    """Return the resident KiB of a file in a process."""
    maps = Path(f"/proc/{pid}/smaps").read_text().split(file)[1:]
    return sum(int(each.partition("Rss:")[2].split()[0]) for each in maps)


def test_idle_log_buffer_is_not_resident(pipe: Pipe) -> None:
    assert pipe.process
    everybody = descendants(pipe.process.pid)
    file = str(buffer_file(pipe.data_dir / "buffers", TCP))
    for _ in range(20):
        pipe.lines((b"x" * 1000 + b"\n") * 1000)
    wait_until(lambda: pipe.counts(TCP)["accepted"] == 20_000)
    users = [pid for pid in everybody if file in Path(f"/proc/{pid}/maps").read_text()]
    assert len(users) == 2, "the receiver and the log daemon"
    wait_until(lambda: max(resident_kib(pid, file) for pid in users) < 100, 10)
