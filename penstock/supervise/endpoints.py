"""Addresses and process ids that the supervisor publishes in a file of the data directory.

The file may be left by a killed supervisor, or damaged: then it counts as empty until the next supervisor writes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ENDPOINTS = "endpoints.json"
LOCK = "lock"
"""File of the data directory that a running supervisor has locked."""


def endpoints(data_dir: Path) -> dict[str, Any]:
    """Return ``supervisor`` (a process id), ``pids``, ``listeners`` and the daemon's addresses.

    The document is empty without a valid file.
    """
    try:
        document = json.loads((data_dir / ENDPOINTS).read_bytes())
    except (OSError, ValueError, RecursionError):  # RecursionError: a damaged file may be nested deeply
        return {}
    is_complete = isinstance(document, dict) and isinstance(document.get("supervisor"), int)
    tables = ("pids", "listeners")
    return document if is_complete and all(isinstance(document.get(name), dict) for name in tables) else {}
