"""Formats of an answer, and notes on its duration."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import duckdb
import pandas
import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.landing.table_paths import Layout
from penstock.sql.answers import csv_text, parquet_bytes, slowness
from penstock.sql.query import BadQuery, Query
from penstock.sql.tables import Tables
from tests.spark.spark_helpers import append, event
from tests.sql.test_query import Pipeline

COUNT = "select count(*) from events"


def slowness_text(tables: Tables, text: str, seconds: float) -> str:
    """Return the note for an answer while each clock reading adds ``seconds``."""
    with Query(tables, text, clock=itertools.count(0.0, seconds).__next__) as query:
        query.answer()
        return slowness(query)


def test_slow_answer_names_the_size_of_the_read_files(topics: Path, tmp_path: Path) -> None:
    tables = Tables(Layout.for_tables(tmp_path / "tables"))
    append(topics, "t", [event(0)])
    Pipeline(topics, tables.layout).land(0, 1)
    assert slowness_text(tables, COUNT, 0.9) == ""
    text = slowness_text(tables, COUNT, 1.8)
    assert text == "that took 1.8 s (1 file, 0 MB); a condition on date leaves files out"


def test_parquet_has_the_rows_with_their_types() -> None:
    rows = pa.table({"n": pa.array([1, None], pa.int32()), "payload": pa.array([b"a", b"b"])})
    assert parquet.read_table(io.BytesIO(parquet_bytes(rows))).equals(rows)


def test_type_without_parquet_is_named() -> None:
    rows = pa.table({"i": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
    with pytest.raises(BadQuery, match=r"Parquet cannot represent .*interval.*: cast it to VARCHAR"):
        parquet_bytes(rows)


def test_slow_answer_without_a_table_names_its_duration(tmp_path: Path) -> None:
    assert slowness_text(Tables(Layout.for_tables(tmp_path / "tables")), "select 1", 2.5) == "that took 2.5 s"


@pytest.mark.parametrize("columns", [1, 2])
def test_csv_read_by_others_has_all_rows_and_tells_a_null_from_an_empty_text(tmp_path: Path, columns: int) -> None:
    """adaltas/node-csv-stringify#86, dbeaver/dbeaver#4024: both were empty fields. One column has no empty lines."""
    texts = ["a", None, "", ' "x", \r\n y', "1,5", "NULL", "\\N"]
    table = pa.table({"n": range(len(texts)), "t": texts}).select(["n", "t"][-columns:])
    file = tmp_path / "rows.csv"
    file.write_bytes(csv_text(table).encode())
    query = f"SELECT t FROM read_csv('{file}', header = true, all_varchar = true, allow_quoted_nulls = false)"
    rows = [text for (text,) in duckdb.sql(query).fetchall()]
    assert rows == [text or "" if columns == 1 else text for text in texts]
    assert len(pandas.read_csv(file, keep_default_na=False)) == len(texts)
