"""Bloom filters as pyarrow writes them, judged by DuckDB."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.landing.storage.bloom_filters import may_contain, xxh64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_hash_has_the_published_values(text: bytes, expected: int) -> None:
    assert xxh64(text) == expected


def test_filter_excludes_what_duckdb_excludes(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    present = [f"u-{'x' * (number % 70)}-{number}" for number in range(3000)]
    options: Any = {"uuid": {"ndv": 1000, "fpp": 0.05}}
    pq.write_table(pa.table({"uuid": present}), path, row_group_size=1000, bloom_filter_options=options)
    absent = [f"v-{'x' * (number % 70)}-{number}" for number in range(100)]
    handle = os.open(path, os.O_RDONLY)
    with pq.ParquetFile(path) as file, duckdb.connect() as connection:
        for group in range(3):
            chunk: Any = file.metadata.row_group(group).column(0)
            place = chunk.bloom_filter_offset, chunk.bloom_filter_length
            rows = present[1000 * group : 1000 * group + 1000]
            assert all(may_contain(handle, *place, xxh64(uuid.encode())) for uuid in rows)
            for uuid in absent:
                probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, 'uuid', ?) WHERE row_group_id = ?"
                excluded = connection.execute(probe, [str(path), uuid, group]).fetchall() == [(True,)]
                assert may_contain(handle, *place, xxh64(uuid.encode())) is not excluded
    os.close(handle)


def test_filter_that_is_not_understood_excludes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "filter"
    for content in (b"", b"\x00" * 100, b"\x15", b"\x15\xff\xff\xff\xff\xff", b"\x15\x06" + b"\x00" * 98):
        path.write_bytes(content)
        handle = os.open(path, os.O_RDONLY)
        assert may_contain(handle, 0, 100, xxh64(b"u"))
        os.close(handle)
