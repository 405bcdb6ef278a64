"""Pages of entries as answers: one that follows another is made while the caller takes that one in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from penstock.log import Gap, Topic, TopicReader
from penstock.records import concatenated
from penstock.server.auth.rights import Principal
from penstock.server.entry_pages import ALMOST, DEFAULT_BUDGET, LARGE_BUDGET, Page, read_page, start_of
from penstock.server.pages_ahead import PagesAhead
from penstock.server.permitted_topics import PermittedTopics
from penstock.server.read_query import Query

T = TypeVar("T")
Render = Callable[[list[pa.RecordBatch], int], T]
"""Makes an answer of batches, and of the offset at which to go on where a filter left entries out (else 0)."""
RenderMany = Callable[[list[pa.RecordBatch], int], list[T]]
"""Makes answers of batches, each of so many rows."""
AT_ONCE = 4
"""Pages that are made at once where nobody waits for the first of them, where DEFAULT_BUDGET has room for so many."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer with the rows up to ``next``; ``gaps`` are those of the topic before it was read.

    ``is_full``: it has as many rows or bytes as a page may have, whatever comes behind them.
    """

    answer: Any
    next: int
    is_full: bool
    gaps: list[Gap] = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.answer)


class AnsweredPages:
    """Any thread may call it."""

    def __init__(self, topics: PermittedTopics, pages: PagesAhead) -> None:
        self._topics, self._pages = topics, pages

    def ready(self, query: Query, render: Render[T], caller: Principal, many: RenderMany[T] | None = None) -> T | None:
        """The answer where it is there already; None where it has to be read. Never waits for the disk.

        Raises BadRequest, NotAllowed.
        """
        if query.offset is None or query.filter_text or not self._topics.known(query.topic):
            return None
        topic = self._topics.readable(query.topic, caller)
        found: Answered | None = self._pages.ready(_place(topic, query.offset, query, render))
        if found is None or not _serves(found, topic):
            return None
        self._served(topic, query.offset, query, render, many, found)
        answer: T = found.answer
        return answer

    def get(self, query: Query, render: Render[T], caller: Principal, many: RenderMany[T] | None = None) -> T:
        """The answer. Waits for the disk. Raises BadRequest, NotAllowed, NoSuchTopic, Damaged."""
        topic = self._topics.readable(query.topic, caller)
        query.filter  # noqa: B018 - a bad one is refused, whatever the topic has
        if query.latest and not query.max_messages:
            return render([], 0)
        with self._topics.reader(topic) as reader:
            start = start_of(query, topic, reader)
            if query.filter_text or query.micros is not None:
                return _rendered(_read(topic, reader, start, query), query, render)
            found = self._kept(topic, start, query, render) or _answered(topic, reader, start, query, render)
        self._served(topic, start, query, render, many, found)
        answer: T = found.answer
        return answer

    def _kept(self, topic: Topic, start: int, query: Query, render: Render[Any]) -> Answered | None:
        found: Answered | None = self._pages.taken(_place(topic, start, query, render))
        return found if found is not None and _serves(found, topic) else None

    def _served(
        self,
        topic: Topic,
        start: int,
        query: Query,
        render: Render[Any],
        many: RenderMany[Any] | None,
        found: Answered,
    ) -> None:
        def read(offset: int) -> list[Answered]:
            with self._topics.reader(topic) as reader:
                some = _answered_many(topic, reader, offset, query, many) if many else []
                return some or [_answered(topic, reader, offset, query, render)]

        self._pages.served(_place(topic, start, query, render), found, read, AT_ONCE)


def _place(topic: Topic, offset: int, query: Query, render: Render[Any]) -> tuple[Topic, int, object]:
    return topic, offset, (render, query.max_messages)


def _serves(found: Answered, topic: Topic) -> bool:
    """Whether nothing has changed since it was made: what follows has no place in it, and no row of it is gone."""
    return found.is_full and not topic.closed and found.gaps == topic.gaps()


def _answered(topic: Topic, reader: TopicReader, offset: int, query: Query, render: Render[Any]) -> Answered:
    gaps = topic.gaps()  # before reading: what becomes one meanwhile makes the page useless
    page = _read(topic, reader, offset, query)
    is_full = page.rows == query.page or page.size >= _budget(query) * ALMOST
    return Answered(_rendered(page, query, render), page.next, is_full, gaps)


def _answered_many(
    topic: Topic, reader: TopicReader, offset: int, query: Query, many: RenderMany[Any]
) -> list[Answered]:
    """The pages from ``offset`` on that are whole, of AT_ONCE; none where the entries are large, or the end is near."""
    gaps, size = topic.gaps(), query.page
    page = read_page(topic, reader, offset, AT_ONCE * size, DEFAULT_BUDGET, query)
    whole = page.rows // size
    if whole < 2:
        return []
    rows = concatenated(page.batches).slice(0, whole * size)
    last = rows.column("offset").to_numpy()[size - 1 :: size].tolist()
    answers = zip(many([rows], size), last, strict=True)
    return [Answered(answer, offset + 1, True, gaps) for answer, offset in answers]


def _read(topic: Topic, reader: TopicReader, offset: int, query: Query) -> Page:
    return read_page(topic, reader, offset, query.page, _budget(query), query)


def _budget(query: Query) -> int:
    """Bytes of a page at most."""
    return LARGE_BUDGET if query.max_messages else DEFAULT_BUDGET


def _rendered(page: Page, query: Query, render: Render[T]) -> T:
    return render(page.batches, page.next if query.filter_text else 0)
