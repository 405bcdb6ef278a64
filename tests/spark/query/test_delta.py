"""Landing into a table of Delta, proved as a table of Parquet is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.landing.journal import Journal
from penstock.landing.proof.prover import Prover
from penstock.spark.query.landing_query import Landing, start_landing
from penstock.spark.views import FormatDiffers, register_views
from tests.spark.spark_helpers import BUCKET, append, event

pytestmark = pytest.mark.spark


def land(spark: SparkSession, landing: Landing) -> None:
    query = start_landing(spark, landing, available_now=True)
    query.awaitTermination(240)
    assert query.exception() is None


def test_batches_land_once_are_proved_and_can_be_merged(spark: SparkSession, topics: Path, tmp_path: Path) -> None:
    landing = Landing(topics, tmp_path / "tables", table_format="delta")
    append(topics, "t", [event(1), event(1), b"{bad", b"text"])
    land(spark, landing)
    append(topics, "t", [event(2, "a b/c")])
    land(spark, landing)

    register_views(spark, landing.tables)
    found = spark.sql("select type, uuid from events order by uuid").collect()
    assert [tuple(row) for row in found] == [("click", "u1"), ("a b/c", "u2")]
    prover = Prover(topics, landing.layout)
    proofs = [proof for commit in Journal(landing.layout).update() for proof in prover.prove(commit)]
    assert all(proof.holds for proof in proofs)
    assert [proof.counts_by["events-udp", BUCKET] for proof in proofs] == [
        {"landed.event": 1, "landed.message": 1, "quarantined.bad_json": 1, "duplicate": 1},
        {"landed.event": 1},
    ]
    with pytest.raises(FormatDiffers, match="format = delta"):
        start_landing(spark, Landing(topics, tmp_path / "tables"))
