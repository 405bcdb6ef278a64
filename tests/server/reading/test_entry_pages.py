from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import Gap
from penstock.records import body
from penstock.server.reading.entry_pages import Page, offset_before, rows_since
from penstock.slogd.columns.entries import sizes
from tests.slogd.columns.test_entries import START, stored

lengths = st.lists(st.integers(0, 300), min_size=1, max_size=12)


@given(lengths, st.integers(1, 15), st.integers(1, 2000))
def test_page_takes_fitting_rows_and_at_least_one(row_sizes: list[int], limit: int, budget: int) -> None:
    batch = stored(body([b"x" * length for length in row_sizes]))
    page = Page(0)
    more = page.add_rows(batch, limit, budget)
    assert 1 <= page.rows <= min(limit, len(row_sizes))
    assert page.next == page.rows
    assert page.rows == 1 or sizes(batch)[: page.rows].sum() == page.size <= budget
    assert more == (page.rows == len(row_sizes) < limit)
    full = page.rows == limit or page.size + sizes(batch)[min(page.rows, len(row_sizes) - 1)] > budget
    assert full or page.rows == len(row_sizes)


@given(st.lists(lengths, min_size=1, max_size=4), st.integers(1, 40), st.integers(1, 4000))
def test_consecutive_pages_return_every_row_once(parts: list[list[int]], limit: int, budget: int) -> None:
    total = sum(map(len, parts))
    firsts = np.cumsum([0, *map(len, parts)]).tolist()
    batches = [stored(body([b"x" * n for n in part]), first) for part, first in zip(parts, firsts, strict=False)]
    offset, seen = 0, []
    while offset < total:
        page = Page(offset)
        for batch, first in zip(batches, firsts, strict=False):
            rest = batch.slice(max(0, offset - first))
            if rest.num_rows and not page.add_rows(rest, limit, budget):
                break
        seen += [value for batch in page.batches for value in batch.column("offset").to_pylist()]
        offset = page.next
    assert seen == list(range(total))


def gap(begin: int, end: int) -> Gap:
    return Gap(begin, end, "corrupt", {})


def test_offset_before_skips_entries_in_gaps() -> None:
    assert offset_before(10, 3, []) == 7
    assert offset_before(10, 0, []) == 10
    assert offset_before(10, 20, []) == -10
    assert offset_before(10, 3, [gap(8, 10)]) == 5
    assert offset_before(10, 3, [gap(2, 4), gap(8, 9)]) == 6
    assert offset_before(10, 9, [gap(2, 4), gap(8, 9)]) == -2


@given(st.sets(st.integers(0, 30)), st.integers(0, 35))
def test_offset_before_equals_counting_one_by_one(lost: set[int], count: int) -> None:
    start = offset_before(31, count, [gap(offset, offset + 1) for offset in lost])
    assert sum(offset not in lost for offset in range(max(start, -100), 31)) == count


@given(st.lists(st.integers(1, 4), max_size=4), st.integers(-2, 20))
def test_rows_since_drops_earlier_rows(counts: list[int], first: int) -> None:
    firsts = np.cumsum([0, *counts]).tolist()
    batches = [stored(body([b""] * n), base) for n, base in zip(counts, firsts, strict=False)]
    offsets = [value for batch in batches for value in rows_since(batch, START + first).column("offset").to_pylist()]
    assert offsets == [offset for offset in range(sum(counts)) if offset >= first]
