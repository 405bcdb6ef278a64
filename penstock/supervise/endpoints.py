"""What the supervisor says of itself, beside the data: addresses and process ids.

The file may be one that a killed supervisor left, or damaged: then it says nothing, until the next one writes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ENDPOINTS = "endpoints.json"


def endpoints(data_dir: Path) -> dict[str, Any]:
    """``supervisor`` (a process id), ``pids``, ``listeners`` and the daemon's addresses; empty where nobody says."""
    try:
        document = json.loads((data_dir / ENDPOINTS).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    whole = isinstance(document, dict) and isinstance(document.get("supervisor"), int)
    tables = ("pids", "listeners")
    return document if whole and all(isinstance(document.get(name), dict) for name in tables) else {}
