"""Reads the uuids of all events with one engine, without Penstock: ``python read_uuids.py ENGINE FOLDER OUTPUT``.

For ``spark`` the environment has the session's settings as JSON in SPARK_SETTINGS.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any


def of(folder: str) -> Any:
    """PyArrow's own file system; with that of delta-rs an interpreter may abort as it ends, after all is read."""
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    return SubTreeFileSystem(folder, LocalFileSystem())


def with_deltalake(folder: str) -> Iterable[str]:
    import deltalake

    return (
        deltalake.DeltaTable(folder)
        .to_pyarrow_table(filesystem=of(folder), filters=[("kind", "=", "event")])["uuid"]
        .to_pylist()
    )


def with_pyarrow(folder: str) -> Iterable[str]:
    import deltalake
    import pyarrow.dataset as ds

    rows = deltalake.DeltaTable(folder).to_pyarrow_dataset(filesystem=of(folder))
    return rows.to_table(columns=["uuid"], filter=ds.field("kind") == "event")["uuid"].to_pylist()


def with_pandas(folder: str) -> Iterable[str]:
    import deltalake

    frame = deltalake.DeltaTable(folder).to_pandas(columns=["kind", "uuid"], filesystem=of(folder))
    return list(frame[frame["kind"] == "event"]["uuid"])


def with_polars(folder: str) -> Iterable[str]:
    import polars

    rows = polars.scan_delta(folder).filter(polars.col("kind") == "event")
    return rows.select("uuid").collect()["uuid"].to_list()


def with_duckdb(folder: str) -> Iterable[str]:
    import deltalake
    import duckdb

    rows = deltalake.DeltaTable(folder).to_pyarrow_dataset(filesystem=of(folder))  # noqa: F841  named in the statement
    return [uuid for (uuid,) in duckdb.sql("select uuid from rows where kind = 'event'").fetchall()]


def with_spark(folder: str) -> Iterable[str]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]")
    for name, value in json.loads(os.environ["SPARK_SETTINGS"]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for statement in json.loads(os.environ["SPARK_STATEMENTS"]):
        spark.sql(statement)
    found = [row.uuid for row in spark.sql("select uuid from events").collect()]
    assert spark.read.format("delta").load(folder).where("kind = 'event'").count() == len(found)
    spark.stop()
    return found


ENGINES: dict[str, Callable[[str], Iterable[str]]] = {
    "deltalake": with_deltalake,
    "pyarrow": with_pyarrow,
    "pandas": with_pandas,
    "polars": with_polars,
    "duckdb": with_duckdb,
    "spark": with_spark,
}

if __name__ == "__main__":
    engine, folder, output = sys.argv[1:]
    uuids = list(ENGINES[engine](folder))
    assert "penstock" not in sys.modules
    with open(output, "w") as file:
        json.dump(uuids, file)
