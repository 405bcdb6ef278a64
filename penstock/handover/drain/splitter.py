"""Splits messages by their ``kt:`` tags: to the requested topics, or to the handler's own if a request is invalid.

Invariant: a frame that is polled again after a crash is split as before, otherwise a part would be stored twice. Facts
that do not follow from the frame itself (the limit of topics was reached) are written to the listener's state page
before anything of the group is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.handover.drain.topic_requests import requested_topics, with_refused_requests
from penstock.handover.state_page import TOPIC_REQUESTS, StatePage
from penstock.log import InvalidTopicName, Log, LogError, TooManyTopics, Topic
from penstock.records import Body, as_batch, values_of

MAX_REFUSED = 1000
"""Limit of remembered names; beyond it no topic is created for the group."""


MessagesByTopic = dict[str, Body]
"""The messages of one frame; its own topic comes last."""


class TopicSplitter:
    """Splits the frames of one group from ``begin`` to ``end``."""

    def __init__(self, log: Log, page: StatePage, begin: int, end: int) -> None:
        self._log, self._page, self._end = log, page, end
        saved = page.read(TOPIC_REQUESTS) or {}
        is_repeated = saved.get("end", 0) > begin
        self._refused: set[str] = set(saved["refused"]) if is_repeated else set()
        self._full: bool = is_repeated and saved["full"]
        self._grants: dict[str, bool] = {}

    def split(self, bodies: Sequence[Body], own_topic: str) -> list[tuple[MessagesByTopic, int]]:
        """Return each frame's messages by topic, and the number of its refused requests. Raises LogError."""
        requested = [requested_topics(body) if body.num_rows else None for body in bodies]
        before = len(self._refused)
        if any(topics is not None for topics in requested):
            self._log.topic(own_topic, create=True)  # first, before other topics reach the limit
        for topics in requested:
            for name in values_of(pc.unique(topics.drop_null())) if topics is not None else ():
                self._grants.setdefault(name, name == own_topic or self._is_topic(name))
        if len(self._refused) > before or self._full:
            self._full = self._full or len(self._refused) > MAX_REFUSED
            refused = [] if self._full else sorted(self._refused)
            # Order: before the first append of the group; a repeated group must refuse the same names.
            self._page.write(TOPIC_REQUESTS, {"end": self._end, "refused": refused, "full": self._full})
        return [self._parts(body, topics, own_topic) for body, topics in zip(bodies, requested, strict=True)]

    def _is_topic(self, name: str) -> bool:
        """Report whether the topic exists or can be created now."""
        if name in self._refused:
            return False
        try:
            self._open_topic(name)
        except InvalidTopicName:
            return False
        except TooManyTopics:
            self._refused.add(name)
            return False
        return True

    def _open_topic(self, name: str) -> Topic:
        try:
            return self._log.topic(name, create=not self._full)
        except InvalidTopicName:
            raise
        except LogError:
            if self._full:
                raise TooManyTopics("too many topics when this group was first stored") from None
            raise

    def _parts(self, messages: Body, requested: pa.Array[Any] | None, own_topic: str) -> tuple[MessagesByTopic, int]:
        if requested is None:
            return {own_topic: messages}, 0
        body = as_batch(messages)
        granted = pa.array(sorted(name for name, valid in self._grants.items() if valid), pa.string())
        is_granted = pc.is_in(requested, granted)
        refused = pc.if_else(is_granted, pa.scalar(None, pa.string()), requested)
        topics: pa.Array[Any] = pc.if_else(is_granted, requested, own_topic)
        if refused.null_count < len(refused):
            body = with_refused_requests(body, refused)
        other_topics = [name for name in values_of(pc.unique(topics)) if name != own_topic]
        parts: MessagesByTopic = {own_topic: body}
        if other_topics:
            parts = {name: body.filter(pc.equal(topics, pa.scalar(name))) for name in (*other_topics, own_topic)}
        return parts, len(refused) - refused.null_count
