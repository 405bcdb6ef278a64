from __future__ import annotations

import pytest

from penstock.log import Topic
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
    """The offsets of a page, each of which has the value that belongs there."""
    reader = topic.reader()
    found = records_of(pages.page(topic, reader, topic_state(topic, reader), offset, room).records)
    assert all(int(record.value[:6]) == record.offset for record in found)
    return [record.offset for record in found]


def test_pages_follow_each_other_whether_they_are_kept_or_not(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    for _ in range(2):  # the second consumer gets what was kept
        offset, sizes = 0, []
        while offset < 500:
            found = read(pages, topic, offset)
            assert found == list(range(offset, offset + len(found)))
            sizes.append(len(found))
            offset = found[-1] + 1
        assert len(set(sizes[:-1])) == 1, "a page is full although a batch of the log ends within it"
        endpoint.api.page_cache.clear()


def test_a_kept_page_is_not_given_to_one_who_has_less_room(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    assert len(read(pages, topic, 0)) > len(read(pages, topic, 0, ROOM // 4))


def test_the_end_is_read_anew(endpoint: Running) -> None:
    topic, pages = filled(endpoint, 1, 10), Pages(endpoint.api)
    assert read(pages, topic, 0) == list(range(10))
    endpoint.api.topics.append(topic, body([b"000010"]), "http").result(20)
    assert read(pages, topic, 0) == list(range(11))


def test_a_page_read_ahead_up_to_an_end_that_has_moved_is_read_anew(endpoint: Running) -> None:
    topic, pages = filled(endpoint, 1, 100), Pages(endpoint.api)
    following = read(pages, topic, 0)[-1] + 1
    assert len(read(pages, topic, following)) == 100 - following
    endpoint.api.topics.append(topic, body([b"%06d" % (100 + row) for row in range(50)]), "http").result(20)
    assert len(read(pages, topic, following)) == 150 - following


def test_a_page_for_little_room_is_not_given_to_one_who_has_more(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    little = len(read(pages, topic, 0, ROOM // 10))
    assert len(read(pages, topic, 0)) > 5 * little


def test_what_is_in_a_gap_now_is_given_no_more(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    assert read(pages, topic, 0)[0] == 0
    all_read_ahead(endpoint)  # else it would find the damage itself
    flip(topic.path, b"000003")
    assert [(gap.begin, gap.end) for gap in topic.verify(0, 100)] == [(0, 100)]
    assert read(pages, topic, 0)[0] == 100


def test_what_is_found_damaged_becomes_a_gap_and_what_follows_is_given(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    flip(topic.path, b"000003")
    assert read(pages, topic, 0)[0] == 100
    assert [(gap.begin, gap.end) for gap in topic.gaps()] == [(0, 100)]


def test_what_is_kept_is_bounded(endpoint: Running, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_page_that_was_read_ahead_is_ready_until_what_it_is_of_changes(endpoint: Running) -> None:
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


def test_the_last_page_is_not_ready_as_more_may_have_come(endpoint: Running) -> None:
    topic, pages = filled(endpoint, 1, 10), Pages(endpoint.api)
    read(pages, topic, 0)
    all_read_ahead(endpoint)
    assert pages.cached_page(topic, 0, ROOM) is None


def test_a_page_of_a_topic_with_a_gap_is_ready_too(endpoint: Running) -> None:
    topic, pages = filled(endpoint), Pages(endpoint.api)
    flip(topic.path, b"000003")
    topic.verify(0, 100)
    following = read(pages, topic, 0)[-1] + 1
    all_read_ahead(endpoint)
    ready = pages.cached_page(topic, following, ROOM)
    assert ready is not None
    assert (ready[0].start, ready[0].gaps) == (100, topic.gaps())
    assert ready[0].gaps[0] is topic.gaps()[0], "or to compare them takes long"
