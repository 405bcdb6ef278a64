"""Answers with pages of entries: the same whether they were there already or had to be read."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.log import Gap, Topic
from penstock.records import body, concatenated
from penstock.server.answered_pages import AnsweredPages
from penstock.server.auth.rights import NOBODY_ASKED
from penstock.server.read_query import Query
from penstock.slogd.errors import NoSuchTopic
from tests.server.http.test_routes import wait_for
from tests.server.running import Running
from tests.server.test_entries_api import flip

PAGE = 100


def offsets(batches: list[pa.RecordBatch], _: int) -> bytes:
    return b",".join(b"%d" % row for batch in batches for row in batch.column("offset").to_pylist())


def many(batches: list[pa.RecordBatch], rows: int) -> list[bytes]:
    whole = concatenated(batches)
    return [offsets([whole.slice(begin, rows)], 0) for begin in range(0, len(whole), rows)]


@pytest.fixture
def topic(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Topic]:
    monkeypatch.setattr("penstock.server.pages_ahead.LEAST", 10)
    topic = running.log.topic("t", create=True)
    for number in range(6):
        running.api.topics.append(topic, body([b"%06d" % (100 * number + row) for row in range(100)]), "http").result(
            20
        )
    return topic


@pytest.fixture
def answers(running: Running) -> AnsweredPages:
    return running.api.answers


def ready(answers: AnsweredPages, offset: int, most: int = PAGE, **query: object) -> bytes | None:
    return answers.ready(Query("t", offset=offset, max_messages=most, **query), offsets, NOBODY_ASKED)  # type: ignore[arg-type]


def read(answers: AnsweredPages, offset: int, most: int = PAGE) -> bytes:
    return answers.get(Query("t", offset=offset, max_messages=most), offsets, NOBODY_ASKED)


def told(first: int, end: int) -> bytes:
    return b",".join(b"%d" % offset for offset in range(first, end))


def test_pages_follow_each_other_and_the_next_one_is_there(topic: Topic, answers: AnsweredPages) -> None:
    assert ready(answers, 0) is None
    assert read(answers, 0) == told(0, 100)
    for offset in range(100, 500, PAGE):
        wait_for(lambda offset=offset: ready(answers, offset) is not None)  # type: ignore[misc]
        assert ready(answers, offset) == told(offset, offset + PAGE)
    assert read(answers, 550) == told(550, 600)


@pytest.mark.parametrize("most", [7, 60, 100, 150, 400])
def test_pages_that_are_made_at_once_are_those_that_are_made_one_by_one(
    running: Running, topic: Topic, answers: AnsweredPages, most: int
) -> None:
    gap = [(gap.begin, gap.end) for gap in _damaged(topic)]
    offset, seen = 0, b""
    while offset < 600:
        query = Query("t", offset=offset, max_messages=most)
        page = answers.get(query, offsets, NOBODY_ASKED, many)
        assert page == answers.get(query, lambda batches, next: offsets(batches, next), NOBODY_ASKED)
        seen, offset = seen + page + b",", int(page.split(b",")[-1]) + 1
    assert gap == [(200, 300)]
    assert seen == told(0, 200) + b"," + told(300, 600) + b","


def _damaged(topic: Topic) -> list[Gap]:
    flip(topic.path, b"000203")
    return topic.verify(200, 300)


def test_one_who_asks_for_another_number_of_entries_gets_them(topic: Topic, answers: AnsweredPages) -> None:
    assert read(answers, 0) == told(0, 100)
    assert read(answers, 0, 50) == told(0, 50)
    assert read(answers, 0, 200) == told(0, 200)


def test_a_page_that_is_not_full_is_read_anew(running: Running, topic: Topic, answers: AnsweredPages) -> None:
    assert read(answers, 550) == told(550, 600)
    assert ready(answers, 550) is None
    running.api.topics.append(topic, body([b"new"]), "http").result(20)
    assert read(answers, 550) == told(550, 601)


def test_what_became_a_gap_is_given_no_more(topic: Topic, answers: AnsweredPages) -> None:
    assert read(answers, 0) == told(0, 100)
    for offset in (0, 100, 200):  # what is read ahead is read: else it would find the damage itself
        wait_for(lambda offset=offset: ready(answers, offset) is not None)  # type: ignore[misc]
    flip(topic.path, b"000103")
    assert [(gap.begin, gap.end) for gap in topic.verify(100, 200)] == [(100, 200)]
    assert (ready(answers, 0), ready(answers, 100)) == (None, None)
    assert read(answers, 100) == told(200, 300)


def test_a_page_at_the_end_is_not_taken_as_full_where_more_came_while_it_was_made(
    running: Running, topic: Topic, answers: AnsweredPages
) -> None:
    def slowly(batches: list[pa.RecordBatch], following: int) -> bytes:
        running.api.topics.append(topic, body([b"new"] * 10), "http").result(20)
        return offsets(batches, following)

    assert answers.get(Query("t", offset=550, max_messages=PAGE), slowly, NOBODY_ASKED) == told(550, 600)
    assert answers.get(Query("t", offset=550, max_messages=PAGE), slowly, NOBODY_ASKED) == told(550, 610)


def test_a_deleted_topic_has_no_page(running: Running, topic: Topic, answers: AnsweredPages) -> None:
    assert read(answers, 0) == told(0, 100)
    running.log.delete("t")
    assert ready(answers, 0) is None
    running.api.topics.forget("t")
    with pytest.raises(NoSuchTopic):
        read(answers, 0)


def test_only_what_an_offset_asks_for_may_be_there(topic: Topic, answers: AnsweredPages) -> None:
    read(answers, 0)
    for query in (Query("t", max_messages=PAGE), Query("t", latest=True, max_messages=PAGE), Query("t", micros=0)):
        assert answers.ready(query, offsets, NOBODY_ASKED) is None
