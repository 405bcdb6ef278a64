"""``python -m bench [PART ...] [--with PEERS]``: measure the parts, else all but large ones; keep JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import peers
from bench.results import RESULTS, machine, save

PARTS = (
    "ingest",
    "latency",
    "requests",
    "tables",
    "landing",
    "logbuffer",
    "log",
    "filters",
    "kafka",
    "kafka_log",
    "ledger",
    "checks",
    "history",
    "typed",
)
LARGE = ("topics", "sql", "deletion", "sustained", "growth", "landing_kafka", "large_events", "hosts", "fleet")
"""Only where they are named."""


def main() -> None:
    """Run the parts named, else all but those of LARGE."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before all was measured"))  # and what was started, with it
    asked = _asked()
    console = Console(stderr=True)
    where, figures = machine(), dict[str, object]()
    try:
        for part in asked.parts:
            with console.status(f"measuring: {part}"):
                figures.update(importlib.import_module(f"bench.{part}").measure())
        for names in peers.in_groups(asked.peers or ()):
            with console.status(f"measuring: {', '.join(names)}"):
                figures.update(peers.measure(names, asked.rounds, asked.seconds))
    finally:
        # What was measured before a failure is kept: some parts take minutes.
        _report(figures, where, asked.results, console)


def _report(figures: dict[str, object], where: dict[str, object], results: Path, console: Console) -> None:
    """Show the figures, and write them to a file of ``results`` and to the standard output."""
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int | float) else str(value))
    console.print(table)
    console.print(f"kept in {save(figures, where, results)}")
    print(json.dumps({"machine": where, **figures}, indent=2))


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, *LARGE, []], metavar="PART", help=f"of {', '.join(PARTS + LARGE)}"
    )
    beside = f"peers beside Penstock, with commas between: {','.join(peers.MISSING)}"
    parser.add_argument("--with", dest="peers", metavar="PEERS", type=peers.named, help=beside)
    parser.add_argument("--rounds", type=int, default=3, help="with peers: rounds, each in turn")
    parser.add_argument("--seconds", type=float, default=2.0, help="with peers but Kafka: seconds of each measurement")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    asked = parser.parse_args()
    if not asked.parts and not asked.peers:
        asked.parts = PARTS
    return asked


if __name__ == "__main__":
    main()
