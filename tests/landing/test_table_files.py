"""The table's own list of files: the file sink's, and Delta's log."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from penstock.landing.table_files import DELTA_LOG, table_list

from penstock.landing.checkpoint_repair import CheckpointLost, check_batches, sweep
from penstock.landing.table_paths import Layout
from tests.spark.spark_helpers import HandWritten, landed_message


def three_batches(table: HandWritten) -> None:
    table.commit({"a": 2}, [landed_message(n, "a") for n in range(2)])
    table.commit({"a": 2, "b": 1}, [landed_message(0, "b")])
    table.commit({"a": 5, "b": 1}, [landed_message(n, "a") for n in range(2, 5)])


def test_files_of_a_batch_whose_list_was_compacted_are_still_its_own(table: HandWritten) -> None:
    three_batches(table)
    table.commit({"a": 6}, [landed_message(5, "a")], compact=True)
    table.commit({"a": 7}, [landed_message(6, "a")])
    found = dict(table_list(table.layout).files())
    assert found == {n: [f"kind=message/date=2023-11-14/type=x/part-{n}.parquet"] for n in range(5)}


def test_what_spark_wrote_escaped_is_the_name_of_a_file(table: HandWritten) -> None:
    three_batches(table)
    entry = table.layout.sink_log / "0"
    entry.write_text(f'v1\n{{"path":"file://{table.layout.landed}/kind=event/type=a%2520b/p.parquet","action":"add"}}')
    assert dict(table_list(table.layout).files())[0] == ["kind=event/type=a%20b/p.parquet"]


def delta(layout: Layout, version: int, *actions: dict[str, object]) -> None:
    entry = layout.landed / DELTA_LOG / f"{version:020}.json"
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_text("".join(json.dumps(action) + "\n" for action in ({"commitInfo": {}}, *actions)))


def txn(batch: int) -> dict[str, object]:
    return {"txn": {"appId": "x", "version": batch}}


def add(name: str) -> dict[str, object]:
    return {"add": {"path": name, "dataChange": True}}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.of(tmp_path / "tables")


def test_deltas_log_says_which_batch_added_which_files(layout: Layout) -> None:
    delta(layout, 0, {"metaData": {}}, txn(0), add("kind=event/type=a%2520b/p.parquet"), add("q.parquet"))
    delta(layout, 1, txn(1))
    delta(layout, 2, {"remove": {"path": "q.parquet"}}, add("optimised.parquet"))
    delta(layout, 3, txn(2), add("r.parquet"))
    assert list(table_list(layout).files()) == [
        (0, ["kind=event/type=a%20b/p.parquet", "q.parquet"]),
        (1, []),
        (2, ["r.parquet"]),
    ]
    assert list(table_list(layout).files(2)) == [(2, ["r.parquet"])]
    assert table_list(layout).newest() == 2


def test_a_table_of_delta_whose_checkpoint_is_gone_is_refused(layout: Layout) -> None:
    delta(layout, 0, txn(0), add("p.parquet"))
    with pytest.raises(CheckpointLost):
        check_batches(layout)


def test_files_of_a_table_of_delta_are_left_to_delta(layout: Layout) -> None:
    delta(layout, 0, txn(0))
    orphan = layout.landed / "kind=event" / "part-0.parquet"
    orphan.parent.mkdir()
    orphan.write_bytes(b"x")
    assert sweep(layout) == 0
    assert orphan.exists()


def test_a_table_of_parquet_is_made_of_all_its_batches_files(table: HandWritten) -> None:
    three_batches(table)
    table.commit({"a": 6}, [landed_message(5, "a")], compact=True)
    table.commit({"a": 7}, [landed_message(6, "a")])
    assert table_list(table.layout).active() == [
        f"kind=message/date=2023-11-14/type=x/part-{n}.parquet" for n in range(5)
    ]


def test_a_table_of_delta_is_made_of_what_was_added_and_not_removed(layout: Layout) -> None:
    delta(layout, 0, txn(0), add("a%20b.parquet"), add("q.parquet"))
    delta(layout, 1, {"remove": {"path": "q.parquet"}}, add("optimised.parquet"))
    assert table_list(layout).active() == ["a b.parquet", "optimised.parquet"]
    checkpoint = pa.table({"add": [{"path": "from-checkpoint.parquet"}, None], "txn": [None, {"version": 1}]})
    pq.write_table(checkpoint, layout.landed / DELTA_LOG / f"{1:020}.checkpoint.parquet")
    delta(layout, 2, txn(2), add("r.parquet"))
    assert table_list(layout).active() == ["from-checkpoint.parquet", "r.parquet"]
