"""The calls of the log's API that look after topics, as ``calls`` has those that read and append."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.log import types
from penstock.client.log.calls import Call, moment, nothing
from penstock.client.log.types import Setting
from penstock.config import parse_size, parse_time
from penstock.slogd import slogd_pb2 as pb

LONG = 3600.0
"""Seconds that a call may take which goes through whole topics."""
_SIZES = ("message_size_limit", "segment_size_limit", "retain_bytes")
_TIMES = ("rotate_after", "stale_after")
_LISTS = ("readers", "writers")
_SETTINGS = tuple(field.name for field in pb.TopicSettings.DESCRIPTOR.fields)


def describe(topics: Sequence[str]) -> Call[list[types.Topic]]:
    """The topics of these names, or all."""
    request = pb.DescribeTopicsRequest(topic=topics)

    def take(data: bytes) -> list[types.Topic]:
        return [_topic(one) for one in pb.DescribeTopicsResponse.FromString(data).topic]

    return Call("DescribeTopics", request.SerializeToString(), take)


def create(topic: str, settings: Mapping[str, Setting]) -> Call[types.Topic]:
    """Create a topic. Raises Refused for a setting that does not exist."""
    request = pb.CreateTopicRequest(topic=topic, settings=_settings(settings))
    return Call("CreateTopic", request.SerializeToString(), _described, again=False)


def configure(topic: str, settings: Mapping[str, Setting]) -> Call[types.Topic]:
    """Change settings. Raises Refused for one that does not exist."""
    request = pb.ConfigureTopicRequest(topic=topic, settings=_settings(settings))
    return Call("ConfigureTopic", request.SerializeToString(), _described)


def delete(topic: str) -> Call[None]:
    """Delete a topic."""
    return Call("DeleteTopic", pb.DeleteTopicRequest(topic=topic).SerializeToString(), nothing, again=False)


def _settings(settings: Mapping[str, Setting]) -> pb.TopicSettings:
    message = pb.TopicSettings()
    for name, value in settings.items():
        if name not in _SETTINGS:
            raise types.Refused(f"{name}: no setting of a topic; there are {', '.join(_SETTINGS)}")
        try:
            _set(message, name, value)
        except (TypeError, ValueError) as error:
            raise types.Refused(f"{name}: {error}") from None
    return message


def _set(message: pb.TopicSettings, name: str, value: Setting) -> None:
    if name in _LISTS:
        getattr(message, name).extend([value] if isinstance(value, str) else value)
    else:
        setattr(message, name, parse_size(value) if name in _SIZES else parse_time(value) if name in _TIMES else value)


def _described(data: bytes) -> types.Topic:
    return _topic(pb.TopicDescription.FromString(data))


def _topic(one: pb.TopicDescription) -> types.Topic:
    values = {field.name: value for field, value in one.settings.ListFields()}
    return types.Topic(
        name=one.name,
        start=one.start,
        end=one.end,
        bytes=one.bytes,
        segments=one.segments,
        oldest=moment(one.oldest) if one.HasField("oldest") else None,
        newest=moment(one.newest) if one.HasField("newest") else None,
        gaps=_gaps(one.gaps),
        cursors=[_cursor(cursor) for cursor in one.cursors],
        settings={name: tuple(value) if name in _LISTS else value for name, value in values.items()},
    )


def _gaps(gaps: Iterable[pb.Gap]) -> list[types.Gap]:
    return [types.Gap(gap.begin, gap.end, gap.reason) for gap in gaps]


def _cursor(one: pb.Cursor) -> types.Cursor:
    return types.Cursor(one.topic, one.name, one.offset, one.lag_entries, one.lag_bytes, one.lag_seconds)


def cursors(topic: str) -> Call[list[types.Cursor]]:
    """The cursors of a topic; of all for ""."""

    def take(data: bytes) -> list[types.Cursor]:
        return [_cursor(one) for one in pb.ListCursorsResponse.FromString(data).cursor]

    return Call("ListCursors", pb.ListCursorsRequest(topic=topic).SerializeToString(), take)


def commit_cursor(topic: str, name: str, offset: int) -> Call[None]:
    """Set a cursor."""
    request = pb.CommitCursorRequest(topic=topic, name=name, offset=offset)
    return Call("CommitCursor", request.SerializeToString(), nothing)


def remove_cursor(topic: str, name: str) -> Call[None]:
    """Forget a cursor."""
    return Call("RemoveCursor", pb.RemoveCursorRequest(topic=topic, name=name).SerializeToString(), nothing)


def verify(topic: str, start: int, end: int) -> Call[list[types.Gap]]:
    """Check batches with rows in [start, end), to the end for 0; the gaps that were made."""
    request = pb.VerifyTopicRequest(topic=topic, begin=start, end=end)

    def take(data: bytes) -> list[types.Gap]:
        return _gaps(pb.VerifyTopicResponse.FromString(data).gaps)

    return Call("VerifyTopic", request.SerializeToString(), take, timeout=LONG)


def compact(topic: str) -> Call[types.Compacted]:
    """Rewrite sealed segments."""

    def take(data: bytes) -> types.Compacted:
        answer = pb.CompactTopicResponse.FromString(data)
        return types.Compacted(answer.bytes_before, answer.bytes_after)

    return Call("CompactTopic", pb.CompactTopicRequest(topic=topic).SerializeToString(), take, timeout=LONG)


def cleanup() -> Call[list[types.Swept]]:
    """Drop what retention allows."""

    def take(data: bytes) -> list[types.Swept]:
        swept = pb.CleanupResponse.FromString(data).swept
        return [types.Swept(one.topic, one.begin, one.end, one.bytes, one.reason) for one in swept]

    return Call("Cleanup", b"", take, timeout=LONG)
