"""Repair of table and Spark checkpoint before a start."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import deltalake
import pytest

from penstock.files.errors import UnknownFormat
from penstock.landing.journal import Journal
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table.landed_table import begin_table, table_of
from penstock.landing.table_paths import Layout
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.repair.checkpoint_rebuild import CheckpointLost
from penstock.upkeep.repair.checkpoint_repair import check_batches, repair_checkpoint, sweep
from tests.landing.table.table_rows import write_file
from tests.spark.spark_helpers import LANDED_AT, HandWritten, landed_event, landed_message


@pytest.fixture
def table_of_two_batches(table: HandWritten) -> HandWritten:
    table.commit({"t": 1}, [landed_message(0)])
    table.commit({"t": 2}, [landed_message(1)])
    return table


def test_intact_checkpoint_is_not_changed(table_of_two_batches: HandWritten) -> None:
    assert repair_checkpoint(table_of_two_batches.layout) == []
    check_batches(table_of_two_batches.layout)


@pytest.mark.parametrize("content", [b"", b"v1\n{", b"\x00" * 40])
def test_torn_commit_is_removed(table_of_two_batches: HandWritten, content: bytes) -> None:
    entry = table_of_two_batches.layout.checkpoint / "commits" / "1"
    entry.write_bytes(content)
    assert repair_checkpoint(table_of_two_batches.layout) == [str(entry)]
    assert (table_of_two_batches.layout.checkpoint / "offsets" / "1").exists()


@pytest.mark.survives("landing from the log", "other format")
@pytest.mark.parametrize("folder", ["commits", "offsets"])
def test_entry_in_another_format_of_spark_stops_the_repair(table_of_two_batches: HandWritten, folder: str) -> None:
    """Removing it would make Spark repeat batches, and it is whole."""
    checkpoint = table_of_two_batches.layout.checkpoint
    if folder == "offsets":
        (checkpoint / "commits" / "1").unlink()
    entry = checkpoint / folder / "1"
    entry.write_bytes(entry.read_bytes().replace(b"v1", b"v2", 1))
    before = entry.read_bytes()
    with pytest.raises(UnknownFormat, match=f"{folder}/1 has Spark's format v2, and only v1 is known: run the"):
        repair_checkpoint(table_of_two_batches.layout)
    assert entry.read_bytes() == before


def test_torn_plan_without_commit_is_removed(table_of_two_batches: HandWritten) -> None:
    checkpoint = table_of_two_batches.layout.checkpoint
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "offsets" / "1").write_bytes(b"")
    assert repair_checkpoint(table_of_two_batches.layout) == [str(checkpoint / "offsets" / "1")]
    assert (checkpoint / "offsets" / "0").exists()


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("torn", [False, True])
def test_batch_missing_from_table_is_repeated(table_of_two_batches: HandWritten, planned: bool, torn: bool) -> None:
    """Remove later plans too; otherwise Spark would continue with them."""
    offsets, commits = (table_of_two_batches.layout.checkpoint / name for name in ("offsets", "commits"))
    (offsets / "2").write_text((offsets / "1").read_text())
    (commits / "2").write_bytes(b"" if torn else (commits / "1").read_bytes())
    (commits / ".2.crc").touch()
    later = [str(offsets / "3")] if planned else []
    if planned:
        (offsets / "3").write_text((offsets / "1").read_text())
    assert sorted(repair_checkpoint(table_of_two_batches.layout)) == sorted([*later, str(commits / "2")])
    assert (sorted(os.listdir(commits)), sorted(os.listdir(offsets))) == (["0", "1"], ["0", "1", "2"])
    assert repair_checkpoint(table_of_two_batches.layout) == []


def test_new_table_keeps_old_checkpoint(table_of_two_batches: HandWritten) -> None:
    table_of_two_batches.commit({"t": 3}, [])
    shutil.rmtree(table_of_two_batches.layout.landed)
    assert repair_checkpoint(table_of_two_batches.layout) == []


def test_table_without_checkpoint_is_refused(table_of_two_batches: HandWritten) -> None:
    check_batches(table_of_two_batches.layout)
    shutil.rmtree(table_of_two_batches.layout.checkpoint)
    with pytest.raises(CheckpointLost, match="up to 1"):
        check_batches(table_of_two_batches.layout)


def test_only_uncommitted_files_are_removed(table_of_two_batches: HandWritten) -> None:
    table_of_two_batches.commit({"t": 3}, [landed_event(2, "u")], landed_at=LANDED_AT + 20_000)
    Journal(table_of_two_batches.layout).update()
    folder = table_of_two_batches.layout.landed / "kind=quarantine/date=2023-11-14"
    folder.mkdir(parents=True)
    # Another program may still commit what it has written.
    foreign = "part-00000-4d5f1c6e-5b0c-4b6f-9c2e-6a1f0e2d3c4b-c000.snappy.parquet"
    for name in (f"{0:032x}.parquet", foreign):
        shutil.copy(table_of_two_batches.layout.landed / table_of_two_batches.files[0], folder / name)
    assert sweep(table_of_two_batches.layout) == 1
    assert os.listdir(folder) == [foreign]
    assert all((table_of_two_batches.layout.landed / name).exists() for name in table_of_two_batches.files)


def test_listed_files_stay_before_commit(table_of_two_batches: HandWritten) -> None:
    (table_of_two_batches.layout.checkpoint / "commits" / "1").unlink()
    Journal(table_of_two_batches.layout).update()
    assert sweep(table_of_two_batches.layout) == 0


def test_all_files_are_removed_before_first_commit(table_of_two_batches: HandWritten) -> None:
    shutil.rmtree(table_of_two_batches.layout.landed / "_delta_log")
    shutil.rmtree(table_of_two_batches.layout.checkpoint)
    assert sweep(table_of_two_batches.layout) == 2


def test_only_uncommitted_files_of_delta_table_are_removed(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    table = begin_table(layout)
    committed, orphan = (write_file(table, [offset]) for offset in range(2))
    table.commit(0, [committed])
    assert sweep(layout) == 1
    assert not (layout.landed / orphan.name).exists()
    assert table.active() == [committed.name]
    later = write_file(table, [5])
    table.commit(1, [later])
    compact_table(layout.landed)
    every_file = {committed.name, later.name, *table.active()}
    assert len(every_file) == 3
    assert sweep(layout) == 0
    assert all((layout.landed / name).exists() for name in every_file)


def test_replaced_files_stay_for_open_readers(table: HandWritten) -> None:
    layout, now_ms = table.layout, int(time.time() * 1000)
    for batch in range(2):
        events = [landed_event(2 * batch + n, f"{batch}-{n}", host=f"h{n}") for n in range(2)]
        table.commit({"t": 2 * batch + 2}, events, landed_at=now_ms - 1000 + batch)
    Journal(layout).update()
    compact_table(layout.landed)
    merged = table_of(layout).active()
    reader = deltalake.DeltaTable(str(layout.landed))
    request_deletion(layout, REQUESTED, parse_conditions("uuid = '0-0'"))
    assert execute_deletions(layout, 600_000_000) == 1
    assert not {*merged} <= {*table_of(layout).active()}
    assert sweep(layout) == 0
    assert all((layout.landed / name).exists() for name in [*merged, *table.files])
    assert reader.to_pyarrow_table().num_rows == 4


def test_nothing_is_removed_if_the_log_does_not_reach_back(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    table = begin_table(layout)
    file, _ = (write_file(table, [offset]) for offset in range(2))
    table.commit(0, [file])
    deltalake.DeltaTable(str(layout.landed)).create_checkpoint()
    table.commit_path(0).unlink()
    assert sweep(layout) == 0


def test_missing_table_needs_no_repair(table: HandWritten) -> None:
    check_batches(table.layout)
    assert (sweep(table.layout), repair_checkpoint(table.layout)) == (0, [])


def test_sweep_waits_for_file_of_running_commit(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    table = begin_table(layout)
    with hold_upkeep_lock(layout):
        file = write_file(table, [1])
        sweeping = threading.Thread(target=sweep, args=[layout])
        sweeping.start()
        sweeping.join(0.2)
        assert sweeping.is_alive()
        table.commit(0, [file])
    sweeping.join(20)
    assert (layout.landed / file.name).exists()
