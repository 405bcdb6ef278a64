"""Folders of Parquet files: with the log of Spark's file sink, only the committed files count."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.audit.columns import OffsetColumns
from penstock.audit.tables.parquet_folder import ParquetFolder, _committed_by_spark
from penstock.audit.tables.table import TableUnreadable
from tests.audit.audited import write_parquet

COLUMNS = OffsetColumns("kafka_offset", "kafka_partition")


def entry(name: str, action: str = "add") -> str:
    return json.dumps({"path": f"file:///lake/t/{name}", "size": 1, "isDir": False, "action": action})


def write_log(folder: Path, **batches: list[str]) -> None:
    (folder / "_spark_metadata").mkdir(exist_ok=True)
    for name, entries in batches.items():
        (folder / "_spark_metadata" / name.strip("_")).write_text("\n".join(["v1", *entries]))


def offsets(folder: Path) -> list[int]:
    return sorted(offset for rows in ParquetFolder(folder).rows(COLUMNS, "t") for offset in rows.offset.tolist())


def test_committed_files_are_read_from_compacted_and_later_batches(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "t", [(0, offset) for offset in range(40)], files=4)
    write_log(folder, _8=[entry("part-30.parquet")], _10=[entry("part-20.parquet")])
    (folder / "_spark_metadata" / "9.compact").write_text("\n".join(["v1", entry("part-0.parquet")]))
    (folder / "_spark_metadata" / ".10.crc").write_bytes(b"crc")
    assert offsets(folder) == [*range(10), *range(20, 30)]
    write_log(folder, _11=[entry("part-0.parquet", "delete"), entry("part-30.parquet")])
    assert offsets(folder) == list(range(20, 40))


def test_committed_file_that_is_gone_is_lost(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "t", [(0, 1)], files=1)
    write_log(folder, _0=[entry("part-0.parquet"), entry("part-1.parquet")])
    assert offsets(folder) == [1]
    assert ParquetFolder(folder).lost_files == ["part-1.parquet"]


@given(
    st.binary(max_size=60) | st.sampled_from([b"v1\n[]", b'v1\n{"path": 1, "action": "add"}', b"v1\n" + b"[" * 9000])
)
def test_any_log_of_spark_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-log"
    (folder / "_spark_metadata").mkdir(parents=True, exist_ok=True)
    (folder / "_spark_metadata" / "0").write_bytes(content)
    with contextlib.suppress(TableUnreadable):
        assert _committed_by_spark(folder) is not None
