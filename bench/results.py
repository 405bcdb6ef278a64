"""Results as files: the figures of one run with the machine, the load, and the commit they are of."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
LOAD = {
    "message_bytes": 256,
    "sender": "bench.sender on the same machine: 64 datagrams a call, cut by the kernel (UDP_SEGMENT)",
    "so_rcvbuf": "16MiB",
}
"""What the figures of UDP depend on most."""


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "cores": os.cpu_count(),
        "processor": _first("/proc/cpuinfo", "model name"),
        "memory_gib": round(int(_first("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20)),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "file_system": _file_system(tempfile.gettempdir()),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def _first(file: str, name: str) -> str:
    lines = Path(file).read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "0")


def _file_system(folder: str) -> str:
    done = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _commit() -> str:
    command = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def save(figures: dict[str, Any], where: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Keep the figures of one run taken on the machine ``where``; the file."""
    folder.mkdir(exist_ok=True)
    path = folder / time.strftime("%Y-%m-%dT%H-%M-%S.json")
    document = {"machine": where, "load": LOAD, "commit": _commit(), "figures": figures}
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def load(path: Path) -> dict[str, Any]:
    """The document that ``save`` wrote. Raises OSError, ValueError."""
    document: dict[str, Any] = json.loads(path.read_text())
    return document
