"""Rows of answers as messages."""

from __future__ import annotations

import struct
from decimal import Decimal

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.postgres.parameters import literal
from penstock.sql.postgres.rows import binary_value, data_rows
from penstock.sql.postgres.types import BINARY_FORMAT, INT8, NUMERIC, TEXT, TEXT_FORMAT, Column


def test_rows_of_a_batch_are_messages_without_a_step_per_row() -> None:
    columns = [Column("n", INT8), Column("t", TEXT)]
    batch = pa.record_batch({"n": pa.array([1, None], pa.int64()), "t": pa.array(["é", ""])})
    rows = bytes(data_rows(batch, columns, [BINARY_FORMAT, TEXT_FORMAT]))
    first = b"D" + struct.pack("!IHiqi", 24, 2, 8, 1, 2) + "é".encode()
    second = b"D" + struct.pack("!IHii", 14, 2, -1, 0)
    assert rows == first + second
    sliced = bytes(data_rows(batch.slice(1), columns, [BINARY_FORMAT, TEXT_FORMAT]))
    assert sliced == second
    assert bytes(data_rows(batch.slice(2), columns, [0, 0])) == b""


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**20), max_value=10**20))
def test_binary_numeric_is_read_as_it_is_written(number: Decimal) -> None:
    written = binary_value(NUMERIC, number)
    assert duckdb.sql(f"SELECT {literal(NUMERIC.oid, BINARY_FORMAT, written)}").fetchall() == [(number,)]
