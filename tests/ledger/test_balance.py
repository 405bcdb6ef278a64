"""The balance: closes when every message has one fate, and names the part that does not close."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import Counts, Origin
from penstock.ledger.balance import (
    Balance,
    HostListener,
    UnlandedTail,
    Uuids,
    balance,
    landed_by_minute,
    messages,
    minutes,
    promoted_by_minute,
)
from penstock.ledger.book.book import Book
from penstock.ledger.book.book_pages import TopicFates
from penstock.ledger.posts import ClientPost, LandedPost

SOURCE, BUCKET = "events-udp", 60
KEY = (SOURCE, BUCKET)
GOOD = Counts({"taken": 10, "unboxed": 10, "seen": 10, "accepted": 10})


def origin(counts: Counts, source: str = SOURCE) -> Origin:
    return Origin(source, BUCKET, 0, 0, counts=counts)


def book_of(counts: Counts = GOOD, rows: int = 10) -> Book:
    book = Book()
    book.enter("events", origin(counts), 0, rows)
    return book


NOTHING_BEYOND = UnlandedTail()


def balance_of(
    book: Book, beyond: UnlandedTail = NOTHING_BEYOND, in_buffer: dict[tuple[str, int], Counts] | None = None
) -> Balance:
    return balance(book.snapshot(), {"events": beyond}, in_buffer or {})


def test_topic_without_a_pipeline_ends_in_the_log() -> None:
    result = balance_of(book_of(), UnlandedTail(pending={KEY: 10}))
    assert (result.unaccounted, result.pending) == (0, 0)
    assert result.routes[0].delivered == 10


def test_relayed_listener_has_its_fates_and_its_last_minute() -> None:
    book, key = book_of(), ("web1/events-udp", 120)
    for bucket, rows in ((120, 4), (60, 3)):
        book.enter("events", Origin(key[0], bucket, 0, 0, counts=Counts({"seen": rows, "accepted": rows})), 10, rows)
    fates = {KEY: Counts({"landed.event": 10}), key: Counts({"landed.event": 3, "duplicate": 1})}
    book.post(LandedPost("events", 0, 14, fates))
    result = balance_of(book, UnlandedTail(pending={(key[0], 60): 2}, gaps={(key[0], 60): {"gap.corrupt": 1}}))
    (entry,) = result.hosts
    assert entry == HostListener(
        "web1", "events-udp", 7, {"landed.event": 3, "duplicate": 1, "gap.corrupt": 1}, 2, last_seen=120
    )
    assert entry.accepted == sum(entry.fates.values()) + entry.pending
    assert "hosts" not in balance_of(book_of()).document()


def test_rows_after_the_landed_rows_are_pending() -> None:
    book = book_of()
    book.post(LandedPost("events", 0, 6, {KEY: Counts({"landed.event": 4, "quarantined.bad_json": 1, "duplicate": 1})}))
    result = balance_of(book, UnlandedTail(pending={KEY: 4}))
    assert (result.unaccounted, result.pending) == (0, 4)
    assert result.topics[0].fates == {"landed.event": 4, "quarantined.bad_json": 1, "duplicate": 1}


def test_row_dropped_by_a_transformation_has_a_fate_of_its_own() -> None:
    book = book_of()
    fates = {"landed.event": 6, "quarantined.transform_failed": 1, "transformed.dropped": 3, "transformed.redacted": 5}
    book.post(LandedPost("events", 0, 10, {KEY: Counts(fates)}))
    result = balance_of(book)
    assert (result.unaccounted, result.topics[0].fates) == (0, fates)


def test_row_without_a_fate_is_unaccounted() -> None:
    book = book_of()
    book.post(LandedPost("events", 0, 10, {KEY: Counts({"landed.event": 9})}))
    assert balance_of(book).unaccounted == 1


def test_loss_and_surplus_do_not_cancel_out() -> None:
    book = book_of(GOOD, rows=9)
    book.enter("syslog", origin(Counts(), "syslog-udp"), 0, 1)
    assert balance_of(book).unaccounted == 2


def test_waiting_frames_are_pending_and_not_lost() -> None:
    result = balance_of(book_of(), in_buffer={KEY: GOOD})
    assert (result.unaccounted, result.pending, result.routes[0].in_buffer) == (0, 10, 10)


def test_counts_of_dropped_frames_in_the_buffer_have_a_fate() -> None:
    riding = Counts({**GOOD, "accepted": 14, "seen": 14, "taken": 14, "unboxed": 14, "policy_drop.log": 4})
    result = balance_of(book_of(), in_buffer={KEY: riding})
    assert (result.unaccounted, result.routes[0].in_buffer, result.routes[0].policy_drop) == (0, 10, 4)


def test_policy_drops_and_corrupt_frames_are_fates() -> None:
    counts = Counts({**GOOD, "accepted": 15, "seen": 15, "taken": 15, "unboxed": 15})
    counts.absorb({"policy_drop.log": 2, "handler_failed.log": 1, "corrupt": 2})
    assert balance_of(book_of(counts)).unaccounted == 0


def test_book_that_does_not_close_is_reported() -> None:
    result = balance_of(book_of(Counts({**GOOD, "taken": 11})))
    assert result.unaccounted == 1
    assert result.listeners[0].books[0].book == "datagrams"


def test_counts_of_another_bucket_are_entered_in_that_bucket() -> None:
    book = book_of(Counts({**GOOD, "0@accepted": 3, "0@seen": 3, "0@policy_drop.log": 3}))
    pages = book.snapshot()
    assert pages.received[SOURCE, 0]["policy_drop.log"] == 3
    assert balance(pages, {}, {}, within=0).routes[0].accepted == 3
    assert balance_of(book).unaccounted == 0


def test_hashes_of_uuids_are_summed_by_fate_modulo_2_to_the_64() -> None:
    book = book_of()
    for number, (count, total) in enumerate([(4, (1 << 64) - 1), (6, 3)], 1):
        uuids = Counts({"rows.landed.event": count, "sum.landed.event": total})
        book.post(LandedPost("events", number, 5 * number, {KEY: Counts({"landed.event": 5})}, uuids={KEY: uuids}))
    book.roll_up(86_400)
    (topic,) = balance_of(book).topics
    assert topic.uuids == {"landed.event": Uuids(10, "0000000000000002")}
    assert balance_of(book).unaccounted == 0


def test_repeated_post_changes_nothing() -> None:
    book = book_of()
    post = LandedPost("events", 0, 10, {KEY: Counts({"landed.event": 10})})
    assert book.post(post)
    assert not book.post(post)
    assert balance_of(book).unaccounted == 0
    assert book.post(ClientPost(SOURCE, "me", 1, Counts({"datagrams": 12})))
    assert not book.post(ClientPost(SOURCE, "me", 1, Counts({"datagrams": 12})))
    assert balance_of(book).listeners[0].network_lost == 2


def test_sent_count_is_unknown_if_a_sender_does_not_count() -> None:
    assert balance_of(book_of()).listeners[0].sent is None
    book = book_of()
    book.post(ClientPost(SOURCE, "me", 1, Counts({"datagrams": 3})))
    assert balance_of(book).listeners[0].network_lost is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 50)), max_size=8), st.integers(0, 200))
def test_buckets_sum_to_the_total(batches: list[tuple[int, int, int]], through: int) -> None:
    book, base = Book(), 0
    for minute, rows, dropped in batches:
        counts = Counts({"seen": rows + dropped, "accepted": rows + dropped, "policy_drop.log": dropped})
        book.enter("events", Origin(SOURCE, minute * 60, 0, 0, counts=counts), base, rows)
        base += rows
    pages = book.snapshot()
    total = balance(pages, {}, {})
    parts = [balance(pages, {}, {}, within=minute * 60) for minute in range(4)]
    assert total.unaccounted == 0
    assert sum(p.routes[0].delivered for p in parts if p.routes) == base
    assert sum(t.logged for p in parts for t in p.topics) == base
    for cut in (0, 59, 60, 150):  # a stretch begins with the minute that its first second is in
        ranges = [balance(pages, {}, {}, minutes(0, cut - cut % 60)), balance(pages, {}, {}, minutes(cut))]
        assert sum(p.routes[0].delivered for p in ranges if p.routes) == base
        assert [p.unaccounted for p in ranges] == [0, 0]


FATES = st.dictionaries(
    st.sampled_from(("landed.event", "duplicate", "transformed.redacted", "segment", "promoted")),
    st.integers(0, 9),
    max_size=5,
)


@given(st.dictionaries(st.tuples(st.sampled_from(("h/a", "h/b", "c")), st.sampled_from((60, 120))), FATES), FATES)
def test_messages_of_hosts_are_summed_by_minute_over_all_partitions(
    counts: dict[tuple[str, int], dict[str, int]], more: dict[str, int]
) -> None:
    landed = {name: TopicFates() for name in ("p/0", "p/1", "topic")}
    for fates in landed.values():
        for key, value in counts.items():
            fates.counts.add(key, Counts(value))
    landed["p/0"].counts.add(("h/a", 180), Counts(more))
    pairs = {key: Counts(value) for key, value in counts.items() if key[0] != "c"}

    def flat(by_source: dict[str, dict[int, int]]) -> dict[tuple[str, int], int]:
        return {(source, minute): sum_ for source, sums in by_source.items() for minute, sum_ in sums.items() if sum_}

    expected = {key: 2 * messages(value) for key, value in pairs.items()} | {("h/a", 180): messages(Counts(more))}
    assert flat(landed_by_minute(landed, {"h/a": 0, "h/b": 60})) == {key: n for key, n in expected.items() if n}
    promoted = {key: value["promoted"] for key, value in pairs.items() if value["promoted"]}
    assert flat(promoted_by_minute(landed, ["h/a", "h/b"])) == promoted
    # Minutes before the first one that is read separately are summed as minute 0.
    sums = landed_by_minute(landed, {"h/a": 120}).get("h/a", {})
    assert sums.get(0, 0) == expected.get(("h/a", 60), 0)
    assert sums.get(120, 0) == expected.get(("h/a", 120), 0)
