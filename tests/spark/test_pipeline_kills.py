"""The pipeline on the log, killed at random moments: what landed is exact, also for a reader that is not ours."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.landing.table_paths import Layout
from tests.landing.typed.typed_life import uuids
from tests.spark.killed_pipelines import ROWS, clicks_in_duckdb, kill_pipelines, proved_once
from tests.spark.spark_daemon import daemon
from tests.spark.test_pipeline import start


@pytest.mark.spark
@pytest.mark.timeout(4000)
@pytest.mark.soak  # the suite kills a pipeline at random with its tables in an object store
@pytest.mark.parametrize("kills", [5, 25])
def test_everything_lands_once_with_random_kills(tmp_path: Path, kills: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance, layout = random.Random(seed), Layout.for_tables(tmp_path / "tables")
    options = ["-o", "pipeline.merge_files_every=1s", "-o", 'pipeline.typed.click.columns={number="bigint"}']
    with daemon(tmp_path) as running:
        kill_pipelines(running, tmp_path, layout, options, kills, chance)
        last = start(tmp_path, running.http, *options, "--once")
        log_text = last.communicate(timeout=300)[1]
        assert last.returncode == 0, log_text
        assert running.ledger.balance().unaccounted == 0
    sent = 2 * kills * ROWS
    assert uuids(layout.landed) == sorted(f"u{number}" for number in range(sent))
    assert uuids(layout.typed("click")) == uuids(layout.landed)
    assert clicks_in_duckdb(tmp_path / "tables") == (sent, sent)
    proofs = proved_once(tmp_path, layout, kills)
    assert sum(proof.total("duplicate") for proof in proofs) == 2 * (2 * kills)  # two by each append
