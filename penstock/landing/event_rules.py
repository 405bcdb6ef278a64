"""Rules for events: limits, kinds, and the reasons why a payload is not an event. ``rows.json_events`` applies them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MessageKind(StrEnum):
    """The kind of a row of the table."""

    EVENT = "event"
    SYSLOG = "syslog"
    MESSAGE = "message"
    QUARANTINE = "quarantine"
    DROPPED = "dropped"
    """A message that a transformation dropped: the row has its origin, without content."""


FOREIGN_CODECS = ("gelf", "forward", "otlp", "json", "hec", "bulk", "loki")
"""Codecs of other protocols: JSON that is not an event is an ordinary message there."""
DOCUMENT_CODECS = ("json", "bulk")
"""Codecs whose time is in the document, as ``@timestamp``."""
ID_ANNOTATIONS = {"forward": "uuid", "bulk": "uuid", "hec": "uuid", "otlp": "attributes.log.record.uid"}
"""Annotation with a message's id, by codec: messages with one id are duplicates, as events with one uuid are."""
WITH_UUID = (MessageKind.EVENT, MessageKind.MESSAGE)
"""Kinds of rows that may have a uuid, and be duplicates."""
REDACTED = "redacted"
"""The ``reason`` of a landed row that a transformation changed."""
VIEWS = {
    "events": MessageKind.EVENT,
    "syslog": MessageKind.SYSLOG,
    "messages": MessageKind.MESSAGE,
    "quarantine": MessageKind.QUARANTINE,
}
"""Names of the views, with the kind that each shows."""


class Reason(StrEnum):
    """Reasons why a payload that begins with ``{`` is not an event: the first that applies is used.

    The last one puts any payload in quarantine: a transformation failed on it.
    """

    BAD_JSON = "bad_json"
    MISSING_TYPE = "missing_type"
    BAD_TYPE = "bad_type"
    MISSING_UUID = "missing_uuid"
    BAD_UUID = "bad_uuid"
    BAD_TIMESTAMP = "bad_timestamp"
    TYPE_NOT_ALLOWED = "type_not_allowed"
    SCHEMA_NOT_MET = "schema_not_met"
    TRANSFORM_FAILED = "transform_failed"


NOT_MEANT_AS_EVENT = (Reason.BAD_JSON, Reason.MISSING_TYPE, Reason.BAD_TYPE, Reason.MISSING_UUID)
"""Reasons of payloads that were not meant as events if their sender speaks another protocol."""
MAX_TYPE_BYTES = 80
"""Limit: a type may name a table, and so a folder."""
MAX_UUID_BYTES = 256
MIN_TIMESTAMP = -62_135_596_800_000
MAX_TIMESTAMP = 253_402_300_799_999
"""Limit: years 1 to 9999 in milliseconds, which Spark, pandas and Parquet can all hold."""
UNSAFE_IN_TYPE = r"[\x00-\x1f\x7f]"
"""Control characters, which are not allowed in a type."""


@dataclass(frozen=True, slots=True)
class Event:
    """Identity of a valid event."""

    type: str
    uuid: str
