"""The daemon's API in a separate process, so that its threads and memory can be measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = """
import sys
from pathlib import Path
from penstock.process.tuning import tune
tune("log daemon")  # before grpc and Arrow are imported
from penstock.process.kernel import raise_file_limit
from tests.server.running import Running
raise_file_limit()
running = Running(Path(sys.argv[1]))
print(running.bound.grpc, running.bound.flight, running.bound.http, flush=True)
sys.stdin.read()
running.stop()
"""


@dataclass(frozen=True)
class ServedProcess:
    """A running process and its addresses."""

    pid: int
    grpc: str
    flight: str
    http: str

    def threads_and_mib(self) -> tuple[int, int]:
        """Return the current number of threads and resident memory."""
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return int(lines["Threads"]), int(lines["VmRSS"].split()[0]) // 1024


@contextmanager
def served_process(folder: Path) -> Iterator[ServedProcess]:
    """Serve the topics in ``folder`` as the daemon does."""
    command = [sys.executable, "-c", _PROGRAM, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        try:
            yield ServedProcess(process.pid, *process.stdout.readline().split())
            process.stdin.close()
            process.wait(30)
        finally:
            process.kill()
