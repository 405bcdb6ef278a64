"""Another table and a file of ids are sources: rows of the one must be in the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.audit.audited import Row, run_audit, write_delta, write_iceberg, write_parquet

ROWS = [(partition, offset) for partition in range(2) for offset in range(10, 30)]


def test_rows_of_one_table_must_be_in_the_other_by_their_offsets(tmp_path: Path) -> None:
    source = write_delta(tmp_path / "bronze", [row for row in ROWS if row != (1, 20)])
    silver = write_parquet(tmp_path / "silver", [*ROWS[1:], (0, 15), (1, 99), (2, 0)])
    status, report, errors = run_audit("", str(source), silver)
    assert (status, report.get("missing"), report.get("doubled"), report.get("unexplained")) == (1, 1, 1, 3), errors
    parts = report["partitions"]
    assert [part["missing"] for part in parts] == [[[10, 11]], []]
    assert [part["unexplained"] for part in parts] == [[], [[20, 21], [99, 100]]]
    assert run_audit("", str(source), source)[0] == 0


def with_meta(rows: Sequence[Row]) -> pa.Table:
    """Return a table whose column ``meta`` has each row's position as JSON text."""
    texts = [json.dumps({"source": {"offset": offset, "part": part}, "topic": "orders"}) for part, offset in rows]
    return pa.table({"meta": texts, "total": range(len(rows))})


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_offsets_in_a_json_column_of_files_are_found(tmp_path: Path, kind: str) -> None:
    rows = list(ROWS)
    pq.write_table(with_meta(rows), tmp_path / "source.parquet")
    rows[rows.index((1, 17))] = (1, 18)
    address = str(tmp_path / "t.parquet")
    if kind == "parquet":
        pq.write_table(with_meta(rows), address)
    elif kind == "delta":
        deltalake.write_deltalake(address, with_meta(rows))
    else:
        address = write_iceberg(tmp_path, with_meta(rows)).metadata_location
    names = {"offset": "$.source.offset", "partition": "$.source.part", "topic-column": "$.topic"}
    options = [word for option, path in names.items() for word in (f"--{option}", f"meta->>'{path}'")]
    status, report, errors = run_audit("", str(tmp_path / "source.parquet"), address, *options)
    assert (status, report.get("missing"), report.get("doubled")) == (1, 1, 1), errors
    assert report["partitions"][1]["missing"] == [[17, 18]]


def test_texts_that_are_no_json_are_rows_without_an_offset(tmp_path: Path) -> None:
    pq.write_table(pa.table({"meta": ['{"o":0}', '{"o":1}', '{"o":2}']}), tmp_path / "source.parquet")
    pq.write_table(pa.table({"meta": ['{"o":0}', "{", None, '{"o":2}', '{"o":1}']}), tmp_path / "t.parquet")
    status, report, errors = run_audit(
        "", str(tmp_path / "source.parquet"), tmp_path / "t.parquet", "--offset", "meta->'$.o'"
    )
    assert (status, report.get("rows_without_offset"), report.get("missing")) == (2, 2, 0), errors


def test_json_numbers_of_files_that_are_not_whole_are_rows_without_an_offset(tmp_path: Path) -> None:
    pq.write_table(pa.table({"meta": ['{"o":0}', '{"o":1}', '{"o":2}']}), tmp_path / "source.parquet")
    pq.write_table(pa.table({"meta": ['{"o":0}', '{"o":1.5}', '{"o":"x"}', '{"o":2}']}), tmp_path / "t.parquet")
    status, report, errors = run_audit(
        "", str(tmp_path / "source.parquet"), tmp_path / "t.parquet", "--offset", "meta->'$.o'"
    )
    assert (status, report.get("rows_without_offset"), report.get("missing")) == (1, 2, 1), errors


@pytest.mark.parametrize(
    "address", ["postgresql://u:secret-word@[bad/db?table=t", "postgresql://u:secret/word@host/db?table=t"]
)
def test_malformed_address_is_not_decided_and_quotes_no_password(tmp_path: Path, address: str) -> None:
    source = write_parquet(tmp_path / "source", ROWS)
    (tmp_path / "penstock.toml").write_text(f'data_dir = "{tmp_path}/data"\n')
    status, _, errors = run_audit("", str(source), address, "--config", str(tmp_path / "penstock.toml"))
    assert status == 2
    records = "".join(path.read_text() for path in (tmp_path / "data").rglob("*.json"))
    assert not {word for word in ("secret", "word") if word in errors + records}


def test_holes_of_the_source_need_no_row(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "bronze", [(0, 3), (0, 9)])
    status, report, errors = run_audit("", str(source), write_delta(tmp_path / "silver", [(0, 3), (0, 9)]))
    assert (status, report.get("missing"), report.get("doubled")) == (0, 0, 0), errors
    assert report["verdict"].endswith("complete: 2 records checked, each once")


def write_ids(path: Path, ids: list[str]) -> Path:
    pq.write_table(pa.table({"id": ids}), path)
    return path


@pytest.mark.parametrize("kind", ["file", "table"])
def test_ids_of_a_file_or_table_must_be_in_the_table(tmp_path: Path, kind: str) -> None:
    ids = ["a", 'b,"c', "d", "ü", "e"]
    if kind == "file":
        source = tmp_path / "ids.txt"
        source.write_text("\n".join(ids) + "\n")
    else:
        source = write_ids(tmp_path / "source.parquet", ids)
    table = write_ids(tmp_path / "t.parquet", ["a", 'b,"c', "ü", "ü", "e", "stranger"])
    status, report, errors = run_audit("", str(source), table, "--id", "id=key")
    assert (status, report.get("missing"), report.get("doubled"), report.get("unexplained")) == (1, 1, 1, 1), errors
    (part,) = report["partitions"]
    assert (part["missing"], part["doubled"]) == ([[2, 3]], [[3, 4]])


def test_ids_of_files_without_the_column_are_not_decided(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    write_ids(tmp_path / "source" / "a.parquet", ["a", "b"])
    pq.write_table(pa.table({"other": [1, 2, 3]}), tmp_path / "source" / "b.parquet")
    table = write_ids(tmp_path / "t.parquet", ["a", "b"])
    status, report, errors = run_audit("", str(tmp_path / "source"), table, "--id", "id=key")
    assert (status, report.get("undecided"), report.get("required")) == (2, 3, 5), errors


def test_source_that_cannot_be_used_is_not_decided(tmp_path: Path) -> None:
    table = write_ids(tmp_path / "t.parquet", ["a"])
    (tmp_path / "ids.txt").write_text("a\n")
    for source, options, text in (
        (str(tmp_path / "ids.txt"), (), "name the table's column with --id"),
        (str(tmp_path / "ids.txt"), ("--id", "id=key", "--since", "1h"), "need a topic as the source"),
        (str(tmp_path / "none.txt"), ("--id", "id=key"), "cannot be read as one id a line"),
        (str(table), (), "no column of Kafka offsets is recognised among id"),
        ("kafka://127.0.0.1:1/", (), "write a topic as kafka://HOST:PORT/TOPIC"),
        (f"{tmp_path}/nowhere", (), "nowhere does not exist"),
    ):
        status, report, errors = run_audit("", source, table, *options)
        assert (status, report, text in errors) == (2, {}, True), errors


def test_table_with_rows_of_several_topics_is_no_source(tmp_path: Path) -> None:
    source = write_delta(tmp_path / "bronze", ROWS)
    write_delta(source, ROWS, "invoices")
    status, _, errors = run_audit("", str(source), write_parquet(tmp_path / "silver", ROWS))
    assert (status, "has rows of the topics invoices, orders" in errors) == (2, True), errors
