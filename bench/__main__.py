"""``python -m bench [PART ...]``: measure the parts named, else all; print a table and JSON."""

from __future__ import annotations

import importlib
import json
import os
import platform
import signal
import sys

from rich.console import Console
from rich.table import Table

PARTS = ("ingest", "tables", "landing", "logbuffer", "log", "filters", "kafka", "ledger", "history")


def main() -> None:
    """Run the parts named, else all."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before all was measured"))  # and what was started, with it
    console = Console(stderr=True)
    results: dict[str, object] = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}"
    }
    for part in sys.argv[1:] or PARTS:
        with console.status(f"measuring: {part}"):
            results.update(importlib.import_module(f"bench.{part}").measure())
    table = Table("figure", "value")
    for name, value in results.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int | float) else str(value))
    console.print(table)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
