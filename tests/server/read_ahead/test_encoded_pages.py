"""GetLogs pages are the same from the cache and from the files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.log import Gap, Topic
from penstock.records import body, concatenated
from penstock.server.auth.rights import ANONYMOUS
from penstock.server.read_ahead.encoded_pages import EncodedPages
from penstock.server.reading.query import Query
from penstock.slogd.errors import NoSuchTopic
from penstock.testing import wait_until
from tests.server.api.test_entries import flip
from tests.server.running import Running

PAGE = 100


def offsets(batches: list[pa.RecordBatch], _: int) -> bytes:
    return b",".join(b"%d" % row for batch in batches for row in batch.column("offset").to_pylist())


def offsets_by_page(batches: list[pa.RecordBatch], rows: int) -> list[bytes]:
    rows_of_pages = concatenated(batches)
    return [offsets([rows_of_pages.slice(begin, rows)], 0) for begin in range(0, len(rows_of_pages), rows)]


@pytest.fixture
def topic(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Topic]:
    monkeypatch.setattr("penstock.server.read_ahead.limits.MIN_PAGE_BYTES", 10)
    topic = running.log.topic("t", create=True)
    for number in range(6):
        running.api.topics.append(topic, body([b"%06d" % (100 * number + row) for row in range(100)]), "http").result(
            20
        )
    return topic


@pytest.fixture
def pages(running: Running) -> EncodedPages:
    return running.api.pages


def cached(pages: EncodedPages, offset: int, limit: int = PAGE, **query: object) -> bytes | None:
    return pages.cached(Query("t", offset=offset, max_messages=limit, **query), offsets, ANONYMOUS)  # type: ignore[arg-type]


def read(pages: EncodedPages, offset: int, limit: int = PAGE) -> bytes:
    return pages.get(Query("t", offset=offset, max_messages=limit), offsets, ANONYMOUS)


def listed(first: int, end: int) -> bytes:
    return b",".join(b"%d" % offset for offset in range(first, end))


def test_next_page_is_cached_when_a_page_is_served(topic: Topic, pages: EncodedPages) -> None:
    assert cached(pages, 0) is None
    assert read(pages, 0) == listed(0, 100)
    for offset in range(100, 500, PAGE):
        wait_until(lambda offset=offset: cached(pages, offset) is not None)  # type: ignore[misc]
        assert cached(pages, offset) == listed(offset, offset + PAGE)
    assert read(pages, 550) == listed(550, 600)


@pytest.mark.parametrize("limit", [7, 60, 100, 150, 400])
def test_pages_of_one_read_equal_pages_of_single_reads(
    running: Running, topic: Topic, pages: EncodedPages, limit: int
) -> None:
    damaged = [(gap.begin, gap.end) for gap in _damaged(topic)]
    offset, received = 0, b""
    while offset < 600:
        query = Query("t", offset=offset, max_messages=limit)
        page = pages.get(query, offsets, ANONYMOUS, offsets_by_page)
        assert page == pages.get(query, lambda batches, next: offsets(batches, next), ANONYMOUS)
        received, offset = received + page + b",", int(page.split(b",")[-1]) + 1
    assert damaged == [(200, 300)]
    assert received == listed(0, 200) + b"," + listed(300, 600) + b","


def _damaged(topic: Topic) -> list[Gap]:
    flip(topic.path, b"000203")
    return topic.verify(200, 300)


def test_page_size_is_part_of_the_key(topic: Topic, pages: EncodedPages) -> None:
    assert read(pages, 0) == listed(0, 100)
    assert read(pages, 0, 50) == listed(0, 50)
    assert read(pages, 0, 200) == listed(0, 200)


def test_incomplete_page_is_read_again(running: Running, topic: Topic, pages: EncodedPages) -> None:
    assert read(pages, 550) == listed(550, 600)
    assert cached(pages, 550) is None
    running.api.topics.append(topic, body([b"new"]), "http").result(20)
    assert read(pages, 550) == listed(550, 601)


def test_cached_page_is_not_served_after_its_rows_became_a_gap(topic: Topic, pages: EncodedPages) -> None:
    assert read(pages, 0) == listed(0, 100)
    for offset in (0, 100, 200):  # the read-ahead must be over: otherwise it would find the damage itself
        wait_until(lambda offset=offset: cached(pages, offset) is not None)  # type: ignore[misc]
    flip(topic.path, b"000103")
    assert [(gap.begin, gap.end) for gap in topic.verify(100, 200)] == [(100, 200)]
    assert (cached(pages, 0), cached(pages, 100)) == (None, None)
    assert read(pages, 100) == listed(200, 300)


def test_page_at_the_end_is_incomplete_if_entries_arrive_during_its_encoding(
    running: Running, topic: Topic, pages: EncodedPages
) -> None:
    def slowly(batches: list[pa.RecordBatch], following: int) -> bytes:
        running.api.topics.append(topic, body([b"new"] * 10), "http").result(20)
        return offsets(batches, following)

    assert pages.get(Query("t", offset=550, max_messages=PAGE), slowly, ANONYMOUS) == listed(550, 600)
    assert pages.get(Query("t", offset=550, max_messages=PAGE), slowly, ANONYMOUS) == listed(550, 610)


def test_deleted_topic_has_no_cached_page(running: Running, topic: Topic, pages: EncodedPages) -> None:
    assert read(pages, 0) == listed(0, 100)
    running.log.delete("t")
    assert cached(pages, 0) is None
    running.api.topics.forget("t")
    with pytest.raises(NoSuchTopic):
        read(pages, 0)


def test_only_queries_with_an_offset_are_answered_from_the_cache(topic: Topic, pages: EncodedPages) -> None:
    read(pages, 0)
    for query in (Query("t", max_messages=PAGE), Query("t", latest=True, max_messages=PAGE), Query("t", micros=0)):
        assert pages.cached(query, offsets, ANONYMOUS) is None
