"""The instances of Penstock that run on this machine, found by the lock that each supervisor holds open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.supervise.endpoints import ENDPOINTS, endpoints
from penstock.supervise.reload import running_supervisor
from penstock.supervise.supervisor import LOCK

PROCESSES = Path("/proc")


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
    folders = {folder for pid in _process_ids() for folder in _folders_with_open_lock(pid)}
    instances = [
        Instance(pid, folder, str(endpoints(folder).get("http", "")))
        for folder in folders
        if (pid := running_supervisor(folder)) is not None
    ]
    return sorted(instances)


def describe_instances() -> str:
    """Return the running instances as part of an error's text."""
    texts = [instance.text for instance in running_instances()]
    if texts:
        return f"running on this machine: {'; '.join(texts)}"
    return (
        "no penstock runs on this machine" + (" as this user" if os.geteuid() else "") + " (`penstock up` starts one)"
    )


def _process_ids() -> Iterator[int]:
    return (int(entry.name) for entry in PROCESSES.iterdir() if entry.name.isdigit())


def _folders_with_open_lock(pid: int) -> Iterator[Path]:
    # A process of another user, or one that ends in this moment, is left out.
    with contextlib.suppress(OSError):
        for descriptor in (PROCESSES / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                target = Path(os.readlink(descriptor))
                if target.name == LOCK and (target.parent / ENDPOINTS).exists():
                    yield target.parent
