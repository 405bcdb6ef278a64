"""Few rows, framed without Arrow, have the bytes that Arrow would write."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import Origin
from penstock.log.store import producers, row_format
from penstock.log.store.batch_format import document, load, parse
from penstock.records import BODY, FEW_ROWS, SCHEMA, BadBatch, Rows, decode, encode_parts

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=40),
        st.none() | TEXTS,
        st.none() | st.lists(st.tuples(TEXTS, TEXTS), max_size=3),
    ),
    min_size=1,
    max_size=70,
).map(Rows)


def framed(rows: Rows, source: str = "grpc") -> tuple[tuple[bytes, bytes], int]:
    batch_document = document(Origin(source, 60, 1, 2), 7, len(rows), (5, 4 + len(rows)), 0)
    return row_format.frame(rows, 7, 5, batch_document)


@given(ROWS, st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_rows_are_read_back_with_their_offsets_times_and_document(rows: Rows, source: str) -> None:
    parts, crc = framed(rows, source)
    data = pa.py_buffer(b"".join(parts))
    message = parse(data, 0)
    batch = load(data, message)
    batch.validate(full=True)
    assert (message.length, message.crc, message.origin.source) == (sum(map(len, parts)), crc, source)
    assert len(parts[0]) % 8 == len(parts[1]) % 8 == 0
    assert batch.column("offset").to_pylist() == list(range(7, 7 + len(rows)))
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == list(range(5, 5 + len(rows)))
    assert batch.drop_columns(["offset", "timestamp"]).equals(rows.batch())


DOCUMENTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), st.integers() | st.text())


@given(ROWS, DOCUMENTS)
def test_rows_of_a_body_are_read_back_by_arrow_and_as_rows(rows: Rows, described: dict[str, Any]) -> None:
    data = memoryview(b"".join(row_format.body_message(rows, described)))
    batch, described_read = decode(data, BODY)
    batch.validate(full=True)
    assert (batch, described_read) == (rows.batch(), described)
    few = len(rows) <= FEW_ROWS
    assert row_format.rows_of_body(data) == ((rows, described) if few else None)


@given(ROWS, st.integers(0, 600), st.binary(min_size=1, max_size=4))
def test_damaged_body_is_rows_or_bad_batch(rows: Rows, position: int, change: bytes) -> None:
    data = b"".join(row_format.body_message(Rows(rows[:8]), {"v": 1}))
    damaged = data[:position] + change + data[position + len(change) :]
    with contextlib.suppress(BadBatch):
        row_format.rows_of_body(memoryview(damaged))


def test_message_of_arrow_is_not_read_as_rows() -> None:
    batch = Rows([(None, b"x", None, [("a", "b")])]).batch()
    assert row_format.rows_of_body(memoryview(b"".join(encode_parts(batch, {})))) is None


@given(ROWS)
def test_checksum_of_rows_equals_that_of_their_batch(rows: Rows) -> None:
    assert row_format.checksum(rows) == producers.checksum(rows.batch())


@given(ROWS)
def test_rows_are_readable_by_arrow(rows: Rows) -> None:
    stream = SCHEMA.serialize().to_pybytes() + b"".join(framed(rows)[0])
    table = pl.read_ipc_stream(io.BytesIO(stream))
    assert table["payload"].to_list() == [payload for _, payload, _, _ in rows]
    assert table["type_url"].to_list() == [name for _, _, name, _ in rows]
