"""The table as a folder of Parquet files: each batch once, and only what was committed."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from penstock.landing.table.parquet_folder import ParquetFolder
from penstock.landing.table_paths import Layout
from tests.landing.table.table_rows import offsets_in, written


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.of(tmp_path / "tables")


def opened(layout: Layout) -> ParquetFolder:
    table = ParquetFolder(layout.landed, layout.listed, layout.aside)
    table.begin()
    return table


def read(layout: Layout) -> list[int]:
    """As anybody who reads all files of a folder."""
    dataset = ds.dataset(layout.landed, format="parquet", partitioning="hive")
    return sorted(dataset.to_table(columns=["offset"])["offset"].to_pylist())


def test_a_new_table_is_empty(layout: Layout) -> None:
    table = opened(layout)
    assert (table.newest(), table.active(), list(table.files())) == (-1, [], [])


def test_a_table_that_is_not_there_has_nothing(layout: Layout) -> None:
    table = ParquetFolder(layout.landed, layout.listed, layout.aside)
    assert (table.newest(), table.active(), list(table.files())) == (-1, [], [])


def test_batches_are_there_for_all_who_read_and_what_is_not_committed_is_not(layout: Layout) -> None:
    table = opened(layout)
    files = {batch: [written(table, [batch, batch + 100]), written(table, [batch + 200], "syslog")] for batch in (0, 4)}
    written(table, [99])
    for batch, of_batch in files.items():
        table.commit(batch, of_batch)
    assert read(layout) == [0, 4, 100, 104, 200, 204]
    for one in (table, ParquetFolder(layout.landed, layout.listed, layout.aside)):
        assert dict(one.files()) == {batch: [file.name for file in of] for batch, of in files.items()}
        assert [batch for batch, _ in one.files(1)] == [4]
        assert one.newest() == 4
        assert offsets_in(layout.landed, one.active()) == read(layout)


def test_a_batch_is_committed_once(layout: Layout) -> None:
    table = opened(layout)
    table.commit(3, [written(table, [1])])
    listed = layout.listed.read_bytes()
    for one in (table, opened(layout), ParquetFolder(layout.landed, layout.listed, layout.aside)):
        for batch in (3, 2, 0):
            one.commit(batch, [written(one, [99])])
    assert (read(layout), layout.listed.read_bytes()) == ([1], listed)


class Killed(BaseException):
    """Nothing runs any more."""


@pytest.mark.parametrize("moves", range(4))
def test_killed_between_the_list_and_the_moves_the_batch_is_finished_at_the_next_start(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    table = opened(layout)
    table.commit(0, [written(table, [0])])
    files, real, left = (
        [written(table, [n], kind) for n, kind in ((1, "event"), (2, "message"), (3, "syslog"))],
        os.replace,
        [moves],
    )

    def killed(source: Path, target: Path) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        try:
            table.commit(1, files)
        except Killed:
            assert moves < 3
    assert len(read(layout)) == 1 + moves
    again = opened(layout)
    assert read(layout) == [0, 1, 2, 3]
    again.commit(1, [written(again, [99])])
    assert read(layout) == [0, 1, 2, 3]


def test_killed_before_the_list_nothing_of_the_batch_is_there(layout: Layout) -> None:
    table = opened(layout)
    table.commit(0, [written(table, [0])])
    written(table, [1])
    again = opened(layout)
    assert (again.newest(), read(layout)) == (0, [0])
    again.commit(1, [written(again, [1])])
    assert read(layout) == [0, 1]


def test_a_torn_line_of_the_list_is_a_batch_that_was_not_committed(layout: Layout) -> None:
    table = opened(layout)
    table.commit(0, [written(table, [0])])
    whole = layout.listed.read_bytes()
    file = written(table, [1])
    table.commit(1, [file])
    both = layout.listed.read_bytes()
    os.replace(layout.landed / file.name, layout.aside / file.name)
    for size in range(len(whole), len(both)):
        layout.listed.write_bytes(both[:size])
        again = opened(layout)
        assert again.newest() in (0, 1)
        assert again.newest() == 0 or size == len(both) - 1, "all but the end of the line"
        if again.newest() == 0:
            assert (layout.listed.read_bytes(), read(layout)) == (whole, [0])
