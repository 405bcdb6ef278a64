"""Ten million and a billion offsets in a Delta and in an Iceberg table are audited within the documented memory."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import AddAction
from pyiceberg.catalog import load_catalog

PARTITIONS = 4
MAX_MEMORY_KIB = 1_500 << 10
SCHEMA = pa.schema([("kafka_topic", pa.string()), ("kafka_partition", pa.int32()), ("kafka_offset", pa.int64())])  # type: ignore[arg-type]
COMMAND = "from penstock.cli.main import main; main()"


def write_files(folder: Path, files: int, rows: int) -> list[Path]:
    """Write files of one partition each, as a sink does."""
    topics = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["orders"])).cast(pa.string())
    paths = []
    for number in range(files):
        begin = number // PARTITIONS * rows
        partitions = np.full(rows, number % PARTITIONS, np.int32)
        offsets = np.arange(begin, begin + rows)
        paths.append(folder / f"part-{number:05}.parquet")
        pq.write_table(
            pa.table([topics, partitions, offsets], schema=SCHEMA),
            paths[-1],
            compression="zstd",
            use_dictionary=["kafka_topic", "kafka_partition"],  # type: ignore[arg-type]
        )
    return paths


def create_delta(folder: Path, paths: list[Path], rows: int) -> None:
    table = deltalake.DeltaTable.create(str(folder), schema=SCHEMA)
    now_ms = int(time.time() * 1000)
    statistics = f'{{"numRecords":{rows}}}'
    files = [AddAction(path.name, path.stat().st_size, {}, now_ms, True, statistics) for path in paths]
    table.create_write_transaction(files, mode="append", schema=table.schema())


def create_iceberg(folder: Path, paths: list[Path]) -> str:
    """Return the metadata file of a table with the same files."""
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", schema=SCHEMA)
    table.add_files([f"file://{path}" for path in paths])
    return table.refresh().metadata_location


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("files", "rows"), [(40, 250_000), (200, 5_000_000)])
def test_many_offsets_of_delta_and_iceberg_are_audited(tmp_path: Path, files: int, rows: int) -> None:
    folder = tmp_path / "orders"
    folder.mkdir()
    paths = write_files(folder, files, rows)
    create_delta(folder, paths, rows)
    metadata = create_iceberg(tmp_path, paths)
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    audit = [sys.executable, "-c", COMMAND, "audit", str(folder), metadata]
    completed = subprocess.run(audit, capture_output=True, text=True, timeout=3000)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"2 x {files * rows:,} offsets: {time.monotonic() - began_s:.1f} s, "
        f"{cpu_s:.1f} s of CPU, at most {usage.ru_maxrss >> 10} MiB"
    )
    assert (completed.returncode, f"complete: {files * rows:,} records checked" in completed.stdout) == (0, True), (
        completed.stdout + completed.stderr
    )
    assert usage.ru_maxrss < MAX_MEMORY_KIB
