"""The instances of Penstock that run on this machine, found by the lock that each supervisor holds open.

Short commands import this module for an error's text: it imports no configuration.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.process.kernel import open_files
from penstock.supervise.endpoints import ENDPOINTS, LOCK, endpoints

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class NotRunning(PenstockError, RuntimeError):
    """No penstock runs on this data directory."""


class Instance(NamedTuple):
    """A running supervisor."""

    pid: int
    data_dir: Path
    http: str
    """Address of its daemon's HTTP endpoint; empty during a start."""

    @property
    def text(self) -> str:
        answers = f", answers at {self.http}" if self.http else ""
        return f"process {self.pid} on {self.data_dir}{answers}"


def running_instances() -> list[Instance]:
    """Return the instances whose files this user may see, by process id."""
    locks = {Path(target) for _, target in open_files() if target.endswith(f"/{LOCK}")}
    folders = {lock.parent for lock in locks if (lock.parent / ENDPOINTS).exists()}
    instances = [
        Instance(pid, folder, str(endpoints(folder).get("http", "")))
        for folder in folders
        if (pid := running_supervisor(folder)) is not None
    ]
    return sorted(instances)


def describe_instances(unreachable: str = "") -> str:
    """Return the running instances as part of an error's text; none of them answers at the address ``unreachable``."""
    texts = []
    for instance in running_instances():
        if unreachable and instance.http == unreachable:
            return f"process {instance.pid} on {instance.data_dir} is starting or stopping it; try again"
        texts.append(instance.text)
    if texts:
        return f"running on this machine: {'; '.join(texts)}"
    return (
        "no penstock runs on this machine" + (" as this user" if os.geteuid() else "") + " (`penstock up` starts one)"
    )


def instance_elsewhere(data_dir: Path, address: str) -> Instance | None:
    """Return the instance with another data directory that answers at a local ``address``; None without one.

    Without this, a command for a data directory whose instance is stopped, or in a folder without one, would show the
    contents of another one. Raises OSError if this user may not see the data directory.
    """
    with contextlib.suppress(NotRunning):
        find_supervisor(data_dir)
        return None
    host, _, port = address.rpartition(":")
    if host not in LOOPBACK_HOSTS:
        return None
    for instance in running_instances():
        published = endpoints(instance.data_dir)
        addresses = (str(published.get(name, "")) for name in ("http", "grpc"))
        if port in {published_address.rpartition(":")[2] for published_address in addresses}:
            return instance
    return None


def running_supervisor(data_dir: Path) -> int | None:
    """Return the process id of the penstock that runs on ``data_dir``, if any."""
    try:
        return find_supervisor(data_dir)
    except (NotRunning, OSError):
        return None


def find_supervisor(data_dir: Path) -> int:
    """Return the process id of the supervisor. Raises NotRunning."""
    try:
        descriptor = os.open(data_dir / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotRunning(f"no penstock runs on {data_dir}") from None
    try:
        # A process id in a file proves nothing, because ids are reused: the lock shows that a supervisor runs.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with contextlib.suppress(FileNotFoundError):
            pid = int(endpoints(data_dir).get("supervisor", 0))
            if pid and _has_open(pid, os.fstat(descriptor)):  # otherwise the file is left by a killed supervisor
                return pid
        raise NotRunning(f"the penstock that runs on {data_dir} is still starting: try again") from None
    finally:
        os.close(descriptor)
    raise NotRunning(f"no penstock runs on {data_dir}")


def _has_open(pid: int, file: os.stat_result) -> bool:
    """Report whether a process has a file open. Raises PermissionError if that is not visible to this user."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(entry.stat(), file):
                return True
    return False
