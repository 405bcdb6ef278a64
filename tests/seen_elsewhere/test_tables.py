"""Public reports on Delta tables: what other writers and readers did to rows, and what is in Penstock's table."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from penstock.landing.table.delta_table import DeltaTable
from penstock.upkeep.compaction.compaction import compact_table
from tests.landing.table.table_rows import write_file


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    delta_table = DeltaTable(tmp_path / "landed")
    delta_table.begin()
    for batch in range(6):
        delta_table.commit(batch, [write_file(delta_table, [batch])])
    return delta_table


def read_by_deltalake(table: DeltaTable) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(str(table.folder))


def test_merges_after_a_checkpoint_repeat_no_row(table: DeltaTable) -> None:
    """delta-io/delta-rs#3047: each merge after a checkpoint multiplied the rows."""
    read_by_deltalake(table).create_checkpoint()
    for batch in range(6, 9):
        assert compact_table(table.folder)[1] == 1
        table.commit(batch, [write_file(table, [batch])])
    assert sorted(read_by_deltalake(table).to_pyarrow_table()["offset"].to_pylist()) == list(range(9))
    assert len(DeltaTable(table.folder).active()) == 2


def test_each_file_has_its_number_of_rows_in_the_log(table: DeltaTable) -> None:
    """delta-io/delta-rs#2477, delta-io/delta#7266: files without statistics counted as empty or stopped readers."""
    compact_table(table.folder)
    table.commit(6, [write_file(table, [6, 7])])
    actions = pa.table(read_by_deltalake(table).get_add_actions(flatten=True))
    assert sorted(actions["num_records"].to_pylist()) == [2, 6]


def test_filter_on_a_column_without_bounds_keeps_its_rows(table: DeltaTable) -> None:
    """delta-io/delta-rs#2169: a filter on a column whose statistics are empty found nothing."""
    rows = read_by_deltalake(table).to_pyarrow_dataset().to_table(filter=ds.field("topic") == "t")
    assert rows.num_rows == 6
