"""Parquet files in an object store."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.landing.storage.object_errors import TablesAway
from penstock.landing.storage.object_path import ObjectPath, TablePath
from penstock.landing.storage.parquet_files import WHOLE_FILE_BYTES, NewParquet, parquet_file, read_metadata
from penstock.landing.table_paths import Layout
from tests.object_store import S3Server, Wire


def write(path: TablePath, rows: int) -> int:
    new = NewParquet(path)
    texts = pa.array([f"{n * 7919 % 104729:040}" for n in range(rows)], pa.string())
    pq.write_table(pa.table({"n": pa.array(range(rows), pa.int64()), "s": texts}), new.sink)
    return new.finish()


@pytest.fixture(params=["here", "in a store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> TablePath:
    if request.param == "here":
        return tmp_path
    layout: Layout = request.getfixturevalue("at_url")
    return layout.landed


@pytest.mark.parametrize("rows", [0, 10, 600_000])
def test_written_rows_are_read(folder: TablePath, rows: int) -> None:
    size = write(folder / "kind=event/a.parquet", rows)
    assert (size > WHOLE_FILE_BYTES) == (rows > 1000)
    assert read_metadata(folder / "kind=event/a.parquet").num_rows == rows
    with parquet_file(folder / "kind=event/a.parquet") as file:
        assert file.read(columns=["n"])["n"].to_pylist() == list(range(rows))


def test_discarded_file_does_not_exist(folder: TablePath) -> None:
    new = NewParquet(folder / "a.parquet")
    pq.write_table(pa.table({"n": [1]}), new.sink)
    new.discard()
    assert not (folder / "a.parquet").exists()


def test_missing_file_raises_file_not_found(folder: TablePath) -> None:
    with pytest.raises(FileNotFoundError):
        parquet_file(folder / "none.parquet")


def test_read_raises_if_the_store_becomes_unreachable(at_url: Layout, s3: S3Server) -> None:
    assert at_url.store is not None
    write(at_url.landed / "a.parquet", 600_000)
    wire = Wire(s3.address)
    file = parquet_file(ObjectPath(at_url.store.root, s3.options(wire.address)) / "landed" / "a.parquet")
    with wire.cut(), pytest.raises(TablesAway):
        file.read()
    file.close()
    wire.end()
