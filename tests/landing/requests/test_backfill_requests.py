"""Requests to land offsets out of turn, as files and as runs of offsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.offset_runs import offsets_of, runs_of
from penstock.landing.requests.backfill_requests import Request, requests, without, write

OFFSETS = st.sets(st.integers(0, 60)).map(lambda found: np.array(sorted(found), np.int64))


@given(OFFSETS, OFFSETS, st.integers(0, 60), st.integers(0, 60))
def test_a_range_without_runs_is_what_they_leave_of_it(
    one: np.ndarray[tuple[int], np.dtype[np.int64]],
    other: np.ndarray[tuple[int], np.dtype[np.int64]],
    begin: int,
    end: int,
) -> None:
    left = offsets_of(without(begin, end, [*runs_of(one).tolist(), *runs_of(other).tolist()]))
    assert left.tolist() == sorted(set(range(begin, end)) - set(one.tolist()) - set(other.tolist()))


@given(OFFSETS, st.integers(0, 70), st.integers(0, 70))
def test_a_part_of_a_request_is_a_slice_of_its_offsets(
    offsets: np.ndarray[tuple[int], np.dtype[np.int64]], first: int, last: int
) -> None:
    request = Request(1, "t", tuple(map(tuple, runs_of(offsets).tolist())))
    assert request.rows == len(offsets)
    assert offsets_of(request.part(first, last)).tolist() == offsets[first:last].tolist()


def test_requests_are_kept_in_order_and_numbered(tmp_path: Path) -> None:
    assert requests(tmp_path / "none") == {}
    first = write(tmp_path / "r", "t", [(0, 3)], again=True, owed=[1])
    second = write(tmp_path / "r", "t", [(5, 6), (8, 9)])
    assert requests(tmp_path / "r") == {"t@1": first, "t@2": second}
    assert (first.again, first.owed, second.runs) == (True, (1,), ((5, 6), (8, 9)))
