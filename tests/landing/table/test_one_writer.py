"""A Delta table in an object store: each batch once even if answers are lost, and one writer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from penstock.config.syntax.tables_url import TablesUrl
from penstock.landing.storage.object_errors import TablesAway
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import begin_table, table_of
from penstock.landing.table.one_writer import AnotherWriter
from penstock.landing.table_paths import Layout
from penstock.upkeep.compaction.compaction import apply_vector, compact_table, remove_old_files
from tests.landing.table.foreign_writer import add_without_vector, delete_by_vector
from tests.landing.table.table_rows import write_file
from tests.object_store import S3Server, Wire


@pytest.fixture
def wire(s3: S3Server) -> Iterator[Wire]:
    wire = Wire(s3.address)
    yield wire
    wire.end()


def table_over_wire(wire: Wire, layout: Layout, s3: S3Server) -> DeltaTable:
    """Return the table, reached over a wire that the test can cut."""
    assert layout.store is not None
    return DeltaTable(replace(layout.store, options=s3.options(wire.address)) / "landed")


def offsets(layout: Layout) -> list[int]:
    """Return the offsets that another program reads."""
    assert layout.store is not None
    table = deltalake.DeltaTable(str(layout.landed), storage_options=layout.store.storage_options())
    return sorted(map(int, pa.table(table.scan(columns=["offset"]))["offset"].to_pylist()))


def with_other_state(layout: Layout, state: Path) -> Layout:
    """Return the layout of the same URL for a pipeline with another state."""
    assert layout.store is not None
    return Layout.for_tables(TablesUrl(layout.store.root, state, layout.store.options))


def test_batch_is_committed_once(at_url: Layout) -> None:
    table = begin_table(at_url)
    table.commit(0, [write_file(table, [1, 2])])
    table.commit(0, [write_file(table, [1, 2])])
    assert begin_table(at_url).newest() == 0
    assert offsets(at_url) == [1, 2]
    assert [batch for batch, _ in table.files()] == [0]


def test_commit_is_kept_if_its_answer_is_lost(at_url: Layout, s3: S3Server, wire: Wire) -> None:
    begin_table(at_url)
    table = table_over_wire(wire, at_url, s3)
    files = [write_file(table, [1, 2])]
    wire.lose_answer(b"_delta_log/00000000000000000001.json HTTP")
    try:
        table.commit(0, files)
    except TablesAway:
        table.commit(0, files)
    assert wire.lost
    assert table.newest() == 0
    assert offsets(at_url) == [1, 2]


def test_commit_raises_while_server_is_unreachable(at_url: Layout, s3: S3Server, wire: Wire) -> None:
    begin_table(at_url)
    table = table_over_wire(wire, at_url, s3)
    files = [write_file(table, [1])]
    with wire.cut(), pytest.raises(TablesAway):
        table.commit(0, files)
    assert table.newest() == -1
    table.commit(0, files)
    assert offsets(at_url) == [1]


def test_small_files_are_merged(at_url: Layout) -> None:
    table = begin_table(at_url)
    for batch in range(3):
        table.commit(batch, [write_file(table, [batch])])
    assert compact_table(at_url.landed) == (3, 1)
    assert len(table_of(at_url).active()) == 1
    assert offsets(at_url) == [0, 1, 2]
    assert DeltaTable(at_url.landed).newest() == 2


def test_second_pipeline_is_refused(at_url: Layout, tmp_path: Path) -> None:
    table = begin_table(at_url)
    other_layout = with_other_state(at_url, tmp_path / "elsewhere")
    with pytest.raises(AnotherWriter, match="another pipeline") as error:
        begin_table(other_layout)
    assert len(str(error.value).splitlines()) == 1
    for write in (lambda: DeltaTable(other_layout.landed).commit(0, []), lambda: remove_old_files(other_layout.landed)):
        with pytest.raises(AnotherWriter):
            write()
    table.commit(0, [write_file(table, [1])])
    assert offsets(at_url) == [1]
    assert table_of(other_layout).newest() == 0  # it may read


def test_second_of_two_simultaneous_creators_is_refused(at_url: Layout, tmp_path: Path) -> None:
    """The second pipeline checks before the first one has created the table."""

    class Late(DeltaTable):
        def _create(self) -> None:
            begin_table(at_url)
            super()._create()

    with pytest.raises(AnotherWriter):
        Late(with_other_state(at_url, tmp_path / "elsewhere").landed).begin()
    begin_table(at_url).commit(0, [])


def test_commit_fails_if_another_pipeline_claims_the_table_first(at_url: Layout) -> None:
    begin_table(at_url)
    claims = []

    class Unaware(DeltaTable):
        def _check_writer(self) -> None:
            super()._check_writer()
            if not claims and at_url.store is not None:
                opened = deltalake.DeltaTable(str(at_url.landed), storage_options=at_url.store.storage_options())
                opened.alter.set_table_properties({"penstock.writer": "x on moon"}, raise_if_not_exists=False)
                claims.append(True)

    table = Unaware(at_url.landed)
    with pytest.raises(AnotherWriter, match="moon"):
        table.commit(0, [write_file(table, [1])])
    assert offsets(at_url) == []


def test_pipeline_with_moved_state_continues(at_url: Layout, tmp_path: Path) -> None:
    begin_table(at_url)
    shutil.copytree(at_url.tables, tmp_path / "moved")
    table = begin_table(with_other_state(at_url, tmp_path / "moved"))
    table.commit(0, [write_file(table, [1])])
    assert offsets(at_url) == [1]


def test_reader_without_state_cannot_commit(at_url: Layout) -> None:
    table = begin_table(at_url)
    table.commit(0, [write_file(table, [1])])
    assert at_url.store is not None
    reader = DeltaTable(replace(at_url.store, state=None) / "landed")
    assert reader.newest() == 0
    with pytest.raises(AnotherWriter, match="only read"):
        reader.commit(1, [])


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
def test_file_that_is_listed_twice_is_rewritten(at_url: Layout, tmp_path: Path) -> None:
    """trinodb/trino#31253, at a URL."""
    local = DeltaTable(tmp_path / "landed")
    local.begin()
    local.commit(0, [write_file(local, range(4))])
    (name,) = map(str, local.active())
    delete_by_vector(tmp_path / "landed", name, [1])
    add_without_vector(tmp_path / "landed", name)
    assert at_url.store is not None
    table = DeltaTable(at_url.store / "landed")
    for path in (tmp_path / "landed").rglob("*.*"):
        if path.is_file() and not path.name.startswith("."):
            with path.open("rb") as file:
                (table.folder / str(path.relative_to(tmp_path / "landed"))).upload(file)
    assert offsets(at_url) == [0, 0, 1, 2, 2, 3, 3]
    (twice,) = table.active()
    assert (twice.copies, twice.is_plain) == (2, False)
    apply_vector(table, twice)
    assert offsets(at_url) == [0, 2, 3]
    assert all(file.is_plain for file in table.active())
