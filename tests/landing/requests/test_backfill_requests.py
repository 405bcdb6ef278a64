"""Tests of backfill requests, as files and as runs of offsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.offset_runs import offsets_of, runs_of
from penstock.landing.requests.backfill_requests import Request, load_requests, subtract_runs, write_request

OFFSETS = st.sets(st.integers(0, 60)).map(lambda offsets: np.array(sorted(offsets), np.int64))


@given(OFFSETS, OFFSETS, st.integers(0, 60), st.integers(0, 60))
def test_subtract_runs_leaves_other_offsets(
    first: np.ndarray[tuple[int], np.dtype[np.int64]],
    second: np.ndarray[tuple[int], np.dtype[np.int64]],
    begin: int,
    end: int,
) -> None:
    remaining = offsets_of(subtract_runs(begin, end, [*runs_of(first).tolist(), *runs_of(second).tolist()]))
    assert remaining.tolist() == sorted(set(range(begin, end)) - set(first.tolist()) - set(second.tolist()))


@given(OFFSETS, st.integers(0, 70), st.integers(0, 70))
def test_part_is_slice_of_offsets(offsets: np.ndarray[tuple[int], np.dtype[np.int64]], first: int, last: int) -> None:
    request = Request(1, "t", tuple(map(tuple, runs_of(offsets).tolist())))
    assert request.rows == len(offsets)
    assert offsets_of(request.part(first, last)).tolist() == offsets[first:last].tolist()


def test_requests_are_numbered_and_loaded_in_order(tmp_path: Path) -> None:
    assert load_requests(tmp_path / "none") == {}
    first = write_request(tmp_path / "r", "t", [(0, 3)], lost=True, owed=[1])
    second = write_request(tmp_path / "r", "t", [(5, 6), (8, 9)])
    assert load_requests(tmp_path / "r") == {"t@1": first, "t@2": second}
    assert (first.lost, first.owed, second.runs) == (True, (1,), ((5, 6), (8, 9)))
