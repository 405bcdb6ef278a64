"""Backfill in a real Spark: missing rows land once and are in the balance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.landing.table_schema import FILE_SCHEMA
from penstock.ledger.balance_from_topics import balance_of
from penstock.ledger.book.book import Book
from penstock.ledger.book.book_from_topics import load
from penstock.ledger.posts import ClientPost, LandedPost
from penstock.proof.posts.ledger_client import LedgerClient
from penstock.proof.proofs import BackfillProof
from penstock.proof.proofs_table import ProofsTable
from penstock.proof.prover import rebuild
from penstock.proof.status import status
from penstock.spark.pipeline import tidied
from penstock.spark.query.landing_query import Landing, start_landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.spark.views import read_landed
from penstock.upkeep.backfill_planner import (
    BackfillPlan,
    BackfillPlanner,
    CannotBackfill,
    are_proved,
    hold_backfill_lock,
    outcome,
    request_backfill,
)
from penstock.upkeep.trace.tracer import Tracer
from tests.proof.proof_sql import differences
from tests.spark.spark_daemon import Daemon, daemon
from tests.spark.spark_helpers import HandWritten, append, event, landed_event, landed_message


def land(spark: SparkSession, landing: Landing, ledger: LedgerClient) -> None:
    """Land and prove all available rows."""
    start_landing(spark, landing, available_now=True).wait(120)
    assert ProofWorker(landing, ledger).step()


def survey(landing: Landing, topic: str, begin: int, end: int | None = None) -> BackfillPlan:
    with tidied(landing):
        return BackfillPlanner(landing.topics, landing.layout, ["a"], running=False).survey(topic, begin, end)


def rows(spark: SparkSession, landing: Landing) -> list[tuple[str, int]]:
    return sorted((row.topic, row.offset) for row in read_landed(spark, landing.tables).collect())


@pytest.fixture
def running(tmp_path: Path, topics: Path) -> Iterator[Daemon]:
    append(topics, "a", [event(1), b"text", event(1), b"{bad", event(2)])
    append(topics, "b", [event(n) for n in range(6)] + [event(3), b"text"])
    with daemon(tmp_path) as running_daemon:
        yield running_daemon


@pytest.mark.spark
def test_backfill_lands_lost_and_unread_rows_once(
    spark: SparkSession, running: Daemon, topics: Path, tmp_path: Path
) -> None:
    landing, ledger = Landing(topics, tmp_path / "tables", topic="a"), LedgerClient(running.http)
    land(spark, landing, ledger)
    everything = [("a", 0), ("a", 1), ("a", 3), ("a", 4)]
    assert rows(spark, landing) == everything
    plan = survey(landing, "a", 0)
    assert (len(plan.lost), len(plan.ahead), dict(+plan.fates)) == (0, 0, {"landed": 4, "duplicate": 1})

    for file in (landing.layout.landed / "kind=message").rglob("*.parquet"):
        file.unlink()
    lost, unread = survey(landing, "a", 0), survey(landing, "b", 2, 7)
    assert (lost.lost.tolist(), unread.ahead.tolist()) == ([1], [2, 3, 4, 5, 6])
    requests = [*request_backfill(landing.layout, lost), *request_backfill(landing.layout, unread)]
    assert not are_proved(landing.layout, requests)
    land(spark, replace(landing, only_backfills=True), ledger)
    assert are_proved(landing.layout, requests)
    assert outcome(landing.layout, requests) == {"rows": 5, "duplicate": 1, "unaccounted": 0, "gap": 0}
    spark.catalog.clearCache()
    assert sorted(rows_in_files(landing)) == sorted([*everything, ("b", 2), ("b", 3), ("b", 4), ("b", 5)])
    assert dict(+survey(landing, "b", 2, 7).fates) == {"landed": 4, "duplicate": 1}
    balance = running.ledger.balance()
    assert balance.unaccounted == 0
    assert balance.pending == 3, "those of b that nobody asked for"

    land(spark, replace(landing, topic="*"), ledger)
    assert sorted(rows_in_files(landing)) == [*everything, *(("b", n) for n in (0, 1, 2, 3, 4, 5, 7))]
    balance = running.ledger.balance()
    assert (balance.unaccounted, balance.pending) == (0, 0)
    tracer = Tracer(topics, landing.layout, ["a"])
    assert [tracer.trace(*position).fate for position in (("a", 1), ("b", 2), ("b", 6))] == [
        "landed.message",
        "landed.event",
        "duplicate",
    ]
    assert status(topics, landing.layout, ["*"]).rows == 13
    assert rebuilt_balance(landing) == balance.document()["topics"]


@pytest.mark.spark
def test_rows_of_landing_and_backfill_are_in_the_sums_of_rows(
    spark: SparkSession, running: Daemon, topics: Path, tmp_path: Path
) -> None:
    landing, ledger = Landing(topics, tmp_path / "tables", topic="a", hashed=True), LedgerClient(running.http)
    land(spark, landing, ledger)
    request_backfill(landing.layout, survey(landing, "b", 2, 7))
    land(spark, replace(landing, only_backfills=True), ledger)
    land(spark, replace(landing, topic="*"), ledger)
    ProofsTable(landing.layout).append()
    assert differences(landing.layout) == []
    proofs = deltalake.DeltaTable(str(landing.layout.proof_table)).to_pyarrow_table()
    assert {*proofs["fate"].to_pylist()} == {"landed", "backfilled"}
    assert not proofs["row_hashes"].null_count
    (path,) = [path for path in Path(str(landing.layout.landed)).rglob("*.parquet") if has_offset(path, "b", 3)]
    rows = pq.read_table(path, partitioning=None).to_pylist()
    altered = [row | {"payload": b"altered"} if (row["topic"], row["offset"]) == ("b", 3) else row for row in rows]
    pq.write_table(pa.Table.from_pylist(altered, schema=FILE_SCHEMA), path)
    assert [(row["topic"], row["offset"]) for row in differences(landing.layout)] == [("b", 3)]


def has_offset(path: Path, topic: str, offset: int) -> bool:
    rows = pq.read_table(path, columns=["topic", "offset"], partitioning=None).to_pylist()
    return {"topic": topic, "offset": offset} in rows


def rows_in_files(landing: Landing) -> Iterator[tuple[str, int]]:
    """Yield topic and offset of the rows in existing files: Spark would fail for a missing one."""
    surveyor = BackfillPlanner(landing.topics, landing.layout, [], running=False)
    for topic in ("a", "b"):
        for part in surveyor._read_columns(topic, ["offset"]):
            yield from ((topic, offset) for offset in part["offset"].to_pylist())


def rebuilt_balance(landing: Landing) -> object:
    book: Book = load(landing.topics, (ClientPost,))
    for proved in rebuild(landing.topics, landing.layout):
        if isinstance(proved, BackfillProof):
            proof = proved.proof
            book.post(
                LandedPost(proof.topic, proof.batch, 0, proof.counts_by, 0, proof.uuids, proved.number, proved.ahead)
            )
        else:
            book.post(LandedPost(proved.topic, proved.batch, proved.end, proved.counts_by, 0, proved.uuids))
    return balance_of(book.snapshot(), landing.topics, {}).document()["topics"]


def test_plan_owes_uncounted_rows_and_skips_planned_ones(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(0), b"lost", event(0), b"counted", b"planned", b"new"])
    rows = [landed_event(0, "u0")]
    table.commit({"t": 4}, rows)
    landing = Landing(topics, table.layout.tables, topic="t")
    ProofWorker(landing, None).step()
    plan = table.layout.checkpoint / "offsets" / "1"
    plan.write_text("\n".join(["v1", '{"batchWatermarkMs":0,"batchTimestampMs":1}', json.dumps({"t": 5})]))
    surveyed = BackfillPlanner(topics, table.layout, ["t"], running=False).survey("t", 0, None)
    assert (surveyed.lost.tolist(), surveyed.owed, surveyed.ahead.tolist()) == ([1, 3], (1, 3), [5])
    assert dict(+surveyed.fates) == {"landed": 1, "duplicate": 1, "waiting": 1}
    left_to_it = BackfillPlanner(topics, table.layout, ["t"], running=True).survey("t", 0, None)
    assert (len(left_to_it.ahead), left_to_it.fates["waiting"]) == (0, 2)


def test_requested_rows_are_not_requested_again(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"x"] * 6)
    table.commit({"u": 1}, [landed_message(0, "u")])
    first = BackfillPlanner(topics, table.layout, [], running=False).survey("t", 1, 4)
    assert first.ahead.tolist() == [1, 2, 3]
    (request,) = request_backfill(table.layout, first)
    assert request.name == "t@1"
    second = BackfillPlanner(topics, table.layout, [], running=False).survey("t", 0, None)
    assert (second.ahead.tolist(), second.fates["waiting"]) == ([0, 4, 5], 3)
    assert np.array_equal(first.ahead, np.arange(1, 4))


def test_unknown_topic_and_second_backfill_are_refused(topics: Path, table: HandWritten) -> None:
    topics.mkdir()
    with pytest.raises(CannotBackfill, match="no topic 'x'"):
        BackfillPlanner(topics, table.layout, [], running=False).survey("x", 0, None)
    second = hold_backfill_lock(table.layout)
    with hold_backfill_lock(table.layout), pytest.raises(CannotBackfill, match="another backfill"):
        second.__enter__()


@pytest.mark.spark
def test_lost_events_with_landed_keys_land_again(spark: SparkSession, topics: Path, tmp_path: Path) -> None:
    append(topics, "a", [event(n) for n in range(5)] + [event(1)])
    with daemon(tmp_path) as running:
        landing, ledger = Landing(topics, tmp_path / "tables", topic="a"), LedgerClient(running.http)
        land(spark, landing, ledger)
        for file in (landing.layout.landed / "kind=event").rglob("*.parquet"):
            file.unlink()
        lost = survey(landing, "a", 0)
        requests = request_backfill(landing.layout, lost)
        land(spark, replace(landing, only_backfills=True), ledger)
        assert are_proved(landing.layout, requests)
        topics_and_offsets = sorted(rows_in_files(landing))
        assert {("a", n) for n in range(5)} <= {*topics_and_offsets}
        assert len(topics_and_offsets) == 5
        assert running.ledger.balance().unaccounted == 0
