"""Where the parts of a running penstock are found: a file of its data directory, which is of this run only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.files.file_system import OS, replace_durably
from penstock.files.json_values import parse_object

FILE_NAME = "endpoints.json"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """``supervisor`` is its process id, ``pids`` those of its children; ``listeners``: their hosts and ports."""

    supervisor: int
    pids: Mapping[str, int | None]
    listeners: Mapping[str, tuple[str, int]]
    http: str = ""
    grpc: str = ""
    flight: str = ""


def write_endpoints(data_dir: Path, endpoints: Endpoints) -> None:
    """Leave them for others. Raises OSError."""
    replace_durably(OS, data_dir / FILE_NAME, json.dumps(asdict(endpoints)).encode(), synced=False)


def read_endpoints(data_dir: Path) -> Endpoints | None:
    """What the last supervisor has left; None where there is nothing that can be read. Raises OSError."""
    try:
        told = parse_object((data_dir / FILE_NAME).read_bytes())
        pids = {str(name): None if pid is None else int(pid) for name, pid in told.get("pids", {}).items()}
        listeners = {str(name): (str(host), int(port)) for name, (host, port) in told.get("listeners", {}).items()}
        addresses = [str(told.get(name, "")) for name in ("http", "grpc", "flight")]
        return Endpoints(int(told["supervisor"]), pids, listeners, *addresses)
    except (FileNotFoundError, KeyError, TypeError, ValueError, AttributeError):
        return None
