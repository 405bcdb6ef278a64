"""What is measured: a server on loopback, and what it uses."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from abc import abstractmethod
from pathlib import Path
from typing import Any

from penstock.testing.pipe import free_ports
from penstock.testing.processes import anonymous, cpu_of_all, memory_of_all, resident

MIB = 1 << 20


class Peer:
    """A server on loopback. ``name`` begins its figures."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.name
        self.folder.mkdir()

    @property
    @abstractmethod
    def pid(self) -> int:
        """Of the process that began it."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether it takes what is sent."""

    @abstractmethod
    def stop(self) -> None:
        """End it."""

    def settle(self) -> None:
        """Wait until everything that it has taken is written: what still waits has not cost its CPU yet."""

    def discarded(self) -> int:
        """Return the messages that it has taken from the kernel and then dropped so far."""
        return 0

    def cpu(self) -> float:
        """CPU seconds of all its processes so far."""
        return cpu_of_all(self.pid)

    def memory(self, when: str) -> dict[str, float]:
        """MiB of all its processes: what is in memory, and what of that is their own and no file's."""
        return memory(self.pid, when)


class Started(Peer):
    """One that is a command."""

    program: str
    ends_by = signal.SIGTERM
    is_quiet = True
    """Whether it writes little; what one writes for each request would be a part of what is measured."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port, self.other_port = free_ports(2)
        self._output = self.folder / "output" if self.is_quiet else Path(os.devnull)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(self.command(), cwd=self.folder, stdout=output, stderr=output)

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it in the foreground."""

    @classmethod
    def variable(cls) -> str:
        """The environment variable that may name the program."""
        return f"BENCH_{cls.program.upper().replace('-', '_')}"

    @classmethod
    def path(cls) -> str | None:
        """Where the program is; None where it is not installed."""
        found = shutil.which(os.environ.get(cls.variable()) or cls.program)
        return found and str(Path(found).absolute())

    @classmethod
    def missing(cls) -> str:
        """What is to be installed before it can be measured; empty where nothing is."""
        return "" if cls.path() else f"{cls.program} is not on the PATH; {cls.variable()} may name it"

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> bool:
        if self._process.poll() is not None:
            sys.exit(f"{self.name} ended at once: {self._output.read_text()[-500:].strip()}")
        return self.listens()

    def listens(self) -> bool:
        """Whether its port is open."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self) -> None:
        self._process.send_signal(self.ends_by)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def memory(pid: int, when: str) -> dict[str, float]:
    """MiB of a process and those that it started, in memory and anonymous, as figures; what they share counts once."""
    return {
        f"pss_{when}_mib": memory_of_all(pid, resident) / MIB,
        f"pss_anon_{when}_mib": memory_of_all(pid, anonymous) / MIB,
    }


def told(client: str, *arguments: object) -> Any:
    """What a client in a process of its own has printed."""
    command = [sys.executable, "-m", f"bench.{client}", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
