"""Flight actions on topics: one JSON object in, JSON objects out. Blocking."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from penstock.files.json_values import parse_object
from penstock.log import CorruptBatch, Topic, TopicReader
from penstock.log.read.topic_reader import row_times
from penstock.log.store.segment_files import stored_bytes
from penstock.log.topic_patterns import is_selected
from penstock.server.auth.permitted_topics import PermittedTopics
from penstock.server.auth.rights import Principal
from penstock.server.reading.query import LAST_OFFSET
from penstock.slogd.errors import BadRequest, Damaged, NoSuchTopic, NotAllowed

ACTIONS = {
    "topics": '{"topics": [names and patterns]}: of each {"topic", "start", "end", "bytes"}; offsets [start, end)',
    "gaps": '{"topic"}: of each gap {"begin", "end", "reason", "counts" by source and bucket}',
    "seek": '{"topic", "micros"}: {"offset"}, the first with that timestamp or a later one',
    "first": '{"topic", "offset"}: {"micros"}, the timestamp of the first row from there on, null for none',
    "times": '{"rows": {topic: [offsets]}}: {"micros"}, timestamps as of "first" by topic, without unreadable topics',
}
_Documents = Iterator[dict[str, Any]]
_EARLIEST = -(1 << 63)


def act(topics: PermittedTopics, caller: Principal, action: str, body: bytes) -> _Documents:
    """Return the answers of one action. Raises BadRequest, NoSuchTopic, NotAllowed, Damaged."""
    parameters = _object(body)
    if action == "topics":
        return _topics(topics, caller, parameters)
    if action == "times":
        return _times(topics, caller, parameters)
    if action not in _OF_ONE_TOPIC:
        raise BadRequest(f"unknown action {action!r}; actions are {', '.join(ACTIONS)}")
    name = parameters.get("topic")
    if not isinstance(name, str):
        raise BadRequest("topic must be a text")
    topic = topics.readable(name, caller)
    return _with_api_errors(topic, _OF_ONE_TOPIC[action](topic, parameters))


def _topics(topics: PermittedTopics, caller: Principal, parameters: dict[str, Any]) -> _Documents:
    """Yield matching topics that the caller may read; a topic that is named exactly must be readable."""
    patterns = parameters.get("topics", ["*"])
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        raise BadRequest("topics must be a list of texts")
    for name in topics.log.names(internal=True):
        if not is_selected(name, patterns):
            continue
        # A topic that is named exactly is refused with a reason; patterns only select readable topics.
        if name in patterns:
            caller.check_read(name, topics.log.settings(name))
        if caller.reads(name, topics.log.settings(name)):
            # The topic may have been deleted since the names were listed.
            with contextlib.suppress(NoSuchTopic):
                topic = topics.readable(name, caller)
                yield from _with_api_errors(topic, _describe(topics, topic))


def _times(topics: PermittedTopics, caller: Principal, parameters: dict[str, Any]) -> _Documents:
    rows = parameters.get("rows")
    if not isinstance(rows, dict) or not all(_are_offsets(offsets) for offsets in rows.values()):
        raise BadRequest("rows must be lists of offsets by topic")
    times = {}
    for name, offsets in rows.items():
        with contextlib.suppress(NoSuchTopic, NotAllowed):
            times[name] = row_times(topics.readable(name, caller).path, offsets)
    yield {"micros": times}


def _are_offsets(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value <= LAST_OFFSET for value in values)


def _describe(topics: PermittedTopics, topic: Topic) -> _Documents:
    with topics.reader(topic) as reader:
        yield {"topic": topic.name, "start": reader.start, "end": reader.end, "bytes": stored_bytes(topic.path)}


def _gaps(topic: Topic, _: dict[str, Any]) -> _Documents:
    for gap in topic.gaps():
        yield {name: value for name, value in gap.document().items() if name != "received"}


def _seek(topic: Topic, parameters: dict[str, Any]) -> _Documents:
    yield {"offset": topic.reader().at_timestamp(_number(parameters, "micros", _EARLIEST))}


def _first(topic: Topic, parameters: dict[str, Any]) -> _Documents:
    yield {"micros": first_timestamp(topic.reader(), _number(parameters, "offset", 0))}


def first_timestamp(reader: TopicReader, offset: int) -> int | None:
    """Return when the first row from an offset on entered the log (microseconds); None without rows. Raises
    CorruptBatch.
    """
    return next((stored.first for stored in reader.read(offset, max_rows=1)), None)


_OF_ONE_TOPIC: dict[str, Callable[[Topic, dict[str, Any]], _Documents]] = {
    "gaps": _gaps,
    "seek": _seek,
    "first": _first,
}


def _with_api_errors(topic: Topic, documents: _Documents) -> _Documents:
    try:
        yield from documents
    except FileNotFoundError:
        raise NoSuchTopic(f"Topic does not exist: {topic.name}") from None
    except CorruptBatch as damage:
        raise Damaged(f"Cannot read {topic.name}: {damage}") from None


def _object(body: bytes) -> dict[str, Any]:
    try:
        return parse_object(body or b"{}")
    except ValueError:
        raise BadRequest("an action's body is a JSON object") from None


def _number(parameters: dict[str, Any], name: str, minimum: int) -> int:
    number = parameters.get(name)
    if type(number) is not int or not minimum <= number <= LAST_OFFSET:
        raise BadRequest(f"{name} must be a whole number")
    return number
