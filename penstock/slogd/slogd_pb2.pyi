import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYNCED: _ClassVar[Durability]
    WRITTEN: _ClassVar[Durability]
    STAGED: _ClassVar[Durability]
SYNCED: Durability
WRITTEN: Durability
STAGED: Durability

class LogEntry(_message.Message):
    __slots__ = ("offset", "timestamp", "annotations", "protobuf", "raw_bytes", "key")
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    PROTOBUF_FIELD_NUMBER: _ClassVar[int]
    RAW_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp: _timestamp_pb2.Timestamp
    annotations: _containers.ScalarMap[str, str]
    protobuf: _any_pb2.Any
    raw_bytes: bytes
    key: bytes
    def __init__(self, offset: _Optional[int] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., annotations: _Optional[_Mapping[str, str]] = ..., protobuf: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., raw_bytes: _Optional[bytes] = ..., key: _Optional[bytes] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("topic", "logs", "transaction_id", "producer_id", "sequence", "origin", "columns")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    logs: _containers.RepeatedCompositeFieldContainer[LogEntry]
    transaction_id: str
    producer_id: str
    sequence: int
    origin: Origin
    columns: bytes
    def __init__(self, topic: _Optional[str] = ..., logs: _Optional[_Iterable[_Union[LogEntry, _Mapping]]] = ..., transaction_id: _Optional[str] = ..., producer_id: _Optional[str] = ..., sequence: _Optional[int] = ..., origin: _Optional[_Union[Origin, _Mapping]] = ..., columns: _Optional[bytes] = ...) -> None: ...

class Origin(_message.Message):
    __slots__ = ("source", "bucket", "first", "last", "codec", "hops")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    source: str
    bucket: int
    first: int
    last: int
    codec: str
    hops: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, source: _Optional[str] = ..., bucket: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., codec: _Optional[str] = ..., hops: _Optional[_Iterable[str]] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("offsets", "durability", "error", "stored_now")
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STORED_NOW_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    durability: Durability
    error: Error
    stored_now: bool
    def __init__(self, offsets: _Optional[_Iterable[int]] = ..., durability: _Optional[_Union[Durability, str]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., stored_now: _Optional[bool] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class GetLogsRequest(_message.Message):
    __slots__ = ("topic", "offset", "timestamp", "position", "cursor", "max_messages", "filter")
    class Position(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[GetLogsRequest.Position]
        EARLIEST: _ClassVar[GetLogsRequest.Position]
        LATEST: _ClassVar[GetLogsRequest.Position]
    UNSPECIFIED: GetLogsRequest.Position
    EARLIEST: GetLogsRequest.Position
    LATEST: GetLogsRequest.Position
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    offset: int
    timestamp: _timestamp_pb2.Timestamp
    position: GetLogsRequest.Position
    cursor: str
    max_messages: int
    filter: str
    def __init__(self, topic: _Optional[str] = ..., offset: _Optional[int] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., position: _Optional[_Union[GetLogsRequest.Position, str]] = ..., cursor: _Optional[str] = ..., max_messages: _Optional[int] = ..., filter: _Optional[str] = ...) -> None: ...

class GetLogsResponse(_message.Message):
    __slots__ = ("logs", "next_offset")
    LOGS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    logs: _containers.RepeatedCompositeFieldContainer[LogEntry]
    next_offset: int
    def __init__(self, logs: _Optional[_Iterable[_Union[LogEntry, _Mapping]]] = ..., next_offset: _Optional[int] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, topic: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TopicSettings(_message.Message):
    __slots__ = ("message_size_limit", "segment_size_limit", "rotate_after", "stale_after", "retain_bytes", "retention_policy", "durability", "compression", "readers", "writers", "timestamp_type")
    MESSAGE_SIZE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_SIZE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    ROTATE_AFTER_FIELD_NUMBER: _ClassVar[int]
    STALE_AFTER_FIELD_NUMBER: _ClassVar[int]
    RETAIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_POLICY_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    WRITERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_TYPE_FIELD_NUMBER: _ClassVar[int]
    message_size_limit: int
    segment_size_limit: int
    rotate_after: float
    stale_after: float
    retain_bytes: int
    retention_policy: str
    durability: str
    compression: str
    readers: _containers.RepeatedScalarFieldContainer[str]
    writers: _containers.RepeatedScalarFieldContainer[str]
    timestamp_type: str
    def __init__(self, message_size_limit: _Optional[int] = ..., segment_size_limit: _Optional[int] = ..., rotate_after: _Optional[float] = ..., stale_after: _Optional[float] = ..., retain_bytes: _Optional[int] = ..., retention_policy: _Optional[str] = ..., durability: _Optional[str] = ..., compression: _Optional[str] = ..., readers: _Optional[_Iterable[str]] = ..., writers: _Optional[_Iterable[str]] = ..., timestamp_type: _Optional[str] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("topic", "settings")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    settings: TopicSettings
    def __init__(self, topic: _Optional[str] = ..., settings: _Optional[_Union[TopicSettings, _Mapping]] = ...) -> None: ...

class ConfigureTopicRequest(_message.Message):
    __slots__ = ("topic", "settings")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    settings: TopicSettings
    def __init__(self, topic: _Optional[str] = ..., settings: _Optional[_Union[TopicSettings, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeTopicsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeTopicsResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _containers.RepeatedCompositeFieldContainer[TopicDescription]
    def __init__(self, topic: _Optional[_Iterable[_Union[TopicDescription, _Mapping]]] = ...) -> None: ...

class TopicDescription(_message.Message):
    __slots__ = ("name", "start", "end", "bytes", "segments", "oldest", "newest", "gaps", "cursors", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    start: int
    end: int
    bytes: int
    segments: int
    oldest: _timestamp_pb2.Timestamp
    newest: _timestamp_pb2.Timestamp
    gaps: _containers.RepeatedCompositeFieldContainer[Gap]
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    settings: TopicSettings
    def __init__(self, name: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., bytes: _Optional[int] = ..., segments: _Optional[int] = ..., oldest: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., newest: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., gaps: _Optional[_Iterable[_Union[Gap, _Mapping]]] = ..., cursors: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ..., settings: _Optional[_Union[TopicSettings, _Mapping]] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("begin", "end", "reason")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    begin: int
    end: int
    reason: str
    def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class BeginRequest(_message.Message):
    __slots__ = ("timeout",)
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    timeout: _duration_pb2.Duration
    def __init__(self, timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class BeginResponse(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    def __init__(self, transaction_id: _Optional[str] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    def __init__(self, transaction_id: _Optional[str] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _containers.RepeatedCompositeFieldContainer[Committed]
    def __init__(self, topic: _Optional[_Iterable[_Union[Committed, _Mapping]]] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("topic", "offsets")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class AbortRequest(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    def __init__(self, transaction_id: _Optional[str] = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("topic", "name", "offset", "lag_entries", "lag_bytes", "lag_seconds")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_SECONDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    offset: int
    lag_entries: int
    lag_bytes: int
    lag_seconds: float
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., offset: _Optional[int] = ..., lag_entries: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_seconds: _Optional[float] = ...) -> None: ...

class CommitCursorRequest(_message.Message):
    __slots__ = ("topic", "name", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    offset: int
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class CommitCursorResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveCursorRequest(_message.Message):
    __slots__ = ("topic", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class RemoveCursorResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListCursorsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListCursorsResponse(_message.Message):
    __slots__ = ("cursor",)
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    cursor: _containers.RepeatedCompositeFieldContainer[Cursor]
    def __init__(self, cursor: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ...) -> None: ...

class VerifyTopicRequest(_message.Message):
    __slots__ = ("topic", "begin", "end")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    topic: str
    begin: int
    end: int
    def __init__(self, topic: _Optional[str] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class VerifyTopicResponse(_message.Message):
    __slots__ = ("gaps",)
    GAPS_FIELD_NUMBER: _ClassVar[int]
    gaps: _containers.RepeatedCompositeFieldContainer[Gap]
    def __init__(self, gaps: _Optional[_Iterable[_Union[Gap, _Mapping]]] = ...) -> None: ...

class CompactTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class CompactTopicResponse(_message.Message):
    __slots__ = ("bytes_before", "bytes_after")
    BYTES_BEFORE_FIELD_NUMBER: _ClassVar[int]
    BYTES_AFTER_FIELD_NUMBER: _ClassVar[int]
    bytes_before: int
    bytes_after: int
    def __init__(self, bytes_before: _Optional[int] = ..., bytes_after: _Optional[int] = ...) -> None: ...

class CleanupRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CleanupResponse(_message.Message):
    __slots__ = ("swept",)
    SWEPT_FIELD_NUMBER: _ClassVar[int]
    swept: _containers.RepeatedCompositeFieldContainer[Swept]
    def __init__(self, swept: _Optional[_Iterable[_Union[Swept, _Mapping]]] = ...) -> None: ...

class Swept(_message.Message):
    __slots__ = ("topic", "begin", "end", "bytes", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    begin: int
    end: int
    bytes: int
    reason: str
    def __init__(self, topic: _Optional[str] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ..., bytes: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class PostLedgerRequest(_message.Message):
    __slots__ = ("document",)
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    document: str
    def __init__(self, document: _Optional[str] = ...) -> None: ...

class PostLedgerResponse(_message.Message):
    __slots__ = ("new",)
    NEW_FIELD_NUMBER: _ClassVar[int]
    new: bool
    def __init__(self, new: _Optional[bool] = ...) -> None: ...
