"""The landing query in a real Spark, with its tables and its proof."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock.landing.duplicates.landed_keys import LandedKeys
from penstock.landing.journal import Journal
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import begin_table, table_of
from penstock.landing.table.table_file import NewFile
from penstock.proof.proofs import Proof
from penstock.proof.prover import Prover
from penstock.spark.query.landing_query import Landing, start_landing
from penstock.spark.views import landed_schema, read_landed, register_views
from penstock.testing.pipe import wait_until
from penstock.upkeep.compaction.compaction import compact_table
from tests.spark.spark_helpers import BUCKET, append, event

pytestmark = pytest.mark.spark


@pytest.fixture
def landing(topics: Path, tmp_path: Path) -> Landing:
    return Landing(topics, tmp_path / "tables")


def land(spark: SparkSession, landing: Landing) -> None:
    start_landing(spark, landing, available_now=True).wait(120)


def proofs_of(landing: Landing) -> list[Proof]:
    prover = Prover(landing.topics, landing.layout)
    return [proof for commit in Journal(landing.layout).update() for proof in prover.prove(commit)]


def rows(spark: SparkSession, query: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark.sql(query).collect()]


def test_messages_of_every_kind_land_once_and_are_proved(spark: SparkSession, landing: Landing, topics: Path) -> None:
    append(topics, "events", [event(1), event(2, "007"), b"{bad", b"text", event(1)], [event(3, data={"a": [1]})])
    append(topics, "syslog", [b"<34>1 x", event(1)], codec="syslog", source="syslog-udp")
    land(spark, landing)
    register_views(spark, landing.tables)
    assert rows(spark, "select type, uuid, host, to_json(data) from events order by uuid") == [
        ("click", "u1", "web-1", None),
        ("007", "u2", "web-1", None),
        ("click", "u3", "web-1", '{"a":[1]}'),
    ]
    assert rows(spark, "select offset, reason, payload from quarantine") == [(2, "bad_json", bytearray(b"{bad"))]
    assert rows(spark, "select offset, payload from messages") == [(3, bytearray(b"text"))]
    assert rows(spark, "select offset, source from syslog order by offset") == [(0, "syslog-udp"), (1, "syslog-udp")]
    assert rows(spark, "select count(distinct landed_at), count(distinct date) from landed") == [(1, 1)]

    events, syslog = proofs_of(landing)
    assert events.counts_by == {
        ("events-udp", BUCKET): {"landed.event": 3, "landed.message": 1, "quarantined.bad_json": 1, "duplicate": 1}
    }
    assert syslog.counts_by == {("syslog-udp", BUCKET): {"landed.syslog": 2}}
    assert events.holds
    assert syslog.holds


def test_restart_continues_at_the_checkpoint_and_remembers_uuids(
    spark: SparkSession, landing: Landing, topics: Path
) -> None:
    append(topics, "events", [event(1), event(2)])
    land(spark, landing)
    append(topics, "events", [event(2), event(3), b"text", b"text"])
    append(topics, "later", [event(1)])
    land(spark, landing)
    land(spark, landing)
    rows = read_landed(spark, landing.tables)
    assert sorted((r.topic, r.offset) for r in rows.collect()) == [
        ("events", 0),
        ("events", 1),
        ("events", 3),
        ("events", 4),
        ("events", 5),
        ("later", 0),
    ]
    proofs = proofs_of(landing)
    assert all(proof.holds for proof in proofs)
    assert [(proof.topic, proof.begin, proof.end, proof.total("duplicate")) for proof in proofs] == [
        ("events", 0, 2, 0),
        ("events", 2, 6, 1),
        ("later", 0, 1, 0),
    ]


def test_lagging_topic_loses_nothing_and_has_its_own_uuids(spark: SparkSession, topics: Path, tmp_path: Path) -> None:
    landing = Landing(topics, tmp_path / "tables", max_rows=200)
    append(topics, "ahead", [event(number) for number in range(50)])
    land(spark, landing)
    days = 3 * 86_400
    for first in range(0, 600, 50):
        append(topics, "behind", [event(number) for number in range(first, first + 50)], bucket=BUCKET - days)
    append(topics, "ahead", [event(50), event(3)])
    land(spark, landing)
    rows = read_landed(spark, landing.tables).groupBy("topic").agg({"offset": "max", "*": "count"}).collect()
    assert {tuple(row) for row in rows} == {("ahead", 50, 51), ("behind", 599, 600)}
    proofs = proofs_of(landing)
    assert all(proof.holds for proof in proofs)
    assert len({proof.batch for proof in proofs if proof.topic == "behind"}) > 2
    assert sum(proof.total("duplicate") for proof in proofs) == 1


NASTY = [
    "a b",
    "..",
    "a/b",
    "a=b",
    "100%",
    "x:y*?#",
    "'\"\\{}[]^",
    "é\U0001f600",
    " lead and trail ",
    "null",
    "1e5",
    "t" * 80,
]


def test_event_type_of_any_characters_is_stored_unchanged(spark: SparkSession, landing: Landing, topics: Path) -> None:
    append(topics, "t", [event(number, kind) for number, kind in enumerate(NASTY)])
    land(spark, landing)
    rows = {row.uuid: row.type for row in read_landed(spark, landing.tables).collect()}
    assert rows == {f"u{number}": kind for number, kind in enumerate(NASTY)}
    (proof,) = proofs_of(landing)
    assert proof.holds
    assert proof.total("landed.event") == len(NASTY)


def test_event_payloads_are_optional(spark: SparkSession, topics: Path, tmp_path: Path) -> None:
    append(topics, "t", [event(1, data={"b": 1.5}), b"{bad"])
    landing = Landing(topics, tmp_path / "tables", keep_payload=False)
    land(spark, landing)
    rows = read_landed(spark, landing.tables).orderBy("offset").collect()
    assert [(row.data, row.payload) for row in rows] == [('{"b":1.5}', None), (None, b"{bad")]


def test_configured_types_and_data_are_enforced(spark: SparkSession, topics: Path, tmp_path: Path) -> None:
    append(topics, "t", [event(1), event(2, "other"), event(3, data={"ms": 1}), event(4, data={"ms": "1"})])
    landing = Landing(topics, tmp_path / "tables", event_types=("click",), schemas={"click": "ms int"})
    land(spark, landing)
    rows = read_landed(spark, landing.tables).orderBy("offset").collect()
    assert [row.reason for row in rows] == ["schema_not_met", "type_not_allowed", None, "schema_not_met"]
    assert all(proof.holds for proof in proofs_of(landing))


class Killed(Exception):
    """The driver ends here."""


def killed(*_: object) -> None:
    raise Killed


def test_failed_commit_repeats_its_batch_and_replans_the_next(
    spark: SparkSession, landing: Landing, topics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark took the batch for done, and was at the next one."""
    append(topics, "t", *([event(n), event(n - 1)] for n in range(12)))
    few = replace(landing, max_rows=4)
    owner = type(begin_table(landing.layout))
    real = owner.commit

    def third(table: DeltaTable, batch: int, files: Sequence[NewFile], *description: Any) -> None:
        if batch == 2:
            wait_until((landing.layout.checkpoint / "offsets" / "3").exists)
            killed()
        real(table, batch, files, *description)

    with monkeypatch.context() as patch:
        patch.setattr(owner, "commit", third)
        running = start_landing(spark, few, available_now=True)
        with pytest.raises(StreamingQueryException, match="Killed"):
            running.wait(120)
    assert (landing.layout.checkpoint / "commits" / "2").exists()
    assert [proof.end for proof in proofs_of(landing)] == [4, 8]
    land(spark, landing)
    rows = sorted(row.offset for row in read_landed(spark, landing.tables).collect())
    assert rows == [0, 1, *range(2, 24, 2)], "event -1 and the first of each other"
    assert all(proof.holds for proof in proofs_of(landing))


@pytest.mark.parametrize("where", ["commit", "add"])
def test_repeated_batch_lands_once(
    spark: SparkSession, landing: Landing, topics: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Before the table had it; and when it has it already, and the keys have not."""
    append(topics, "t", [event(1), event(2)])
    land(spark, landing)
    append(topics, "t", [event(2), event(3), b"text", event(3)])
    with monkeypatch.context() as patch:
        patch.setattr(type(table_of(landing.layout)) if where == "commit" else LandedKeys, where, killed)
        with pytest.raises(Killed):
            start_landing(spark, landing, available_now=True).wait(120)
    land(spark, landing)
    append(topics, "t", [event(3), event(1)])
    land(spark, landing)
    assert sorted(row.offset for row in read_landed(spark, landing.tables).collect()) == [0, 1, 3, 4]
    proofs = proofs_of(landing)
    assert all(proof.holds for proof in proofs)
    assert [(proof.begin, proof.end, proof.total("duplicate")) for proof in proofs] == [(0, 2, 0), (2, 6, 2), (6, 8, 2)]


def test_lost_keys_are_read_from_the_table(spark: SparkSession, landing: Landing, topics: Path) -> None:
    append(topics, "t", [event(n) for n in range(20)])
    land(spark, landing)
    shutil.rmtree(landing.layout.keys)
    append(topics, "t", [event(n) for n in range(10, 30)])
    land(spark, landing)
    assert sorted(row.uuid for row in read_landed(spark, landing.tables).collect()) == sorted(
        f"u{n}" for n in range(30)
    )
    assert all(proof.holds for proof in proofs_of(landing))


def test_duplicates_across_tasks_land_once(spark: SparkSession, landing: Landing, topics: Path) -> None:
    numbers = [number % 7_000 for number in range(30_000)]
    append(topics, "t", *[[event(n) for n in numbers[first : first + 3_000]] for first in range(0, 30_000, 3_000)])
    land(spark, landing)
    rows = read_landed(spark, landing.tables)
    assert rows.selectExpr("count(*)", "count(distinct uuid)", "max(offset)").first() == (7_000, 7_000, 6_999)
    (proof,) = proofs_of(landing)
    assert proof.holds
    assert proof.total("duplicate") == 23_000


def test_delta_rs_reads_the_landed_rows(spark: SparkSession, topics: Path, tmp_path: Path) -> None:
    landing = Landing(topics, tmp_path / "tables")
    for batch in range(3):
        append(topics, "t", [event(batch * 2), event(batch * 2 + 1), b"text"])
        land(spark, landing)
    compact_table(landing.layout.landed)
    rows = deltalake.DeltaTable(str(landing.layout.landed)).to_pyarrow_table().to_pylist()
    assert sorted((row["kind"], row["offset"]) for row in rows) == sorted(
        ("message" if n % 3 == 2 else "event", n) for n in range(9)
    )
    assert sorted(r.offset for r in read_landed(spark, landing.tables).collect()) == list(range(9))
    assert all(proof.holds for proof in proofs_of(landing)), "merged files are no reason to miss a row"


def test_views_are_empty_before_anything_lands(spark: SparkSession, tmp_path: Path) -> None:
    register_views(spark, tmp_path / "tables")
    for view in ("landed", "events", "syslog", "messages", "quarantine"):
        assert rows(spark, f"select count(*) from {view}") == [(0,)]


def test_schema_for_readers_equals_the_written_one(spark: SparkSession, landing: Landing, topics: Path) -> None:
    append(topics, "t", [event(1)])
    land(spark, landing)
    (written,) = {tuple(pq.read_schema(path)) for path in landing.layout.landed.rglob("kind=*/**/*.parquet")}
    declared = spark.createDataFrame([], landed_schema()).schema
    assert declared.names == [column.name for column in written] + ["kind", "date"]
    assert read_landed(spark, landing.tables).schema.names == declared.names
    (row,) = read_landed(spark, landing.tables).collect()
    assert (row.kind, row.type, row.uuid) == ("event", "click", "u1")
    assert row.date == row.timestamp.date()
