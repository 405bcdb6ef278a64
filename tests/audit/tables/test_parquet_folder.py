"""Folders of Parquet files: with the log of Spark's file sink, only the committed files count."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from penstock.audit.columns import OffsetColumns
from penstock.audit.tables.parquet_folder import ParquetFolder, _committed_by_spark, _named_offsets
from penstock.audit.tables.table import TableUnreadable
from penstock.landing.storage.object_path import ObjectPath
from tests.audit.audited import RECORDS, filled_topic, run_audit, write_parquet
from tests.audit.test_audit import send_transactions, visible_rows
from tests.kafka.kafka_helpers import Topics
from tests.object_store import BUCKET, S3Server

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


def test_columns_are_those_of_all_files(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "t", [(0, 1)], files=1)
    (folder / "day=1").mkdir()
    pq.write_table(pa.table({"added": [1]}), folder / "day=1" / "a.parquet")
    names = ParquetFolder(folder).column_names()
    assert names == ["added", "kafka_topic", "kafka_partition", "kafka_offset", "total", "day"]


@pytest.mark.parametrize("name", ["metadata/00001-a.metadata.json", ".hoodie/hoodie.properties", "snapshot/snapshot-1"])
def test_folder_with_files_of_earlier_versions_is_refused(tmp_path: Path, name: str) -> None:
    folder = write_parquet(tmp_path / "t", [(0, 1)], files=1)
    (folder / name).parent.mkdir()
    (folder / name).write_text("")
    with pytest.raises(TableUnreadable, match=r"is an? (Iceberg|Hudi|Paimon) table"):
        ParquetFolder(folder)


def test_folder_in_an_object_store_is_audited(s3: S3Server, tmp_path: Path) -> None:
    rows = [(0, offset) for offset in range(20)]
    source = write_parquet(tmp_path / "source", rows)
    system = s3.file_system()
    address = f"s3://{BUCKET}/{tmp_path.name}/orders"
    for number in (0, 10):
        table = pq.read_table(source / f"part-{number}.parquet").slice(1 if number else 0)
        pq.write_table(table, f"{BUCKET}/{tmp_path.name}/orders/day=1/part-{number}.parquet", filesystem=system)
    options = [text for name, setting in s3.options().items() for text in ("--store", f"{name}={setting}")]
    status, report, errors = run_audit("", str(source), address, *options)
    assert (status, report.get("missing"), report.get("kind")) == (1, 1, "Parquet"), errors
    assert report["partitions"][0]["missing"] == [[10, 11]]
    status, report, errors = run_audit("", str(source), f"s3://{BUCKET}/{tmp_path.name}/none", *options)
    assert (status, "has no Parquet files" in errors) == (2, True), errors
    path = ObjectPath(address, s3.options())
    assert [rows.file for rows in ParquetFolder(path).rows(COLUMNS, "t")] == [
        "orders/day=1/part-0.parquet",
        "orders/day=1/part-10.parquet",
    ]


def write_named(folder: Path, files: dict[str, int]) -> Path:
    """Write files without offsets, by name and number of rows."""
    for name, count in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"total": list(range(count))}), folder / name)
    return folder


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("topics/orders/partition=0/orders+0+0000000042.snappy.parquet", ("orders", 0, 42)),
        ("my.orders+3+0000000000+0000000041.parquet", ("my.orders", 3, 0)),
        ("my-orders-1-42.parquet", ("my-orders", 1, 42)),
        ("part-00000-2f0a8dd6-1c9e-4a5e-9c2c-6b1f6c6f3c3f-c000.snappy.parquet", None),
        ("part-0.parquet", None),
    ],
)
def test_names_of_sinks_tell_topic_partition_and_offset(name: str, named: tuple[str, int, int] | None) -> None:
    assert _named_offsets(name) == named


def test_offsets_are_found_in_the_names_of_files(topics: Topics, tmp_path: Path) -> None:
    topic, _ = filled_topic(topics)

    def name(begin: int) -> str:
        return f"topics/{topic}/partition=0/{topic}+0+{begin:010}.snappy.parquet"

    folder = write_named(tmp_path / "t", {name(begin): 20 for begin in range(0, RECORDS, 20)})
    status, report, errors = run_audit(topics, topic, folder)
    assert (status, report.get("missing"), report.get("required")) == (0, 0, RECORDS), errors
    assert "in the names of its files" in report["proof"]
    write_named(folder, {name(0): 17, name(10): 10})
    (folder / name(40)).unlink()
    status, report, errors = run_audit(topics, topic, folder)
    part = report["partitions"][0]
    assert (status, part["missing"], part["doubled"]) == (1, [[40, 60]], [[10, 17]]), errors
    assert run_audit(topics, topic, folder, "--all")[0] == 2
    status, _, errors = run_audit(topics, "another", folder)
    assert (status, "another" in errors) == (2, True)


def test_files_named_by_offsets_need_no_rows_for_control_records_and_tombstones(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new()
    send_transactions(topics, topic, aborted={2, 5, 6})
    topics.plain(topic, [b"a", None, b"c"])
    visible = visible_rows(topics, topic, 24)
    # Two files of all records with a value, by the first of them.
    first, second = [offset for _, offset in visible[:12]], [offset for _, offset in visible[12:]]
    files = {f"{topic}+0+{first[0]}.parquet": 12, f"{topic}+0+{second[0]}.parquet": 11}
    status, report, errors = run_audit(topics, topic, write_named(tmp_path / "t", files))
    assert (status, report.get("missing"), report.get("doubled")) == (0, 0, 0), errors
    assert report["partitions"][0]["absences"]["shifted"] > 0
    write_named(tmp_path / "t", {f"{topic}+0+{first[0]}.parquet": 10})
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("missing"), report.get("doubled")) == (1, 2, 0), errors


def test_files_of_several_folders_share_the_offsets_of_a_partition(topics: Topics, tmp_path: Path) -> None:
    topic, _ = filled_topic(topics)
    # A sink that sorts by hour: events of two hours alternate.
    files = {
        f"hour=10/{topic}+0+0.parquet": 25,
        f"hour=11/{topic}+0+3.parquet": 20,
        f"hour=12/{topic}+0+40.parquet": 15,
    }
    status, report, errors = run_audit(topics, topic, write_named(tmp_path / "t", files))
    assert (status, report.get("missing"), report.get("doubled")) == (0, 0, 0), errors
    write_named(tmp_path / "t", {f"hour=11/{topic}+0+3.parquet": 10})
    status, report, errors = run_audit(topics, topic, tmp_path / "t")
    assert (status, report.get("missing"), report.get("doubled")) == (1, 10, 0), errors


@given(st.text(max_size=60) | st.from_regex(r"[a-z]+[+-][0-9]{1,30}[+-][0-9]{1,30}\.parquet", fullmatch=True))
def test_offsets_of_any_name_fit_a_column(name: str) -> None:
    named = _named_offsets(name)
    assert named is None or (0 <= named[1] < 1 << 63 and 0 <= named[2] < 1 << 62)


@given(
    st.binary(max_size=60) | st.sampled_from([b"v1\n[]", b'v1\n{"path": 1, "action": "add"}', b"v1\n" + b"[" * 9000])
)
def test_any_log_of_spark_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-log"
    (folder / "_spark_metadata").mkdir(parents=True, exist_ok=True)
    (folder / "_spark_metadata" / "0").write_bytes(content)
    with contextlib.suppress(TableUnreadable):
        assert _committed_by_spark(LocalFileSystem(), str(folder), ["_spark_metadata/0"]) is not None
