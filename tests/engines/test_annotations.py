"""Whatever annotations senders give, each engine reads all rows of the table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.from_kafka.rows import ROW
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import Job, MessageBatch, write_part
from tests.engines.foreign_spark import ForeignSpark
from tests.landing.rows.test_unique_annotations import Rows, expected

AT = datetime(2026, 2, 3, tzinfo=UTC)
WINDOW = 600_000_000
PAYLOADS = (b"text", b"{bad", b'{"type":"x","uuid":"u"}', b"<13>x")
CODECS = ("plog", "gelf", "otlp", "syslog", "forward", "hec")


def land(folder: Path, annotations: Rows) -> Layout:
    """Land one message for each row of annotations, of all codecs and kinds in turn."""
    layout = Layout.for_tables(folder)
    table = begin_table(layout)
    base = {"topic": "t", "source": "s", "timestamp": AT, "bucket": AT, "received": AT}
    rows = [
        {**base, "offset": n, "payload": PAYLOADS[n % 4], "codec": CODECS[n % 6], "annotations": pairs}
        for n, pairs in enumerate(annotations)
    ]
    part = write_part(
        [MessageBatch(pa.RecordBatch.from_pylist(rows, schema=ROW), relands=True)],
        Job(table.folder, layout.keys, WINDOW),
        1,
    )
    BatchCommit(table, layout.keys, WINDOW).land(0, lambda: [part])
    return layout


def as_maps(rows: list[Any]) -> list[dict[str, str] | None]:
    return [None if row is None else dict(row) for row in rows]


def read_by_all(layout: Layout) -> dict[str, list[dict[str, str] | None]]:
    table = deltalake.DeltaTable(str(layout.landed))
    files = table.file_uris()
    in_order = 'select annotations from {} order by "offset"'
    frame = polars.scan_delta(str(layout.landed)).sort("offset").select("annotations").collect()
    rows = table.to_pyarrow_dataset()
    assert isinstance(rows, ds.Dataset)
    arrow = rows.to_table(columns=["annotations", "offset"]).sort_by("offset")
    return {
        "duckdb": [row for (row,) in duckdb.sql(in_order.format(f"read_parquet({files!r})")).fetchall()],
        "duckdb through arrow": [row for (row,) in duckdb.sql(in_order.format("rows")).fetchall()],
        "polars": as_maps(frame["annotations"].to_list()),
        "pyarrow": as_maps(arrow["annotations"].to_pylist(maps_as_pydicts="strict")),
        "deltalake": as_maps(table.to_pyarrow_table().sort_by("offset")["annotations"].to_pylist()),
    }


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
_PAIRS = st.tuples(st.sampled_from(["a", "time", "uuid", "host", ""]) | _TEXTS, _TEXTS)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.none() | st.lists(_PAIRS, max_size=5), min_size=1, max_size=8))
def test_each_engine_reads_any_annotations(annotations: Rows) -> None:
    with TemporaryDirectory() as folder:
        layout = land(Path(folder), annotations)
        expected_maps = as_maps(expected(annotations))
        for engine, read in read_by_all(layout).items():
            assert read == expected_maps, engine


@pytest.mark.spark
def test_spark_reads_repeated_annotations(foreign_spark: ForeignSpark, tmp_path: Path) -> None:
    annotations: Rows = [[("_a", "1"), ("_a", "2")], [("a", "1"), ("b", "2"), ("a", "3")], None, []]
    layout = land(tmp_path / "tables", annotations)
    rows = foreign_spark.sql("SELECT annotations FROM {} ORDER BY offset", layout.landed)
    assert [row["annotations"] for row in rows] == as_maps(expected(annotations))
