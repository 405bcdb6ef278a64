"""Pieces of a round as one batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.records import BODY
from penstock.wire.decoded import Piece, join


def piece(rows: list[int], tags: dict[int, bytes] | None = None) -> Piece:
    return Piece(np.array(rows, np.int64), pa.array([b"%d" % row for row in rows], pa.binary()), tags or {})


def test_pieces_are_merged_in_order_of_arrival() -> None:
    batch = join([piece([1, 4, 7]), piece([]), piece([9, 0, 5], {0: b"x\0pk:a\0", 9: b"\0\0"})])
    assert batch.schema == BODY
    assert batch["payload"].to_pylist() == [b"0", b"1", b"4", b"5", b"7", b"9"]
    assert batch["key"].to_pylist() == [b"a", None, None, None, None, None]
    assert batch["annotations"].to_pylist() == [[("tags", "x\0pk:a")], None, None, None, None, None]


def test_no_pieces_are_an_empty_batch() -> None:
    assert join([]).schema == BODY
    assert join([piece([])]).num_rows == 0
