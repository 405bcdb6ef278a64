"""The vocabulary of the balance: counts add up, books close, buckets never decrease."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import (
    BucketClock,
    Counts,
    Name,
    OpenBook,
    Origin,
    bucket_of,
    by_bucket,
    lost,
    open_books,
    prefix_with_bucket,
    summed,
)

COUNTS = st.dictionaries(st.sampled_from([str(name) for name in Name]), st.integers(-5, 5))


def test_sum_keeps_negative_differences() -> None:
    assert summed([{"open": 3}, {"open": -3, "seen": 1}]) == {"open": 0, "seen": 1}
    assert summed([{"open": 1}, {"open": -2}])["open"] == -1


def test_open_books_is_empty_when_all_close() -> None:
    counts = Counts({"taken": 6, "unboxed": 1, "command": 1, "empty": 1, "invalid.type": 1, "fragment.used": 3})
    counts.absorb({"fragment.open": -1, "seen": 2, "accepted": 2, "bad_checksum": 1, "open": -1})
    assert open_books(counts) == []


def test_open_book_names_its_two_sides() -> None:
    assert open_books(Counts({"seen": 3, "accepted": 2})) == [OpenBook("messages", 3, 2)]
    assert open_books(Counts({"lines": 1})) == [OpenBook("lines", 1, 0)]


@given(st.integers(0, 10**10), COUNTS, COUNTS)
def test_counts_of_another_bucket_are_separated(
    bucket: int, own_counts: dict[str, int], other_counts: dict[str, int]
) -> None:
    combined = {**own_counts, **prefix_with_bucket(bucket + 60, other_counts)}
    counts_of_bucket = by_bucket(bucket, combined)
    assert counts_of_bucket.get(bucket, {}) == own_counts
    assert counts_of_bucket.get(bucket + 60, {}) == other_counts


@given(
    st.builds(
        Origin,
        st.text(),
        st.integers(),
        st.integers(),
        st.integers(),
        st.text(),
        COUNTS,
        st.text(),
        st.integers(),
        st.integers(),
    )
)
def test_origin_survives_a_round_trip(origin: Origin) -> None:
    copy = Origin.from_document(origin.document())
    assert (copy.source, copy.bucket, copy.first, copy.last, copy.codec) == (
        origin.source,
        origin.bucket,
        origin.first,
        origin.last,
        origin.codec,
    )
    assert (copy.buffer, copy.begin, copy.end) == (origin.buffer, origin.begin, origin.end)
    assert copy.counts == {name: count for name, count in origin.counts.items() if count}


class Clocks:
    """A wall clock that can jump, and a monotonic clock that cannot."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_000_000.0, 50.0

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def clock(self, bucket: int = 0) -> BucketClock:
        return BucketClock(lambda: self.wall, lambda: self.monotonic, bucket)


def test_jump_of_the_wall_clock_moves_no_bucket_far() -> None:
    clocks = Clocks()
    clock = clocks.clock()
    before, _ = clock.stamp()
    clocks.wall += 86_400
    clocks.pass_time(1)
    after, micros = clock.stamp()
    assert after - before <= 60
    assert abs(micros - 1_000_001_000_000) <= 20_000


def test_clock_follows_the_wall_clock_slowly() -> None:
    clocks = Clocks()
    clock = clocks.clock()
    clocks.wall += 5
    for _ in range(1000):
        clocks.pass_time(1)
        clock.now()
    assert abs(clock.now() - clocks.wall) < 0.001


@given(st.lists(st.tuples(st.floats(0, 300), st.floats(-1000, 1000)), max_size=20))
def test_buckets_never_go_back(steps: list[tuple[float, float]]) -> None:
    clocks = Clocks()
    clock = clocks.clock(bucket=bucket_of(clocks.wall) + 60)
    last = 0
    for passed, jump in steps:
        clocks.pass_time(passed)
        clocks.wall += jump
        bucket, _ = clock.stamp()
        assert bucket >= last
        assert bucket % 60 == 0
        last = bucket


def test_lost_counts_reach_neither_a_table_nor_a_handler() -> None:
    ends = {"kernel_dropped": 1, "invalid.header": 2, "policy_drop.log": 3, "gap.corrupt": 4, "corrupt": 5}
    other_names = {
        "accepted": 9,
        "landed.event": 9,
        "quarantined.bad_json": 9,
        "duplicate": 9,
        "hole": 9,
        "incomplete.x": 0,
    }
    assert lost(ends | other_names) == ends


def test_rows_read_by_all_before_retention_are_not_lost() -> None:
    assert lost({"gap.expired_read": 4, "gap.expired_unread": 2, "gap.corrupt": 1, "accepted": 9}) == {
        "gap.expired_unread": 2,
        "gap.corrupt": 1,
    }
