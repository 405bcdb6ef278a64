"""Rebuilding Spark's checkpoint from table and journal."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.files.errors import UnknownFormat
from penstock.landing.journal import Journal
from penstock.landing.requests.backfill_requests import write_request
from penstock.landing.spark_checkpoint import read_plan
from penstock.upkeep.repair.checkpoint_rebuild import CheckpointLost, rebuild_checkpoint
from tests.spark.spark_helpers import LANDED_AT, HandWritten, landed_event, landed_message

Harm = Callable[[Path], object]


@pytest.fixture
def three(table: HandWritten) -> HandWritten:
    """Three batches: two rows of ``t``, then one of ``u``, then one of each and a duplicate at the end of ``t``."""
    table.commit({"t": 2}, [landed_message(0), landed_message(1)])
    table.commit({"t": 2, "u": 1}, [landed_message(0, topic="u")])
    table.commit({"t": 4, "u": 2}, [landed_event(2, "a"), landed_message(1, topic="u")])
    (table.layout.checkpoint / "metadata").write_text(json.dumps({"id": "of-the-query"}))
    return table


def lose(*names: str) -> Harm:
    return lambda checkpoint: [(checkpoint / name).unlink() for name in names]


def garble(name: str) -> Harm:
    return lambda checkpoint: (checkpoint / name).write_bytes(b"\0" * 40)


@pytest.mark.parametrize(
    "harm",
    [
        shutil.rmtree,
        lambda checkpoint: shutil.rmtree(checkpoint / "offsets"),
        lose("offsets/2"),
        lose("offsets/1", "offsets/2", "commits/2"),
        garble("offsets/2"),
        garble("offsets/1"),
    ],
)
@pytest.mark.parametrize("journaled", [True, False])
def test_lost_plans_are_made_again_from_table_and_journal(three: HandWritten, harm: Harm, journaled: bool) -> None:
    checkpoint = three.layout.checkpoint
    if not journaled:  # the last batch is in the table only
        shutil.copytree(checkpoint, checkpoint.with_name("whole"))
        for folder in ("offsets", "commits"):
            (checkpoint / folder / "2").unlink()
        Journal(three.layout).update()
        shutil.rmtree(checkpoint)
        checkpoint.with_name("whole").rename(checkpoint)
    else:
        Journal(three.layout).update()
    plan = (checkpoint / "offsets" / "2").read_bytes()
    harm(checkpoint)
    is_intact = (checkpoint / "offsets" / "2").exists() and (checkpoint / "offsets" / "2").read_bytes() == plan
    rebuild_checkpoint(three.layout)
    # Offset 3 of t was a duplicate: without the journal it is read and recognised again.
    assert read_plan(checkpoint, 2).end == ({"t": 4, "u": 2} if journaled or is_intact else {"t": 3, "u": 2})
    assert read_plan(checkpoint, 1).end["u"] >= 1
    assert json.loads((checkpoint / "metadata").read_text())["id"]
    assert (checkpoint / "commits" / "2").exists()
    last = Journal(three.layout)
    last.update()
    assert last.last == 2


def test_empty_id_of_a_query_without_a_plan_is_replaced(table: HandWritten) -> None:
    """Without it Spark refuses to start, as after a power cut at the first start."""
    shutil.rmtree(table.layout.checkpoint, ignore_errors=True)
    rebuild_checkpoint(table.layout)
    assert not table.layout.checkpoint.exists()
    table.layout.checkpoint.mkdir(parents=True)
    (table.layout.checkpoint / "metadata").touch()
    rebuild_checkpoint(table.layout)
    assert json.loads((table.layout.checkpoint / "metadata").read_text())["id"]


def test_time_of_a_rebuilt_plan_is_that_of_the_batch(three: HandWritten) -> None:
    Journal(three.layout).update()
    shutil.rmtree(three.layout.checkpoint)
    rebuild_checkpoint(three.layout)
    assert read_plan(three.layout.checkpoint, 2).batch_time_ms == LANDED_AT + 2000


def test_plan_behind_a_lost_one_is_removed(three: HandWritten) -> None:
    Journal(three.layout).update()
    offsets = three.layout.checkpoint / "offsets"
    (offsets / "3").write_text((offsets / "2").read_text().replace('"t": 4', '"t": 9'))
    (offsets / "2").unlink()
    rebuild_checkpoint(three.layout)
    assert not (offsets / "3").exists()


@pytest.mark.parametrize("harm", [lose("metadata"), garble("metadata")])
def test_lost_metadata_get_a_new_id(three: HandWritten, harm: Harm, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = three.layout.checkpoint
    (checkpoint / ".metadata.crc").write_bytes(b"crc of the old one")
    harm(checkpoint)
    before = {path: path.read_bytes() for path in checkpoint.rglob("[0-9]*") if path.is_file()}
    rebuild_checkpoint(three.layout)
    assert len(json.loads((checkpoint / "metadata").read_text())["id"]) == 36
    assert not (checkpoint / ".metadata.crc").exists()
    assert before == {path: path.read_bytes() for path in checkpoint.rglob("[0-9]*") if path.is_file()}
    assert caplog.messages == [f"{checkpoint / 'metadata'} is lost or damaged: the query gets a new id"]


def test_whole_checkpoint_stays_as_it_is(three: HandWritten, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    checkpoint = three.layout.checkpoint
    before = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    rebuild_checkpoint(three.layout)
    assert before == {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    assert caplog.messages == []


def test_ends_of_kafka_are_written_by_partition(table: HandWritten) -> None:
    table.commit({"t/0": 3, "t/1": 1}, [landed_message(0)])
    Journal(table.layout).update()
    shutil.rmtree(table.layout.checkpoint)
    rebuild_checkpoint(table.layout)
    plan = (table.layout.checkpoint / "offsets" / "0").read_text().splitlines()[2]
    assert json.loads(plan) == {"t": {"0": 3, "1": 1}}


def test_checkpoint_is_not_made_again_without_the_journal(three: HandWritten) -> None:
    shutil.rmtree(three.layout.checkpoint / "offsets")
    with pytest.raises(CheckpointLost, match=r"up to 2, its checkpoint .* is lost, and .*jsonl is missing too"):
        rebuild_checkpoint(three.layout)


def test_checkpoint_is_not_made_again_during_a_backfill_that_the_journal_lacks(three: HandWritten) -> None:
    Journal(three.layout).update()
    three.commit({"t": 5}, [landed_message(4)])
    write_request(three.layout.backfills, "t", [(10, 12)])
    shutil.rmtree(three.layout.checkpoint)
    with pytest.raises(CheckpointLost, match="a backfill is not done"):
        rebuild_checkpoint(three.layout)


def test_plans_in_another_format_of_spark_are_not_replaced(three: HandWritten) -> None:
    newest = three.layout.checkpoint / "offsets" / "2"
    newest.write_text(newest.read_text().replace("v1", "v2", 1))
    before = newest.read_bytes()
    with pytest.raises(UnknownFormat, match="offsets/2 has Spark's format v2"):
        rebuild_checkpoint(three.layout)
    assert newest.read_bytes() == before
