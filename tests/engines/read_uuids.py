"""Read the uuids of all events with one engine, without Penstock: ``python read_uuids.py ENGINE FOLDER OUTPUT``.

The environment has the settings of Spark's session as JSON in SPARK_SETTINGS, and the options of the store of a URL in
STORAGE_OPTIONS.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

OPTIONS: dict[str, str] = json.loads(os.environ.get("STORAGE_OPTIONS", "{}"))


def file_system_of(folder: str) -> Any:
    """Return PyArrow's file system: with the one of delta-rs the interpreter may abort at its end, after all reads."""
    from pyarrow.fs import LocalFileSystem, S3FileSystem, SubTreeFileSystem

    if not OPTIONS:
        return SubTreeFileSystem(folder, LocalFileSystem())
    store = S3FileSystem(
        access_key=OPTIONS["AWS_ACCESS_KEY_ID"],
        secret_key=OPTIONS["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=OPTIONS["AWS_ENDPOINT_URL"],
        region=OPTIONS["AWS_REGION"],
    )
    return SubTreeFileSystem(folder.removeprefix("s3://"), store)


def delta(folder: str) -> Any:
    import deltalake

    return deltalake.DeltaTable(folder, storage_options=OPTIONS or None)


def with_deltalake(folder: str) -> Iterable[str]:
    return (
        delta(folder)
        .to_pyarrow_table(filesystem=file_system_of(folder), filters=[("kind", "=", "event")])["uuid"]
        .to_pylist()
    )


def with_pyarrow(folder: str) -> Iterable[str]:
    import pyarrow.dataset as ds

    rows = delta(folder).to_pyarrow_dataset(filesystem=file_system_of(folder))
    return rows.to_table(columns=["uuid"], filter=ds.field("kind") == "event")["uuid"].to_pylist()


def with_pandas(folder: str) -> Iterable[str]:
    frame = delta(folder).to_pandas(columns=["kind", "uuid"], filesystem=file_system_of(folder))
    return list(frame[frame["kind"] == "event"]["uuid"])


def with_polars(folder: str) -> Iterable[str]:
    import polars

    rows = polars.scan_delta(folder, storage_options=OPTIONS or None).filter(polars.col("kind") == "event")
    return rows.select("uuid").collect()["uuid"].to_list()


def with_duckdb(folder: str) -> Iterable[str]:
    import duckdb

    rows = delta(folder).to_pyarrow_dataset(filesystem=file_system_of(folder))  # noqa: F841  named in the statement
    return [uuid for (uuid,) in duckdb.sql("select uuid from rows where kind = 'event'").fetchall()]


def with_spark_connect(folder: str) -> Iterable[str]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[1]")
    for name, value in json.loads(os.environ["SPARK_SETTINGS"]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for statement in json.loads(os.environ["SPARK_STATEMENTS"]):
        spark.sql(statement)
    uuids = [row.uuid for row in spark.sql("select uuid from events").collect()]
    assert spark.read.format("delta").load(folder).where("kind = 'event'").count() == len(uuids)
    spark.stop()
    return uuids


ENGINES: dict[str, Callable[[str], Iterable[str]]] = {
    "deltalake": with_deltalake,
    "pyarrow": with_pyarrow,
    "pandas": with_pandas,
    "polars": with_polars,
    "duckdb": with_duckdb,
    "spark-connect": with_spark_connect,
}

if __name__ == "__main__":
    engine, folder, output = sys.argv[1:]
    uuids = list(ENGINES[engine](folder))
    assert "penstock" not in sys.modules
    with open(output, "w") as file:
        json.dump(uuids, file)
