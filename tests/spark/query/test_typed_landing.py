"""Typed tables of the landing query in a real Spark, from the log and from Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from penstock.kafka.broker import Broker
from penstock.landing.journal import Journal
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.proof.proofs import Proof
from penstock.proof.prover import Prover, rebuild
from penstock.spark.query.landing_query import Landing, start_landing
from penstock.spark.views import register_views
from penstock.testing import wait_until
from tests.landing.typed.typed_life import CLICK, read, uuids
from tests.spark.spark_helpers import append, event

pytestmark = pytest.mark.spark
STRICT = TypedTable("seen", "view", (Column("path", "string", "path", required=True),), strict=True)


def land(spark: SparkSession, landing: Landing) -> None:
    start_landing(spark, landing, available_now=True).wait(120)


def proofs_of(landing: Landing) -> list[Proof]:
    prover = Prover(landing.topics, landing.layout)
    return [proof for commit in Journal(landing.layout).update() for proof in prover.prove(commit)]


def test_typed_tables_have_their_events_without_counts(spark: SparkSession, topics: Path, tmp_path: Path) -> None:
    landing = Landing(topics, tmp_path / "tables", typed=(CLICK, STRICT))
    good = [event(1, data={"path": "/", "ms": 5}), event(2, data=[1]), event(1), event(3, "view", data={"path": "/"})]
    append(topics, "t", good, [event(4, "view", data={"path": 1}), event(5, "other"), b"text", b"{bad"])
    land(spark, landing)
    register_views(spark, landing.tables)
    rows = spark.sql("select uuid, path, ms, rest from events_click order by uuid").collect()
    assert [tuple(row) for row in rows] == [("u1", "/", 5, None), ("u2", None, None, "[1]")]
    assert [row.uuid for row in spark.sql("select uuid from events_seen").collect()] == ["u3"]
    assert [row.reason for row in spark.sql("select reason from quarantine order by offset").collect()] == [
        "schema_not_met",
        "bad_json",
    ]
    (proof,) = proofs_of(landing)
    assert proof.holds
    assert {name: proof.total(name) for name in ("landed.event", "quarantined.", "duplicate")} == {
        "landed.event": 4,
        "quarantined.": 2,
        "duplicate": 1,
    }
    assert list(rebuild(topics, landing.layout)) == [proof]


def test_batch_is_repeated_after_a_crash_between_the_two_commits(
    spark: SparkSession, topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(topics, tmp_path / "tables", typed=(CLICK,))
    append(topics, "t", [event(1), event(2)])
    land(spark, landing)
    append(topics, "t", [event(2), event(3), event(4)])
    real = DeltaTable.commit

    def killed(table: DeltaTable, batch: int, files: list[object], *description: object) -> None:
        if table.folder == landing.layout.landed:
            raise RuntimeError("killed")
        real(table, batch, files, *description)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "commit", killed)
    with pytest.raises(RuntimeError, match="killed"):
        start_landing(spark, landing, available_now=True).wait(120)
    monkeypatch.undo()
    typed, landed = landing.layout.typed("click"), landing.layout.landed
    assert (uuids(typed), uuids(landed)) == (["u1", "u2", "u3", "u4"], ["u1", "u2"]), "one batch ahead"
    land(spark, landing)
    assert uuids(typed) == uuids(landed) == ["u1", "u2", "u3", "u4"]
    assert {row["landed_at"] for row in read(typed)} == {row["landed_at"] for row in read(landed)}


@pytest.mark.survives("typed tables and contracts", "changed configuration")
def test_running_query_takes_over_changed_typed_tables(spark: SparkSession, topics: Path, tmp_path: Path) -> None:
    landing = Landing(topics, tmp_path / "tables", target_lag=0.2)
    layout = landing.layout
    append(topics, "t", [event(1), event(2, "view", data={"path": 1})])
    running = start_landing(spark, landing)
    try:
        wait_until(lambda: DeltaTable(layout.landed).newest() == 0, 120)
        running.change_typed((CLICK, STRICT))
        assert uuids(layout.typed("click")) == [], "the table exists without a message"
        append(topics, "t", [event(3), event(4, "view", data={"path": 1}), event(5, "view", data={"path": "/"})])
        wait_until(lambda: DeltaTable(layout.landed).newest() == 1, 120)
    finally:
        running.stop()
    assert (uuids(layout.typed("click")), uuids(layout.typed("seen"), "view")) == (["u3"], ["u5"])
    assert uuids(layout.landed, "view") == ["u2", "u5"], "an event that does not fit is quarantined from the change on"


def test_typed_tables_have_events_of_kafka(
    spark: SparkSession, kafka_broker: Broker, topics: Path, tmp_path: Path
) -> None:
    client = {"bootstrap.servers": kafka_broker.address}
    landing = Landing(topics, tmp_path / "tables", topic="typed-clicks", kafka=client, typed=(CLICK,))
    producer = Producer(client)
    for number in range(6):
        producer.produce("typed-clicks", event(number % 5, "view" if number == 3 else "click", data={"ms": number}))
    assert producer.flush(30) == 0
    land(spark, landing)
    layout = Layout.for_tables(landing.tables)
    assert uuids(layout.typed("click")) == uuids(layout.landed) == ["u0", "u1", "u2", "u4"]
    assert {(row["uuid"], row["ms"]) for row in read(layout.typed("click"))} == {(f"u{n}", n) for n in (0, 1, 2, 4)}
    assert {row["partition"] for row in read(layout.typed("click"))} == {0}
