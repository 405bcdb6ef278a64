"""Deletion vectors of the CRoaring library are read exactly, and damaged ones are refused."""

from __future__ import annotations

import base64
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from penstock.files.errors import DamagedFile
from penstock.landing.table.deletion_vectors import parse_vector, read_mask
from tests.fuzzed import RAW
from tests.landing.table.foreign_writer import inline_vector, z85

MAGIC = 1681511377
SPANS = st.tuples(st.integers(0, 300_000), st.integers(1, 9000), st.integers(1, 3))
NAME = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")


def pack(rows: list[int], has_runs: bool) -> bytes:
    """Return Delta's array of bitmaps by the reference library."""
    parts = {
        high: BitMap(row & 0xFFFFFFFF for row in rows if row >> 32 == high) for high in {row >> 32 for row in rows}
    }
    content = struct.pack("<Iq", MAGIC, len(parts))
    for high, bitmap in sorted(parts.items()):
        if has_runs:
            bitmap.run_optimize()
        content += struct.pack("<I", high) + bitmap.serialize()
    return content


@given(st.lists(SPANS, max_size=5), st.booleans(), st.booleans())
def test_rows_are_those_of_the_reference_library(
    spans: list[tuple[int, int, int]], has_runs: bool, has_high: bool
) -> None:
    rows = sorted({row for first, count, step in spans for row in range(first, first + count * step, step)})
    rows += [1 << 32 | 7] if has_high else []
    parsed = [row for part in parse_vector(pack(rows, has_runs)) for row in part.tolist()]
    assert parsed == rows


@given(RAW | RAW.map(lambda data: struct.pack("<Iq", MAGIC, 1) + bytes(4) + data))
def test_any_bytes_are_rows_or_refused(content: bytes) -> None:
    with suppress(ValueError, struct.error):
        assert all(part.dtype == np.uint64 for part in parse_vector(content))


def in_file(folder: Path, content: bytes, prefix: str = "") -> dict[str, Any]:
    """Write a vector into a file behind another one, as Spark does; return its descriptor."""
    path = folder / prefix / f"deletion_vector_{NAME}.bin"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x01ab" + struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content)))
    described = {"offset": 3, "sizeInBytes": len(content), "cardinality": 2}
    return {"storageType": "u", "pathOrInlineDv": prefix + z85(NAME.bytes), **described}


@pytest.mark.parametrize("prefix", ["", "ab"])
def test_vector_is_read_from_its_file(tmp_path: Path, prefix: str) -> None:
    described = in_file(tmp_path, pack([1, 3, 9], has_runs=False), prefix)
    assert read_mask(tmp_path, described, 5).tolist() == [True, False, True, False, True]
    path = tmp_path / prefix / f"deletion_vector_{NAME}.bin"
    absolute = {**described, "storageType": "p", "pathOrInlineDv": path.as_uri()}
    assert read_mask(tmp_path, absolute, 5).tolist() == [True, False, True, False, True]
    damaged = bytearray(path.read_bytes())
    damaged[-6] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(DamagedFile, match="is damaged"):
        read_mask(tmp_path, described, 5)
    path.unlink()
    with pytest.raises(DamagedFile, match="No such file"):
        read_mask(tmp_path, described, 5)


def test_inline_vector_and_wrong_ones(tmp_path: Path) -> None:
    described = inline_vector([0, 2])
    assert read_mask(tmp_path, described, 4).tolist() == [False, True, False, True]
    for change in (
        {"storageType": "x"},
        {"pathOrInlineDv": base64.b85encode(b"1234" * 4).decode()},
        {"sizeInBytes": None},
    ):
        with pytest.raises(DamagedFile, match="cannot be read"):
            read_mask(tmp_path, described | change, 4)


def test_runs_that_are_longer_than_their_container_are_refused() -> None:
    runs = struct.pack("<HHHHHHH", 3, 0, 65_535, 0, 65_535, 0, 65_535)
    content = struct.pack("<Iq", MAGIC, 1) + struct.pack("<IIBHH", 0, 12347, 1, 0, 4) + runs
    with pytest.raises(ValueError, match="runs"):
        list(parse_vector(content))
