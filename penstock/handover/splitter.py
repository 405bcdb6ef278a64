"""Messages with ``kt:`` tags go to the topics they ask for; what cannot be one falls back to the handler's own.

A frame polled again after a crash has to be split as it was before, or a part would be stored twice. What does
not follow from the frame alone (that there were too many topics) is left in the listener's state page before
anything of the group is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.handover.state_page import TOPIC_REQUESTS, StatePage
from penstock.handover.topic_requests import requested_topics, with_refused_requests
from penstock.log import InvalidTopicName, Log, LogError, TooManyTopics, Topic
from penstock.records import EMPTY_BODY, values_of

MOST_REFUSED = 1000
"""Names that are remembered one by one; beyond them no topic at all is made for the group."""


@dataclass(frozen=True, slots=True)
class SplitFrame:
    """A frame's messages: those for the handler's own topic, those for others, and how many requests were refused."""

    own: pa.RecordBatch
    others: list[tuple[str, pa.RecordBatch]] = field(default_factory=list)
    refused: int = 0


class TopicSplitter:
    """Splits the frames of one group, up to position ``end``, which begins at ``begin``."""

    def __init__(self, log: Log, page: StatePage, begin: int, end: int) -> None:
        self._log, self._page, self._end = log, page, end
        left = page.read(TOPIC_REQUESTS) or {}
        again = left.get("end", 0) > begin
        self._refused: set[str] = set(left["refused"]) if again else set()
        self._full: bool = again and left["full"]
        self._known: dict[str, bool] = {}

    def split(self, bodies: list[pa.RecordBatch], own: str) -> list[SplitFrame]:
        """The parts of each frame's messages, ``own`` being the handler's topic. Raises LogError."""
        requested = [requested_topics(body) if body.num_rows else None for body in bodies]
        before = len(self._refused)
        if any(topics is not None for topics in requested):
            self._log.topic(own, create=True)  # before others take the last place
        for topics in requested:
            for name in values_of(pc.unique(topics.drop_null())) if topics is not None else ():
                self._known.setdefault(name, name == own or self._is_topic(name))
        if len(self._refused) > before or self._full:
            self._full = self._full or len(self._refused) > MOST_REFUSED
            refused = [] if self._full else sorted(self._refused)
            self._page.write(TOPIC_REQUESTS, {"end": self._end, "refused": refused, "full": self._full})
        return [self._parts(body, topics, own) for body, topics in zip(bodies, requested, strict=True)]

    def _is_topic(self, name: str) -> bool:
        """Whether there is a topic of that name, or can be one now."""
        if name in self._refused:
            return False
        try:
            self._open(name)
        except InvalidTopicName:
            return False
        except TooManyTopics:
            self._refused.add(name)
            return False
        return True

    def _open(self, name: str) -> Topic:
        try:
            return self._log.topic(name, create=not self._full)
        except InvalidTopicName:
            raise
        except LogError:
            if self._full:
                raise TooManyTopics("there were too many topics when this group was first stored") from None
            raise

    def _parts(self, body: pa.RecordBatch, requested: pa.Array[Any] | None, own: str) -> SplitFrame:
        if requested is None:
            return SplitFrame(body)
        granted = pa.array(sorted(name for name, known in self._known.items() if known), pa.string())
        is_granted = pc.is_in(requested, granted)
        refused = pc.if_else(is_granted, pa.scalar(None, pa.string()), requested)
        topics: pa.Array[Any] = pc.if_else(is_granted, requested, own)
        if refused.null_count < len(refused):
            body = with_refused_requests(body, refused)
        others = [name for name in values_of(pc.unique(topics)) if name != own]
        split = [(name, body.filter(pc.equal(topics, pa.scalar(name)))) for name in others]
        kept = body.filter(pc.equal(topics, pa.scalar(own))) if others else body
        return SplitFrame(kept if kept.num_rows else EMPTY_BODY, split, len(refused) - refused.null_count)
