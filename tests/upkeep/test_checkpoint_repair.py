"""Putting table and checkpoint in order before a start."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from penstock.landing.journal import Journal
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.upkeep.checkpoint_rebuild import CheckpointLost
from penstock.upkeep.checkpoint_repair import check_batches, mend, sweep
from penstock.upkeep.compaction.compaction import compact_table
from tests.landing.table.table_rows import write_file
from tests.spark.spark_helpers import LANDED_AT, HandWritten, landed_event, landed_message


@pytest.fixture
def two(table: HandWritten) -> HandWritten:
    table.commit({"t": 1}, [landed_message(0)])
    table.commit({"t": 2}, [landed_message(1)])
    return table


def test_nothing_is_mended_where_nothing_is_torn(two: HandWritten) -> None:
    assert mend(two.layout) == []
    check_batches(two.layout)


@pytest.mark.parametrize("content", [b"", b"v1\n{", b"\x00" * 40])
def test_a_torn_commit_is_removed_so_that_spark_does_the_batch_again(two: HandWritten, content: bytes) -> None:
    entry = two.layout.checkpoint / "commits" / "1"
    entry.write_bytes(content)
    assert mend(two.layout) == [str(entry)]
    assert (two.layout.checkpoint / "offsets" / "1").exists()


def test_a_torn_plan_of_a_batch_without_commit_is_removed(two: HandWritten) -> None:
    checkpoint = two.layout.checkpoint
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "offsets" / "1").write_bytes(b"")
    assert mend(two.layout) == [str(checkpoint / "offsets" / "1")]
    assert (checkpoint / "offsets" / "0").exists()


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("torn", [False, True])
def test_a_batch_that_spark_took_for_done_and_the_table_does_not_have_is_done_again(
    two: HandWritten, planned: bool, torn: bool
) -> None:
    """What was planned after it goes, else Spark would go on with that."""
    offsets, commits = (two.layout.checkpoint / name for name in ("offsets", "commits"))
    (offsets / "2").write_text((offsets / "1").read_text())
    (commits / "2").write_bytes(b"" if torn else (commits / "1").read_bytes())
    (commits / ".2.crc").touch()
    later = [str(offsets / "3")] if planned else []
    if planned:
        (offsets / "3").write_text((offsets / "1").read_text())
    assert sorted(mend(two.layout)) == sorted([*later, str(commits / "2")])
    assert (sorted(os.listdir(commits)), sorted(os.listdir(offsets))) == (["0", "1"], ["0", "1", "2"])
    assert mend(two.layout) == []


def test_where_the_table_is_a_new_one_spark_does_not_begin_anew(two: HandWritten) -> None:
    two.commit({"t": 3}, [])
    shutil.rmtree(two.layout.landed)
    assert mend(two.layout) == []


def test_a_table_without_its_checkpoint_is_refused(two: HandWritten) -> None:
    check_batches(two.layout)
    shutil.rmtree(two.layout.checkpoint)
    with pytest.raises(CheckpointLost, match="up to 1"):
        check_batches(two.layout)


def test_files_that_no_batch_committed_are_removed_and_no_others(two: HandWritten) -> None:
    two.commit({"t": 3}, [landed_event(2, "u")], landed_at=LANDED_AT + 20_000)
    Journal(two.layout).update()
    orphan = two.layout.landed / "kind=quarantine/date=2023-11-14/part-9.parquet"
    orphan.parent.mkdir(parents=True)
    shutil.copy(two.layout.landed / two.files[0], orphan)
    assert sweep(two.layout) == 1
    assert sorted(os.listdir(orphan.parent)) == []
    assert all((two.layout.landed / name).exists() for name in two.files)


def test_files_in_the_tables_list_stay_also_before_their_batch_is_committed(two: HandWritten) -> None:
    (two.layout.checkpoint / "commits" / "1").unlink()
    Journal(two.layout).update()
    assert sweep(two.layout) == 0


def test_before_the_first_commit_everything_is_an_orphan(two: HandWritten) -> None:
    shutil.rmtree(two.layout.landed / "_delta_log")
    shutil.rmtree(two.layout.checkpoint)
    assert sweep(two.layout) == 2


def test_files_of_a_delta_table_that_no_batch_committed_are_removed_and_no_others(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    table = begin_table(layout)
    kept, orphan = (write_file(table, [offset]) for offset in range(2))
    table.commit(0, [kept])
    assert sweep(layout) == 1
    assert not (layout.landed / orphan.name).exists()
    assert table.active() == [kept.name]
    compact_table(layout.landed)
    table.commit(1, [write_file(table, [5])])
    compact_table(layout.landed)
    assert sweep(layout) == 0 or (layout.landed / table.active()[0]).exists()


def test_without_a_table_there_is_nothing_to_do(table: HandWritten) -> None:
    check_batches(table.layout)
    assert (sweep(table.layout), mend(table.layout)) == (0, [])


def test_a_file_that_somebody_is_about_to_commit_is_waited_for(tmp_path: Path) -> None:
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
