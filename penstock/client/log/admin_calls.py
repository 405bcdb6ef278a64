"""Administrative calls of the log's API, without I/O; ``calls`` has the ones that read and append."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.log import types
from penstock.client.log.calls import Call, decode_empty, moment
from penstock.client.log.types import Setting
from penstock.config import parse_size, parse_time
from penstock.slogd import slogd_pb2 as pb

LONG = 3600.0
"""Time-out in seconds of a call that reads whole topics."""
_SIZES = ("message_size_limit", "segment_size_limit", "retain_bytes")
_TIMES = ("rotate_after", "stale_after")
_LISTS = ("readers", "writers")
_SETTINGS = tuple(field.name for field in pb.TopicSettings.DESCRIPTOR.fields)


def describe(topics: Sequence[str]) -> Call[list[types.Topic]]:
    """Describe the topics of these names, or all."""
    request = pb.DescribeTopicsRequest(topic=topics)

    def decode(response: bytes) -> list[types.Topic]:
        return [_topic(description) for description in pb.DescribeTopicsResponse.FromString(response).topic]

    return Call("DescribeTopics", request.SerializeToString(), decode)


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
    return Call("DeleteTopic", pb.DeleteTopicRequest(topic=topic).SerializeToString(), decode_empty, again=False)


def _settings(settings: Mapping[str, Setting]) -> pb.TopicSettings:
    message = pb.TopicSettings()
    for name, setting in settings.items():
        if name not in _SETTINGS:
            raise types.Refused(f"{name}: no setting of a topic; there are {', '.join(_SETTINGS)}")
        try:
            _set(message, name, setting)
        except (TypeError, ValueError) as error:
            raise types.Refused(f"{name}: {error}") from None
    return message


def _set(message: pb.TopicSettings, name: str, setting: Setting) -> None:
    if name in _LISTS:
        getattr(message, name).extend([setting] if isinstance(setting, str) else setting)
    else:
        setattr(
            message, name, parse_size(setting) if name in _SIZES else parse_time(setting) if name in _TIMES else setting
        )


def _described(response: bytes) -> types.Topic:
    return _topic(pb.TopicDescription.FromString(response))


def _topic(description: pb.TopicDescription) -> types.Topic:
    settings = {field.name: setting for field, setting in description.settings.ListFields()}
    return types.Topic(
        name=description.name,
        start=description.start,
        end=description.end,
        bytes=description.bytes,
        segments=description.segments,
        oldest=moment(description.oldest) if description.HasField("oldest") else None,
        newest=moment(description.newest) if description.HasField("newest") else None,
        gaps=_gaps(description.gaps),
        cursors=[_cursor(cursor) for cursor in description.cursors],
        settings={name: tuple(setting) if name in _LISTS else setting for name, setting in settings.items()},
    )


def _gaps(gaps: Iterable[pb.Gap]) -> list[types.Gap]:
    return [types.Gap(gap.begin, gap.end, gap.reason) for gap in gaps]


def _cursor(cursor: pb.Cursor) -> types.Cursor:
    return types.Cursor(
        cursor.topic, cursor.name, cursor.offset, cursor.lag_entries, cursor.lag_bytes, cursor.lag_seconds
    )


def cursors(topic: str) -> Call[list[types.Cursor]]:
    """List the cursors of a topic; of all topics for ""."""

    def decode(response: bytes) -> list[types.Cursor]:
        return [_cursor(cursor) for cursor in pb.ListCursorsResponse.FromString(response).cursor]

    return Call("ListCursors", pb.ListCursorsRequest(topic=topic).SerializeToString(), decode)


def commit_cursor(topic: str, name: str, offset: int) -> Call[None]:
    """Set a cursor."""
    request = pb.CommitCursorRequest(topic=topic, name=name, offset=offset)
    return Call("CommitCursor", request.SerializeToString(), decode_empty)


def remove_cursor(topic: str, name: str) -> Call[None]:
    """Remove a cursor."""
    return Call("RemoveCursor", pb.RemoveCursorRequest(topic=topic, name=name).SerializeToString(), decode_empty)


def verify(topic: str, start: int, end: int) -> Call[list[types.Gap]]:
    """Check the batches with rows in [start, end), to the end for 0; the answer is the gaps that were made."""
    request = pb.VerifyTopicRequest(topic=topic, begin=start, end=end)

    def decode(response: bytes) -> list[types.Gap]:
        return _gaps(pb.VerifyTopicResponse.FromString(response).gaps)

    return Call("VerifyTopic", request.SerializeToString(), decode, timeout=LONG)


def post_ledger(document: str) -> Call[bool]:
    """Post counts to the ledger; the answer is whether they were new."""
    request = pb.PostLedgerRequest(document=document)
    return Call(
        "PostLedger", request.SerializeToString(), lambda response: pb.PostLedgerResponse.FromString(response).new
    )


def compact(topic: str) -> Call[types.Compacted]:
    """Rewrite sealed segments."""

    def decode(response: bytes) -> types.Compacted:
        totals = pb.CompactTopicResponse.FromString(response)
        return types.Compacted(totals.bytes_before, totals.bytes_after)

    return Call("CompactTopic", pb.CompactTopicRequest(topic=topic).SerializeToString(), decode, timeout=LONG)


def cleanup() -> Call[list[types.Swept]]:
    """Drop everything that retention allows."""

    def decode(response: bytes) -> list[types.Swept]:
        spans = pb.CleanupResponse.FromString(response).swept
        return [types.Swept(span.topic, span.begin, span.end, span.bytes, span.reason) for span in spans]

    return Call("Cleanup", b"", decode, timeout=LONG)
