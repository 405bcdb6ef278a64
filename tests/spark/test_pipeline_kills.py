"""The pipeline on the log, killed at random moments: what landed is exact, also for a reader that is not ours."""

from __future__ import annotations

import random
from pathlib import Path

import deltalake
import pyarrow.dataset as ds
import pytest

from penstock.landing.table.begun_table import DELTA, PARQUET
from penstock.landing.table_paths import Layout
from tests.landing.typed.typed_life import uuids
from tests.spark.killed_pipelines import ROWS, kill_pipelines, proved_once
from tests.spark.spark_daemon import daemon
from tests.spark.test_pipeline import start


def uuids_in(layout: Layout, form: str) -> list[str]:
    """As anybody reads the table."""
    if form == DELTA:
        found = deltalake.DeltaTable(str(layout.landed)).to_pyarrow_table(columns=["uuid"])
    else:
        found = ds.dataset(layout.landed, format="parquet", partitioning="hive").to_table(columns=["uuid"])
    return [uuid for uuid in found["uuid"].to_pylist() if uuid is not None]


SOAK = pytest.mark.soak


@pytest.mark.spark
@pytest.mark.timeout(4000)
@pytest.mark.parametrize(
    ("form", "kills"), [(PARQUET, 2), pytest.param(DELTA, 25, marks=SOAK), pytest.param(PARQUET, 25, marks=SOAK)]
)
def test_killed_at_random_moments_everything_lands_once(tmp_path: Path, form: str, kills: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance, layout = random.Random(seed), Layout.of(tmp_path / "tables")
    options = ["-o", f"pipeline.format={form}", "-o", "pipeline.merge_files_every=1s"]
    if form == DELTA:
        options += ["-o", 'pipeline.typed.click.columns={number="bigint"}']
    with daemon(tmp_path) as running:
        kill_pipelines(running, tmp_path, layout, options, kills, chance)
        last = start(tmp_path, running.http, *options, "--once")
        said = last.communicate(timeout=300)[1]
        assert last.returncode == 0, said
        assert running.ledger.balance().unaccounted == 0
    sent = 2 * kills * ROWS
    assert sorted(uuids_in(layout, form)) == sorted(f"u{number}" for number in range(sent))
    if form == DELTA:
        assert uuids(layout.typed("click")) == uuids(layout.landed)
    proofs = proved_once(tmp_path, layout, kills)
    assert sum(proof.total("duplicate") for proof in proofs) == 2 * (2 * kills)  # two by each append
