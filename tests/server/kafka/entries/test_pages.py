from __future__ import annotations

import pytest

from penstock.log import Gap, Topic
from penstock.records import body
from penstock.server.kafka.entries.pages import Pages, topic_state
from penstock.server.read_ahead.limits import MAX_READS_AHEAD, PAGES_AHEAD
from tests.server.api.test_entries import flip
from tests.server.kafka.produced import records_of
from tests.server.running import Running

ROOM = 10_000


@pytest.fixture(autouse=True)
def small_pages_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.read_ahead.limits.MIN_PAGE_BYTES", ROOM // 20)


def filled(endpoint: Running, batches: int = 5, rows: int = 100) -> Topic:
    topic = endpoint.log.topic("t", create=True)
    for number in range(batches):
        values = [b"%06d" % (number * rows + row) * 10 for row in range(rows)]
        endpoint.api.topics.append(topic, body(values), "http").result(20)
    return topic


def read(pages: Pages, topic: Topic, offset: int, room: int = ROOM) -> list[int]:
    """Read a page; return its offsets after checking their values."""
    reader = topic.reader()
    records = records_of(pages.page(topic, reader, topic_state(topic, reader), offset, room).records)
    assert all(int(record.value[:6]) == record.offset for record in records)
    return [record.offset for record in records]


def test_cached_and_fresh_pages_follow_each_other(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    for _ in range(2):  # the second consumer gets what was kept
        offset, sizes = 0, []
        while offset < 500:
            records = read(pages, topic, offset)
            assert records == list(range(offset, offset + len(records)))
            sizes.append(len(records))
            offset = records[-1] + 1
        assert len(set(sizes[:-1])) == 1, "a page is full although a batch of the log ends within it"
        endpoint.api.page_cache.clear()


def test_cached_page_is_not_served_if_it_is_too_large(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    assert len(read(pages, topic, 0)) > len(read(pages, topic, 0, ROOM // 4))


def test_last_page_is_read_again(endpoint: Running) -> None:
    topic, pages = filled(endpoint, 1, 10), Pages(endpoint.api)
    assert read(pages, topic, 0) == list(range(10))
    endpoint.api.topics.append(topic, body([b"000010"]), "http").result(20)
    assert read(pages, topic, 0) == list(range(11))


def test_page_at_a_moved_end_is_read_again(endpoint: Running) -> None:
    topic, pages = filled(endpoint, 1, 100), Pages(endpoint.api)
    following = read(pages, topic, 0)[-1] + 1
    assert len(read(pages, topic, following)) == 100 - following
    endpoint.api.topics.append(topic, body([b"%06d" % (100 + row) for row in range(50)]), "http").result(20)
    assert len(read(pages, topic, following)) == 150 - following


def test_small_page_is_not_served_if_more_is_requested(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    little = len(read(pages, topic, 0, ROOM // 10))
    assert len(read(pages, topic, 0)) > 5 * little


def test_cached_rows_of_a_gap_are_not_served(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    assert read(pages, topic, 0)[0] == 0
    all_read_ahead(endpoint)  # else it would find the damage itself
    flip(topic.path, b"000003")
    assert [(gap.begin, gap.end) for gap in topic.verify(0, 100)] == [(0, 100)]
    assert read(pages, topic, 0)[0] == 100


@pytest.mark.survives("Kafka protocol", "damaged bytes")
def test_damaged_batch_becomes_a_gap_and_reading_continues(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    flip(topic.path, b"000003")
    assert read(pages, topic, 0)[0] == 100
    assert [(gap.begin, gap.end) for gap in topic.gaps()] == [(0, 100)]


def test_cached_bytes_are_limited(endpoint: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.read_ahead.limits.CACHE_BYTES", 3 * ROOM)
    topic, pages = filled(endpoint), Pages(endpoint.api)
    for offset in range(0, 400, 7):
        assert read(pages, topic, offset)[0] == offset
    assert endpoint.api.page_cache.size <= (3 + MAX_READS_AHEAD) * ROOM
    endpoint.api.page_cache.clear()
    assert endpoint.api.page_cache.size == 0


def all_read_ahead(endpoint: Running) -> None:
    for _ in range(PAGES_AHEAD):
        for page in list(endpoint.api.page_cache._loading.values()):
            page.exception(20)


def test_page_read_ahead_is_cached_until_its_topic_changes(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    assert pages.cached_page(topic, 0, ROOM) is None
    following = read(pages, topic, 0)[-1] + 1
    all_read_ahead(endpoint)
    ready = pages.cached_page(topic, following, ROOM)
    assert ready is not None
    page, end = ready
    assert (page.start, end) == (0, 500)
    assert [record.offset for record in records_of(page.records)] == list(range(following, page.next))
    assert pages.cached_page(topic, following, ROOM // 10) is None
    endpoint.api.topics.append(topic, body([b"x"]), "http").result(20)
    assert pages.cached_page(topic, following, ROOM) == (page, 501)
    flip(topic.path, b"000003")
    topic.verify(0, 100)
    assert pages.cached_page(topic, following, ROOM) is None


def test_last_page_is_not_served_from_the_cache(endpoint: Running) -> None:
    topic, pages = filled(endpoint, 1, 10), Pages(endpoint.api)
    read(pages, topic, 0)
    all_read_ahead(endpoint)
    assert pages.cached_page(topic, 0, ROOM) is None


def test_page_of_a_topic_with_a_gap_is_cached(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    flip(topic.path, b"000003")
    topic.verify(0, 100)
    following = read(pages, topic, 0)[-1] + 1
    all_read_ahead(endpoint)
    ready = pages.cached_page(topic, following, ROOM)
    assert ready is not None
    assert (ready[0].start, ready[0].gaps) == (100, topic.gaps())
    assert ready[0].gaps[0] is topic.gaps()[0], "or to compare them takes long"


def test_state_is_not_older_than_its_gaps(endpoint: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = filled(endpoint, 1, 10)
    gaps = topic.gaps

    def gaps_before_an_append() -> list[Gap]:
        before = gaps()
        endpoint.api.topics.append(topic, body([b"000010"]), "http").result(20)
        return before

    monkeypatch.setattr(topic, "gaps", gaps_before_an_append)
    assert topic_state(topic, topic.reader()) == (0, 11, [])
