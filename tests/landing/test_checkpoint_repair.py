"""Putting table and checkpoint in order before a start."""

from __future__ import annotations

import os
import shutil

import pytest

from penstock.landing.checkpoint_repair import CheckpointLost, check_batches, last_landing, mend, sweep
from penstock.landing.journal import Journal
from tests.spark.spark_helpers import LANDED_AT, HandWritten, landed_event, landed_message


@pytest.fixture
def two(table: HandWritten) -> HandWritten:
    table.commit({"t": 1}, [landed_message(0)])
    table.commit({"t": 2}, [landed_message(1)])
    return table


def test_nothing_is_mended_where_nothing_is_torn(two: HandWritten) -> None:
    assert mend(two.layout) == []
    assert last_landing(two.layout.checkpoint) == LANDED_AT + 1000


@pytest.mark.parametrize("content", [b"", b"v1\n{", b"\x00" * 40])
def test_a_torn_commit_is_removed_so_that_spark_does_the_batch_again(two: HandWritten, content: bytes) -> None:
    entry = two.layout.checkpoint / "commits" / "1"
    entry.write_bytes(content)
    assert mend(two.layout) == [str(entry)]
    assert (two.layout.checkpoint / "offsets" / "1").exists()


def test_torn_entries_of_a_batch_without_commit_are_removed(two: HandWritten) -> None:
    checkpoint = two.layout.checkpoint
    (checkpoint / "commits" / "1").unlink()
    for entry in (checkpoint / "offsets" / "1", two.layout.sink_log / "1"):
        entry.write_bytes(b"")
    assert len(mend(two.layout)) == 2
    assert (checkpoint / "offsets" / "0").exists()
    assert (two.layout.sink_log / "0").exists()


def test_a_table_without_its_checkpoint_is_refused(two: HandWritten) -> None:
    check_batches(two.layout)
    shutil.rmtree(two.layout.checkpoint)
    with pytest.raises(CheckpointLost, match="up to 1"):
        check_batches(two.layout)


def test_files_that_no_batch_committed_are_removed_and_no_others(two: HandWritten) -> None:
    two.commit({"t": 3}, [landed_event(2, "u")], landed_at=LANDED_AT + 20_000)
    Journal(two.layout).update()
    orphan = two.layout.landed / "kind=event/date=2023-11-14/type=y/part-9.parquet"
    orphan.parent.mkdir(parents=True)
    shutil.copy(two.layout.landed / two.files[0], orphan)
    orphan.with_name(f".{orphan.name}.crc").touch()
    assert sweep(two.layout) == 1
    assert sorted(os.listdir(orphan.parent)) == []
    assert all((two.layout.landed / name).exists() for name in two.files)


def test_files_in_the_tables_list_stay_also_before_their_batch_is_committed(two: HandWritten) -> None:
    (two.layout.checkpoint / "commits" / "1").unlink()
    Journal(two.layout).update()
    assert sweep(two.layout) == 0


def test_before_the_first_commit_everything_is_an_orphan(two: HandWritten) -> None:
    shutil.rmtree(two.layout.sink_log)
    shutil.rmtree(two.layout.checkpoint)
    assert sweep(two.layout) == 2


def test_without_a_table_there_is_nothing_to_do(table: HandWritten) -> None:
    check_batches(table.layout)
    assert (sweep(table.layout), mend(table.layout), last_landing(table.layout.checkpoint)) == (0, [], 0)
