"""What the description at /docs says of parameters and bodies that we read ourselves."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from penstock.config import TopicConfig


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
    _parameter("cursor", "Start where the named cursor stands.", type="string"),
    _parameter(
        "filter",
        "Only entries whose annotations match, such as (k:userid v:vip\\-[0-9]+) OR (k:important). The answer has "
        "next_offset: where to go on.",
        type="string",
    ),
]
"""At most one of offset, timestamp, position and cursor."""

BALANCE = [
    _parameter("bucket", "The minute that begins then alone (seconds since the epoch).", type="integer"),
    _parameter("since", "Minutes from then on (seconds since the epoch).", type="integer"),
    _parameter("until", "Minutes before then (seconds since the epoch).", type="integer"),
]

_ENTRY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "raw_bytes": {"type": "string", "format": "byte", "description": "The payload, in base64."},
        "protobuf": {"type": "object", "description": "Or an Any: @type and the fields of that type."},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "key": {"type": "string", "format": "byte", "description": "Partition key, in base64."},
    },
}


def _body(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"requestBody": {"content": {"application/json": {"schema": schema}}}}


def _text(description: str) -> dict[str, str]:
    return {"type": "string", "description": description}


def _names(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


APPEND = _body(
    logs={"type": "array", "items": _ENTRY},
    transaction_id=_text("Stage the entries for this transaction; its commit gives the offsets."),
    producer_id=_text("With sequence: makes a retry harmless."),
    sequence={"type": "string", "format": "uint64", "description": "Grows by one with each request to the topic."},
)
SETTINGS = _body(
    **{
        name: _names(field.description or "") if name in ("readers", "writers") else _text(field.description or "")
        for name, field in TopicConfig.model_fields.items()
    }
)
BEGIN = _body(timeout=_text("Such as 30s: aborted after it; without, the configured time."))
CURSOR = _body(offset={"type": "string", "format": "uint64", "description": "Of the next entry to read."})

_ERROR: dict[str, Any] = {
    "description": "An error: what is wrong, and gRPC's code of it.",
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"error": _text("What is wrong."), "code": {"type": "integer"}}}
        }
    },
}


def describe_errors(app: FastAPI) -> None:
    """Have the document say how errors are answered: not as FastAPI does (422), which it says of itself."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        document = made()
        for item in document["paths"].values():
            for operation in item.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = _ERROR
        document.pop("components", None)
        return document

    app.openapi = openapi  # type: ignore[method-assign]
