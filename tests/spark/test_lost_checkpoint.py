"""A lost or damaged Spark checkpoint: the next start of the pipeline makes it again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.landing.journal import read_journal
from penstock.landing.table.table_file import as_written
from penstock.landing.table_paths import Layout
from penstock.proof.evidence import read_rows
from penstock.proof.proofs import read_proofs
from tests.spark.pipeline_in_session import run_once
from tests.spark.spark_daemon import daemon
from tests.spark.test_pipeline import append


@pytest.mark.survives("landing from the log", "damaged bytes")
@pytest.mark.spark
def test_lost_checkpoint_is_made_again_and_each_message_lands_once(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    layout.checkpoint.mkdir(parents=True)
    harms: list[Callable[[], object]] = [
        (layout.checkpoint / "metadata").touch,  # as a power cut leaves it at the first start
        lambda: shutil.rmtree(layout.checkpoint),
        lambda: (layout.checkpoint / "metadata").write_bytes(b"\0" * 45),
    ]
    with daemon(tmp_path) as running:
        for start_number, harm in enumerate(harms):
            harm()
            append(running, 1000 * start_number, 100)
            caplog.clear()
            assert run_once(spark, tmp_path, running.http) == 0, caplog.text
            assert "is lost or damaged" in caplog.text
        landed, balance = running.ledger.landed()["t"], running.ledger.balance()
    rows = read_rows(layout.landed, as_written(name for commit in read_journal(layout) for name in commit.files))
    duplicates = {103 * n + last for n in range(len(harms)) for last in (100, 101)}
    total = 103 * len(harms)
    assert sorted(rows["offset"].to_pylist()) == [offset for offset in range(total) if offset not in duplicates]
    assert all(proof.holds for proofs in read_proofs(layout) for proof in proofs)
    assert (landed.through, balance.unaccounted) == (total, 0)
