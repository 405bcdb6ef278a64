"""The scripts in examples/, run on real topics and tables; and the watermarks in SQL."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.proof.posts.ledger_client import LedgerClient
from penstock.spark.query.landing_query import Landing, start_landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.spark.views import register_views
from tests.spark.spark_daemon import daemon
from tests.spark.spark_helpers import BUCKET, append, event

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Return the cells of the table that an example prints."""
    monkeypatch.setattr(sys, "argv", [name, str(data)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]


@pytest.mark.spark
def test_examples_and_watermarks_show_the_stored_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    payloads = [*(event(n, data={"path": f"/{n % 2}"}) for n in range(3)), event(0), b"{bad"]
    append(tmp_path / "topics", "events", payloads)
    with daemon(tmp_path, now=lambda: BUCKET + 600.0) as running:
        landing = Landing(tmp_path / "topics", tmp_path / "tables")
        start_landing(spark, landing, available_now=True).wait(200)
        assert ProofWorker(landing, LedgerClient(running.http)).step()
        marks = running.ledger.watermarks()
        incremental = runpy.run_path(str(EXAMPLES / "incremental.py"))
        assert incremental["is_complete"]("events", marks[0].until, f"http://{running.http}")
        assert not incremental["is_complete"]("events", marks[0].until + 1, f"http://{running.http}")
        assert not incremental["is_complete"]("messages", 0.0, f"http://{running.http}")

    _, *rows = run("read_topic.py", tmp_path, monkeypatch, capsys)
    assert [(row[0], row[1]) for row in rows] == [(str(n), "events-udp") for n in range(5)]
    _, *rows = run("query_variant.py", tmp_path, monkeypatch, capsys)
    assert rows == [["click", "/0", "2"], ["click", "/1", "1"]]
    _, *rows = run("join_ledger.py", tmp_path, monkeypatch, capsys)
    assert [row[3:] for row in rows] == [
        ["duplicate", "1", "NULL"],
        ["landed.event", "3", "3"],
        ["quarantined.bad_json", "1", "1"],
    ]
    register_views(spark, landing.tables)
    (mark,) = spark.sql("select table, topic, landed, share, unix_seconds(until) until from watermarks").collect()
    assert (mark.table, mark.topic, mark.landed, mark.share) == ("events", "events", 3, marks[0].share)
    assert mark.until == marks[0].until
