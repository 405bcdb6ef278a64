"""What the description at /docs says of parameters and bodies that we read ourselves."""

from __future__ import annotations

from typing import Any


def _parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


START = [
    _parameter("offset", "Start at this offset.", type="integer", format="uint64"),
    _parameter("timestamp", "Start at the first entry at this time or later (RFC 3339).", type="string"),
    _parameter(
        "position",
        "EARLIEST, or LATEST: the end; with max_messages, that many entries before it.",
        type="string",
        enum=["UNSPECIFIED", "EARLIEST", "LATEST"],
    ),
    _parameter(
        "max_messages",
        "Most entries of an answer; 0 or missing: 1,000. In a stream, of a frame.",
        type="integer",
        format="int32",
    ),
]
"""At most one of offset, timestamp and position."""

_ENTRY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "raw_bytes": {"type": "string", "format": "byte", "description": "The payload, in base64."},
        "protobuf": {"type": "object", "description": "Or an Any: @type and the fields of that type."},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "key": {"type": "string", "format": "byte", "description": "Partition key, in base64."},
    },
}

_REQUEST = {"type": "object", "properties": {"logs": {"type": "array", "items": _ENTRY}}}

APPEND = {"required": True, "content": {"application/json": {"schema": _REQUEST}}}
