"""The pipeline as a process with its tables in an object store: killed, cut off, begun twice, given a wrong key."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import deltalake
import pytest
from pyiceberg.catalog import load_catalog

import penstock.tables
from penstock.config import load
from penstock.config.keys.pipeline import IcebergConfig
from penstock.landing.table_paths import Layout
from penstock.upkeep.iceberg.mirror import catalog_properties
from tests.cli.command_line import run
from tests.engines.read_uuids import ENGINES
from tests.object_store import BUCKET, S3Server
from tests.spark.killed_pipelines import ROWS, kill_pipelines, proved_once
from tests.spark.spark_daemon import daemon
from tests.spark.test_pipeline import append, proved_to, start, wait_for

SCRIPT = Path(__file__).parents[1] / "engines" / "read_uuids.py"
SOAK = pytest.mark.soak


def configure(url: str, options: dict[str, str]) -> list[str]:
    """A configuration, as options of a command."""
    settings = {"tables": url, **{f"storage_options.{name}": value for name, value in options.items()}}
    return [part for name, value in settings.items() for part in ("-o", f"pipeline.{name}={json.dumps(value)}")]


def layout_of(data: Path, options: list[str]) -> Layout:
    return Layout.for_tables(load(None, [f"data_dir={data}", *options[1::2]]).tables)


def read_with(engine: str, layout: Layout, output: Path) -> list[str]:
    """Read the uuids with an engine, without Penstock."""
    assert layout.store is not None
    options = {name: value for name, value in layout.store.options.items() if name.startswith("AWS_")}
    environment = {**os.environ, "STORAGE_OPTIONS": json.dumps(options)}
    command = [sys.executable, str(SCRIPT), engine, str(layout.landed), str(output)]
    subprocess.run(command, check=True, timeout=240, env=environment, cwd=output.parent)
    rows: list[str] = json.loads(output.read_text())
    return rows


@contextmanager
def away(s3: S3Server, seconds: float) -> Iterator[None]:
    """Stop the server until the block has ended; the block starts after ``seconds``."""
    with s3.stopped():
        time.sleep(seconds)
        yield


@pytest.mark.survives("landing from the log", "peer away")
@pytest.mark.spark
@pytest.mark.timeout(4000)
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=SOAK)])
def test_everything_lands_once_with_random_kills_and_outages(tmp_path: Path, s3: S3Server, kills: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    options = [*configure(f"s3://{BUCKET}/kills{seed}", s3.options()), "-o", "pipeline.merge_files_every=1s"]
    options += ["-o", 'pipeline.typed.click.columns={number="bigint"}']
    layout = layout_of(tmp_path, options)
    with daemon(tmp_path) as running:
        kill_pipelines(running, tmp_path, layout, options, kills, chance, lambda: away(s3, chance.random() * 4))
        last = start(tmp_path, running.http, *options, "--once")
        with s3.stopped():
            time.sleep(5)
        log_text = last.communicate(timeout=300)[1]
        assert last.returncode == 0, log_text
        assert running.ledger.balance().unaccounted == 0
    uuids = sorted(f"u{number}" for number in range(2 * kills * ROWS))
    for engine in {*ENGINES} - {"spark-connect"}:
        assert sorted(read_with(engine, layout, tmp_path / "uuids.json")) == uuids
    clicks = deltalake.DeltaTable(str(layout.typed("click")), storage_options=s3.options())
    assert sorted(clicks.to_pyarrow_table(columns=["uuid"])["uuid"].to_pylist()) == uuids
    proofs = proved_once(tmp_path, layout, kills)
    assert sum(proof.total("duplicate") for proof in proofs) == 2 * (2 * kills)  # two by each append


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_pipeline_waits_for_the_store_and_refuses_a_second_writer(tmp_path: Path, s3: S3Server) -> None:
    url = f"s3://{BUCKET}/away"
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    options = [*configure(url, s3.options()), "-o", "pipeline.iceberg.catalog=lake"]
    options += [part for name, value in catalog.items() for part in ("-o", f"pipeline.iceberg.options.{name}={value}")]
    layout = layout_of(tmp_path, options)
    copy = f"s3://{BUCKET}/copy"
    of_store = ", ".join(f"{name}='{text}'" for name, text in s3.options().items())
    export = ["-o", f"export=[{{name='copy', to='{copy}', every=1, options={{{of_store}}}}}]"]
    with daemon(tmp_path) as running, (tmp_path / "said").open("w+") as log_text:
        append(running, 0, ROWS)
        pipeline = start(tmp_path, running.http, *options, *export, stderr=log_text)
        wait_for(lambda: proved_to(layout) == ROWS + 3)
        with s3.stopped():
            append(running, 1000, ROWS)
            wait_for(lambda: "landing waits" in (tmp_path / "said").read_text())
        wait_for(lambda: running.ledger.landed()["t"].through == 2 * (ROWS + 3))

        (tmp_path / "other").mkdir()
        second = start(tmp_path / "other", running.http, *options)
        refused = second.communicate(timeout=60)[1]
        assert second.returncode == 1
        assert f"{url}/landed is written by another pipeline" in refused.splitlines()[-1]

        answers = run_commands(tmp_path, options, running.http)
        pipeline.terminate()
        assert pipeline.wait(60) == 0, (tmp_path / "said").read_text()
        assert running.ledger.balance().unaccounted == 0
    text = (tmp_path / "said").read_text()
    assert "landing continues" in text
    assert "Traceback" not in text
    assert s3.options()["AWS_SECRET_ACCESS_KEY"] not in text
    assert answers == [2 * ROWS, "landed.event", 2 * ROWS]
    opened = penstock.tables.open(url, "events", s3.options())
    assert opened.count_rows() == 2 * ROWS
    store = catalog_properties(layout, IcebergConfig(options=catalog))
    mirrored = load_catalog("lake", **store).load_table("penstock.landed")
    assert mirrored.scan(row_filter="kind = 'event'").to_arrow().num_rows == 2 * ROWS
    copied = deltalake.DeltaTable(copy, storage_options=s3.options()).to_pyarrow_table(columns=["uuid"])["uuid"]
    assert (len(copied), len(copied.unique())) == (2 * ROWS, 2 * ROWS)


def run_commands(data: Path, options: list[str], http: str) -> list[object]:
    """Run the commands on tables: SQL, trace, and a count of rows."""
    common = ["-o", f"data_dir={data}", "-o", f"log.http={http}", *options]

    def log_text(*command: str) -> str:
        process = run(*command, *common, folder=data)
        assert process.status == 0, process
        return process.output

    assert len(log_text("tables", "files").splitlines()) == len(penstock_files(data, options))
    assert "********" in log_text("config", "explain")
    assert "hadoop-aws:3.5.0" in log_text("tables", "spark-config")
    assert "hadoop-aws:3.4.1" in log_text("tables", "spark-config", "--spark", "4.0")
    log_text("pipeline", "compact")
    rows = json.loads(log_text("sql", "select count(*) n from events", "--json"))
    traced = json.loads(log_text("trace", "t:5", "--json"))
    return [rows[0]["n"], traced["fate"], json.loads(log_text("tables", "rows", "--json"))["events"]]


def penstock_files(data: Path, options: list[str]) -> list[str]:
    from penstock.landing.table.landed_table import table_of

    return table_of(layout_of(data, options)).active()


@pytest.mark.parametrize("key", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_key_is_named_in_one_line(tmp_path: Path, s3: S3Server, key: str) -> None:
    options = configure(f"s3://{BUCKET}/refused", s3.options(**{key: "guessed"}))
    pipeline = start(tmp_path, "127.0.0.1:1", *options)
    log_text = pipeline.communicate(timeout=60)[1]
    assert pipeline.returncode == 1
    assert len(log_text.splitlines()) == 1
    assert key in log_text
    assert "guessed" not in log_text
