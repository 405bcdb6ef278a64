"""The pipeline on the log, killed at random moments: what landed is exact, also for a reader that is not ours."""

from __future__ import annotations

import random
import time
from pathlib import Path

import deltalake
import pyarrow.dataset as ds
import pytest

from penstock.landing.proof.proofs import read_proofs
from penstock.landing.proof.prover import rebuild
from penstock.landing.table.begun_table import DELTA, PARQUET
from penstock.landing.table_paths import Layout
from tests.spark.spark_daemon import daemon
from tests.spark.test_pipeline import append, proved_to, start, wait_for

ROWS = 300
"""Events of an append; it has two rows more."""


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
    planned = layout.checkpoint / "offsets"
    with daemon(tmp_path) as running:
        for kill in range(kills):
            append(running, kill * ROWS, ROWS)
            before = len(list(planned.glob("[0-9]*")))
            killed = start(tmp_path, running.http, *options)
            wait_for(lambda before=before: len(list(planned.glob("[0-9]*"))) > before)
            append(running, (kill + kills) * ROWS, ROWS)
            time.sleep(chance.random() * 2)
            killed.kill()
            killed.wait()
        last = start(tmp_path, running.http, *options, "--once")
        said = last.communicate(timeout=300)[1]
        assert last.returncode == 0, said
        assert running.ledger.balance().unaccounted == 0
    sent = 2 * kills * ROWS
    assert sorted(uuids_in(layout, form)) == sorted(f"u{number}" for number in range(sent))
    assert proved_to(layout) == 2 * kills * (ROWS + 3)
    proofs = [proof for proofs in read_proofs(layout) for proof in proofs]
    assert all(proof.holds for proof in proofs)
    assert sum(proof.total("duplicate") for proof in proofs) == 2 * (2 * kills)  # two by each append
    assert list(rebuild(tmp_path / "topics", layout)) == proofs
