"""Checks that offsets of the log's topics still name the messages that landed at them.

Topic and offset identify a row: in the proof, in deletions, and for what has landed already. The log never uses an
offset twice, but its folder may be lost or replaced, and then the offsets of a topic begin again under its name.
Invariant: a batch is committed only if its topics are checked after its tasks have read them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from penstock.client import ClientError, NoSuchTopic
from penstock.errors import PenstockError
from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.journal import BACKFILL_MARK
from penstock.landing.topics.topic_store import TopicStore, TopicView
from penstock.log.errors import LogError

_LOGGER = logging.getLogger(__name__)


class OffsetsRestarted(PenstockError, RuntimeError):
    """Offsets of a topic name other messages than the landed ones; the text says what to do."""


class Continuity(Protocol):
    """The checks of one source. One thread at a time."""

    def check(self) -> None:
        """Check the selected topics, at a start and from time to time, as the file says. Raises OffsetsRestarted."""

    def check_answers(self) -> None:
        """Check that Kafka answers and shows the selected topics. Raises KafkaAway."""

    def check_ends(self, landed: Mapping[str, int], ends: Mapping[str, int]) -> None:
        """Check that planned ends are not before landed ones. Raises OffsetsRestarted."""

    def before_reading(self, ends: Mapping[str, int]) -> None:
        """Check the topics or partitions of a batch, with the planned ends, before its tasks read them."""

    def after_reading(self, ends: Mapping[str, int]) -> None:
        """Check them after its tasks have read them, before it is committed. Raises OffsetsRestarted."""


class LogContinuity:
    """The checks of the log's topics: the time at which the log stored a row tells it from others at its offset.

    ``open_store`` is called for each check: an open reader of a folder may still have files of a removed log. ``marks``
    is the file with offset and time (microseconds) of one landed row of each topic.
    """

    def __init__(self, open_store: Callable[[], TopicStore], patterns: Sequence[str], marks: Path) -> None:
        self._open_store, self._patterns, self._path = open_store, patterns, marks
        self._store, self._marks = open_store(), _load_marks(marks)

    def check(self) -> None:
        self._store, self._marks = self._open_store(), _load_marks(self._path)
        # A daemon that does not answer, and topics that cannot be read now, are checked with the next batch.
        with contextlib.suppress(ClientError):
            for topic, view in self._store.views(self._patterns).items():
                with contextlib.suppress(FileNotFoundError, NoSuchTopic, LogError):
                    self._check_topic(topic, view)

    def check_answers(self) -> None:
        """Do nothing: a log that does not answer is waited for in each call."""

    def check_ends(self, landed: Mapping[str, int], ends: Mapping[str, int]) -> None:
        """Do nothing: a plan of the log never goes back."""

    def before_reading(self, ends: Mapping[str, int]) -> None:
        """Do nothing: what the tasks read is checked afterwards."""

    def after_reading(self, ends: Mapping[str, int]) -> None:
        self._store = self._open_store()
        backfilled = {name.partition(BACKFILL_MARK)[0] for name in ends if BACKFILL_MARK in name}
        ends = {topic: end for topic, end in ends.items() if BACKFILL_MARK not in topic}
        # Order: the times of the new marks before the check. If it finds the old log, they are of the old log, too.
        rows = {topic: [end - 1, *self._marks.get(topic, ())[:1]] for topic, end in ends.items()}
        rows |= {topic: [self._marks[topic][0]] for topic in backfilled - ends.keys() if topic in self._marks}
        times = self._store.row_times(rows)
        for topic, (*_, micros) in times.items():
            # Fast path: the landed row still has its time.
            if (
                topic in self._marks
                and micros != self._marks[topic][1]
                and (view := self._store.views([topic]).get(topic))
            ):
                # A topic that is deleted now has no other messages at the offsets of the landed ones.
                with contextlib.suppress(FileNotFoundError, NoSuchTopic):
                    self._check_topic(topic, view)
        marks = {topic: (end - 1, micros) for topic, end in ends.items() if (micros := times[topic][0]) is not None}
        if marks.items() <= self._marks.items():
            return
        self._marks |= marks
        # On a full disk the marks of an earlier batch stay, which show a replaced log, too.
        with contextlib.suppress(OSError):
            write_document(self._path, {"rows": {topic: list(mark) for topic, mark in self._marks.items()}})

    def _check_topic(self, topic: str, view: TopicView) -> None:
        if topic not in self._marks:
            return
        offset, micros = self._marks[topic]
        if view.end > offset:
            stored_at = self._store.waiting_since(topic, offset)
            # Rows of retention and of damaged batches are gaps: nothing is known of them.
            is_gone = offset < view.start or any(gap.begin <= offset < gap.end for gap in view.gaps())
            differs = stored_at is not None and stored_at != micros and not is_gone
        else:
            # A power cut sets the end back until the topic is recovered. Its rows are older than the landed one.
            stored_at = self._store.waiting_since(topic, view.end - 1) if view.end > view.start else None
            differs = stored_at is not None and stored_at > micros
        if differs and stored_at is not None:
            raise OffsetsRestarted(
                f"topic {topic} of the log begins again: offset {offset} landed with a message of {_text(micros)}, and "
                f"the log has another one there or before, of {_text(stored_at)}. Put the log's folder back, or choose "
                "another folder in pipeline.tables"
            )


def _load_marks(path: Path) -> dict[str, tuple[int, int]]:
    try:
        rows: Mapping[str, Any] = read_document(path)["rows"]
        return {str(topic): (int(offset), int(micros)) for topic, (offset, micros) in rows.items()}
    except FileNotFoundError:
        return {}
    except (DamagedFile, KeyError, TypeError, ValueError, AttributeError):
        _LOGGER.warning("%s is damaged: a log that was replaced until now is not recognized", path)
        return {}


def _text(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds")
