"""Pieces of a round as one batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records import BODY
from penstock.wire.decoded import Piece, join, tag_columns
from penstock.wire.sender_text import text

JOINED = st.lists(st.sampled_from([b"", b"a", b"pk:", b"pk:1", b"pk:\xff", b"apk:2", b"\n"])).map(b"\0".join)


def piece(rows: list[int], tags: dict[int, bytes] | None = None) -> Piece:
    joined = pa.array([tags.get(row) for row in rows], pa.binary()) if tags else None
    return Piece(np.array(rows, np.int64), pa.array([b"%d" % row for row in rows], pa.binary()), joined)


def test_pieces_are_merged_in_order_of_arrival() -> None:
    batch, rows = join([piece([1, 4, 7]), piece([]), piece([9, 0, 5], {0: b"x\0pk:a\0", 9: b"\0\0"})])
    assert batch.schema == BODY
    assert rows.tolist() == [0, 1, 4, 5, 7, 9]
    assert batch["payload"].to_pylist() == [b"0", b"1", b"4", b"5", b"7", b"9"]
    assert batch["key"].to_pylist() == [b"a", None, None, None, None, None]
    assert batch["annotations"].to_pylist() == [[("tags", "x\0pk:a")], None, None, None, None, None]


def test_no_pieces_are_an_empty_batch() -> None:
    assert join([])[0].schema == BODY
    assert join([piece([])])[0].num_rows == 0


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=12), JOINED), max_size=6))
def test_tags_are_those_of_plog_without_empty_ones_and_the_last_key_counts(tags: list[bytes | None]) -> None:
    keys, annotations = tag_columns(pa.array(tags, pa.binary()))
    annotations.validate(full=True)
    for joined, key, entries in zip(tags, keys.to_pylist(), annotations.to_pylist(), strict=True):
        names = [name for name in (joined or b"").split(b"\0") if name]
        assert entries == ([("tags", text(b"\0".join(names)))] if names else None)
        assert key == next((name[3:] for name in reversed(names) if name.startswith(b"pk:")), None)
