"""What makes an event: its limits, and the reasons why a payload is none. ``rows.json_events`` applies them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MessageKind(StrEnum):
    """What becomes of a row in the table."""

    EVENT = "event"
    SYSLOG = "syslog"
    MESSAGE = "message"
    QUARANTINE = "quarantine"
    DROPPED = "dropped"
    """Says only that there was a message, and that a transformation dropped it."""


FOREIGN_CODECS = ("gelf", "forward", "otlp", "json", "hec", "bulk", "loki")
"""Codecs whose senders speak another protocol than events: JSON of theirs that is no event is a message."""
ID_ANNOTATIONS = {"forward": "uuid", "bulk": "uuid", "hec": "uuid", "otlp": "attributes.log.record.uid"}
"""By codec the annotation that a message is known by: of the same one the first lands, as of events with one uuid."""
WITH_UUID = (MessageKind.EVENT, MessageKind.MESSAGE)
"""Kinds of rows that may have a uuid, and be duplicates."""
REDACTED = "redacted"
"""The ``reason`` of a row that landed and was changed by a transformation."""
VIEWS = {
    "events": MessageKind.EVENT,
    "syslog": MessageKind.SYSLOG,
    "messages": MessageKind.MESSAGE,
    "quarantine": MessageKind.QUARANTINE,
}
"""Names of the views on the table, and the kind that each shows."""


class Reason(StrEnum):
    """Why a payload that begins with ``{`` is not an event; the first that holds is taken. Last, why any payload is in
    quarantine: a transformation failed on it.
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
"""Reasons of what nobody meant to be an event, where its sender speaks another protocol."""
MAX_TYPE_BYTES = 80
"""A type may name a table."""
MAX_UUID_BYTES = 256
MIN_TIMESTAMP = -62_135_596_800_000
MAX_TIMESTAMP = 253_402_300_799_999
"""Years 1 to 9999 in milliseconds: what Spark, pandas and Parquet can all hold."""
UNSAFE_IN_TYPE = r"[\x00-\x1f\x7f]"
"""Control characters."""


@dataclass(frozen=True, slots=True)
class Event:
    """A valid event's identity."""

    type: str
    uuid: str
