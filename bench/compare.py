"""``python -m bench.compare A B``: the figures of two results, and by how much B differs from A."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.results import load


def rows(a: dict[str, Any], b: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Name, both values and B as a multiple of A, of all figures that are in one of them."""
    ours, theirs = a["figures"], b["figures"]
    return [(name, *_row(ours.get(name), theirs.get(name))) for name in dict.fromkeys([*ours, *theirs])]


def _row(one: Any, other: Any) -> tuple[str, str, str]:
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return _shown(one), _shown(other), f"{other / one:.2f}" if numbers and one else ""


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int | float) else str(value)


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """What makes the comparison worth little: other machines, other loads."""
    of = [(part, key) for part in ("machine", "load") for key in {**a[part], **b[part]} if key != "load_before"]
    return [
        f"{part}: {key} is {a[part].get(key)!r} and {b[part].get(key)!r}"
        for part, key in of
        if a[part].get(key) != b[part].get(key)
    ]


def main() -> None:
    """Compare the two files named."""
    if len(sys.argv) != 3:
        sys.exit("two results, please: python -m bench.compare A B (make bench-compare A=... B=...)")
    a, b = (load(Path(name)) for name in sys.argv[1:])
    console = Console()
    table = Table("figure", f"A ({a['commit']})", f"B ({b['commit']})", "B / A")
    for row in rows(a, b):
        table.add_row(*row)
    console.print(table)
    for difference in differences(a, b):
        console.print(f"[yellow]not the same[/] {difference}")
    console.print("Only figures of one run can be trusted to be comparable: other load on the machine halves them.")


if __name__ == "__main__":
    main()
