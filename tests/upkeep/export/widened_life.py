"""A process that lands batches of a typed table and exports them, until it is killed."""

from __future__ import annotations

from pathlib import Path

from penstock.config.keys.export import ExportConfig
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.upkeep.export.exporter import Exporter
from tests.landing.typed.typed_life import Life, event
from tests.landing.writing.messages import AT, source

NARROW = TypedTable("click", "click", (Column("ms", "int", "ms"), Column("price", "decimal(6,2)", "price")))
WIDE = TypedTable("click", "click", (Column("ms", "bigint", "ms"), Column("price", "decimal(20,4)", "price")))
ROWS = 20
LARGE = 1 << 40


def number_of(batch: int, row: int, first_wide: int) -> int:
    """Return the value of ``ms`` in a row: from a batch on, numbers that no ``int`` holds."""
    return batch * ROWS + row + (LARGE if batch >= first_wide else 0)


def land(layout: Layout, table: TypedTable, batch: int, first_wide: int) -> None:
    """Land a batch of clicks."""
    numbers = [number_of(batch, row, first_wide) for row in range(ROWS)]
    places = ".0001" if batch >= first_wide else ".25"
    rows = [
        (batch * ROWS + row, event(f"{batch}-{row}", ms=number, price=f"{batch}{places}"))
        for row, number in enumerate(numbers)
    ]
    Life(layout, (table,)).land(batch, [source(rows)], landed_at=AT + batch)


def main(folder: str, to: str, name: str, first_wide: int) -> None:
    """Export and land in turn; ``first_wide``: the first batch with wide columns, -1 for none yet."""
    layout = Layout.for_tables(Path(folder))
    config = ExportConfig(name=name, to=to, source="events_click", **({"table": name} if "delta:" not in to else {}))
    exporter = Exporter(layout, config, lambda hours: None)
    while True:
        exporter.step()
        land(layout, WIDE if first_wide >= 0 else NARROW, table_of(layout).newest() + 1, first_wide % (1 << 30))
