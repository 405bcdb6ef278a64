"""The grouping of appends into batches."""

from concurrent.futures import Future

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.commit.batching import QueuedAppend, group_appends, join_origins, prepare, resolve
from penstock.log.settings import MERGE_ROWS
from penstock.log.store.producers import ProducerSequence
from penstock.records import body
from tests.log.log_helpers import origin, rows


def waiting(source="a", buffer="", begin=0, count=1, producer=None, **more):
    payloads = rows(*[b"%d" % begin] * count)
    described = origin(source, buffer=buffer, begin=begin, end=begin + 1, **more)
    return QueuedAppend(payloads, described, 10, Future(), producer and ProducerSequence(producer, begin))


def begins(groups):
    return [[item.origin.begin for item in group] for group in groups]


def test_appends_of_an_api_are_merged_by_source_bucket_and_codec():
    items = [waiting("a", begin=0), waiting("b", begin=1), waiting("a", begin=2), waiting("a", begin=3, bucket=60)]
    assert begins(group_appends(items)) == [[0, 2], [1], [3]]


def test_frames_of_a_buffer_are_never_reordered():
    items = [waiting(buffer="x", begin=n, bucket=60 * (n // 2 % 2)) for n in range(6)]
    assert begins(group_appends(items)) == [[0, 1], [2, 3], [4, 5]]


def test_appends_of_a_producer_are_never_reordered_and_merged_with_those_of_others():
    items = [waiting(s, begin=n, producer=p) for n, (s, p) in enumerate(["aq", "aq", "bp", "ap", "ar", "bp"])]
    assert begins(group_appends(items)) == [[0, 1], [2], [3, 4], [5]]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from(["", "x", "y"]),
            st.sampled_from([0, 60]),
            st.sampled_from([None, "p", "q"]),
        )
    )
)
def test_each_append_is_in_one_group_and_each_buffer_and_producer_in_order(kinds):
    items = [
        waiting(source, buffer, number, producer=None if buffer else producer, bucket=bucket)
        for number, (source, buffer, bucket, producer) in enumerate(kinds)
    ]
    flat = [item for group in group_appends(items) for item in group]
    assert sorted(map(id, flat)) == sorted(map(id, items))
    for buffer in "xy":
        order = [item.origin.begin for item in flat if item.origin.buffer == buffer]
        assert order == sorted(order)
    for producer in "pq":
        order = [item.origin.begin for item in flat if item.producer and item.producer.id == producer]
        assert order == sorted(order)


def test_group_is_bounded_but_accepts_one_append_of_any_size():
    items = [waiting(count=MERGE_ROWS + 1), waiting(count=MERGE_ROWS - 1), waiting(), waiting()]
    assert [sum(item.body.num_rows for item in group) for group in group_appends(items)] == [
        MERGE_ROWS + 1,
        MERGE_ROWS,
        1,
    ]


def test_counts_are_summed_and_times_and_positions_joined():
    first = origin(first=3, last=5, counts={"taken": 2, "open": 1}, buffer="b", begin=0, end=64, total=2)
    second = origin(first=1, last=4, counts={"taken": 1, "open": -1}, buffer="b", begin=64, end=96, total=3)
    joined = join_origins([first, second])
    assert (joined.first, joined.last, joined.begin, joined.end, joined.total) == (1, 5, 0, 96, 3)
    assert joined.document()["counts"] == {"taken": 3}


def test_each_append_gets_its_own_offsets_and_timestamps():
    items = [waiting(count=2), waiting(count=3)]
    (group,) = group_appends(items)
    resolve(prepare(group, 10, 1000, 0), "synced")
    answers = [item.future.result(0) for item in items]
    assert [(a.first, a.count, a.timestamps.tolist()) for a in answers] == [
        (10, 2, [1000, 1001]),
        (12, 3, [1002, 1003, 1004]),
    ]


def test_slice_of_a_body_is_stored_as_its_rows():
    rows_of_body = body([b"a", b"b", b"c"])
    item = QueuedAppend(rows_of_body.slice(1, 1), origin(), 1, Future())
    (group,) = group_appends([item])
    assert prepare(group, 0, 0, 0).load().column("payload").to_pylist() == [b"b"]
