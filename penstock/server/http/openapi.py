"""The OpenAPI document, and models of requests that the routes parse themselves.

The models only describe: slogd accepts both spellings of a name, the first of several values and any content type, and
every field may be omitted.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from penstock import __version__
from penstock.config import TopicConfig
from penstock.server.http.described_routes import JSON, DescribedRoute

Int32 = Annotated[int, WithJsonSchema({"type": "integer", "format": "int32"})]
Uint64 = Annotated[int, WithJsonSchema({"type": "integer", "format": "uint64"})]
Uint64Text = Annotated[str, WithJsonSchema({"type": "string", "format": "uint64"})]
Base64 = Annotated[str, WithJsonSchema({"type": "string", "format": "byte"})]


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    # All fields may be omitted, see the module.
    schema.pop("required", None)
    return schema


class ReadQuery(BaseModel):
    """Start (at most one of offset, timestamp, position and cursor) and selection of entries."""

    offset: Uint64 = Field(description="Start at this offset.")
    timestamp: str = Field(description="Start at the first entry at this time or later (RFC 3339).")
    position: Literal["UNSPECIFIED", "EARLIEST", "LATEST"] = Field(
        description="EARLIEST, or LATEST: the end; with max_messages, that many entries before it."
    )
    max_messages: Int32 = Field(
        description="Maximum entries of an answer, in a stream of a frame; 0 or missing: 1,000."
    )
    cursor: str = Field(description="Start at the offset of this cursor.")
    filter: str = Field(
        description="Only entries whose annotations match, such as (k:userid v:vip\\-[0-9]+) OR (k:important). "
        "The answer has next_offset, at which to continue.",
    )


class SearchQuery(BaseModel):
    """Text to search and range (at most one of before, offset and timestamp)."""

    text: str = Field(description="Only entries with this text in their payload or annotations.")
    filter: str = Field(description="Only entries whose annotations match, as for reading.")
    before: Uint64 = Field(description="The newest entries below this offset; default: the newest of all.")
    offset: Uint64 = Field(description="The first entries from this offset on.")
    timestamp: str = Field(description="The first entries at this time or later (RFC 3339).")
    max_messages: Int32 = Field(description="Maximum entries of an answer, up to 1,000; default: 50.")


class BalanceQuery(BaseModel):
    """Minutes of the balance."""

    bucket: int = Field(description="Only the minute that begins then (seconds since the epoch).")
    since: int = Field(description="Minutes from this time on (seconds since the epoch).")
    until: int = Field(description="Minutes before this time (seconds since the epoch).")


class SeriesQuery(BaseModel):
    """Start and step of the balance over time."""

    since: int = Field(description="Start (seconds since the epoch).")
    step: int = Field(description="Seconds of a step; default: 60.")


class SendersQuery(BaseModel):
    """Selection of senders."""

    listener: str = Field(description="Only senders of this listener.")
    search: str = Field(description="Only senders with this text in their address or name.")
    limit: int = Field(description="Maximum number of senders of a listener; default: all.")


class EventsQuery(BaseModel):
    """Range and number of events."""

    since: int = Field(description="Events that ended at this time or later (seconds since the epoch).")
    limit: int = Field(description="Maximum number of events; default: 100.")


class DescribeQuery(BaseModel):
    """Topics to describe."""

    topic: str = Field(description="Only this topic; may be repeated.")


class VerifyQuery(BaseModel):
    """Range to verify."""

    begin: int = Field(description="First offset; default: 0.")
    end: int = Field(description="Offset behind the last one; 0 or missing: the end of the topic.")


class Entry(BaseModel):
    """An entry to append."""

    raw_bytes: Base64 = Field(description="The payload, in base64.")
    protobuf: dict[str, Any] = Field(description="Or an Any: @type and the fields of that type.")
    annotations: dict[str, str]
    key: Base64 = Field(description="Partition key, in base64.")


class AppendBody(BaseModel):
    """Entries, and fields that make the append part of a transaction or safe to retry."""

    logs: Annotated[list[Entry], WithJsonSchema({"type": "array", "items": _schema(Entry)})]
    transaction_id: str = Field(description="Stage the entries for this transaction; its commit gives the offsets.")
    producer_id: str = Field(description="With sequence: makes a retry harmless.")
    sequence: Uint64Text = Field(description="Grows by one with each request to the topic.")


class BeginBody(BaseModel):
    """Timeout of a transaction."""

    timeout: str = Field(
        description="Time after which the transaction is aborted, such as 30s; default: the configured time."
    )


class CursorBody(BaseModel):
    """Position of a cursor."""

    offset: Uint64Text = Field(description="Offset of the next entry to read.")


class LedgerPost(BaseModel):
    """Counts of a tier; other fields depend on the tier."""

    tier: str = Field(description="landed, client, event, or an auditor's own.")
    version: int = Field(description="Grows with each post; the highest version counts.")
    counts: list[dict[str, Any]] | dict[str, int] = Field(description="Absolute counts.")


class AcknowledgeBody(BaseModel):
    """Alarms to acknowledge."""

    labels: dict[str, str] = Field(description="Labels that the alarms have; default: all alarms of the rule.")
    note: str = Field(description="Why, for others.")
    by: str = Field(description="Who; with a token it is the token's name.")


class MuteBody(BaseModel):
    """Time and labels of a mute."""

    until: float = Field(description="End (seconds since the epoch); a time in the past unmutes.")
    labels: dict[str, str] = Field(description="Labels that the alarms have; default: all alarms of the rule.")
    note: str = Field(description="Why, for others.")
    by: str = Field(description="Who; with a token it is the token's name.")


class ChangesQuery(BaseModel):
    """Number of changes."""

    limit: int = Field(description="Maximum number of changes; default: 100.")


class Error(BaseModel):
    """Answer to every refused request."""

    error: str = Field(description="Reason of the refusal.")
    code: int = Field(description="gRPC status code.")


class TierQuery(BaseModel):
    """Tier whose counts are returned."""

    tier: str = Field(description="landed, or the tier of an auditor; default: landed.")


MODELS: dict[str, type[BaseModel]] = {
    model.__name__: model
    for model in (
        *(
            ReadQuery,
            SearchQuery,
            BalanceQuery,
            SeriesQuery,
            EventsQuery,
            SendersQuery,
            DescribeQuery,
            VerifyQuery,
            TierQuery,
        ),
        *(AppendBody, BeginBody, CursorBody, LedgerPost, TopicConfig, AcknowledgeBody, MuteBody, ChangesQuery),
    )
}
_IN_PATH = re.compile(r"\{(\w+)\}")


def document(routes: Iterable[DescribedRoute]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document. Raises KeyError if a route names a missing model."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": __version__},
        "paths": paths,
        "components": {"schemas": {"Error": Error.model_json_schema()}},
    }


def _operation(route: DescribedRoute) -> dict[str, Any]:
    # Generated clients name functions by the operation id, so it must not change with a summary.
    identity = re.sub(r"\W", "_", f"{route.call.__name__}{route.path}")
    parameters = [*map(_path_parameter, _IN_PATH.findall(route.path)), *_query_parameters(route.query)]
    operation = {
        "tags": [route.tag] if route.tag else [],
        "summary": route.summary,
        "description": inspect.getdoc(route.call) or "",
        "operationId": f"{identity}_{route.method.lower()}",
        "parameters": parameters,
        "requestBody": {"content": _content(_schema(MODELS[route.body]))} if route.body else {},
    }
    return {name: content for name, content in operation.items() if content} | {"responses": _responses(route)}


def _responses(route: DescribedRoute) -> dict[str, Any]:
    good = {} if route.media_type == JSON else {"type": "string"}
    error = {"$ref": "#/components/schemas/Error"}
    return {
        str(route.status): {"description": "Successful Response", "content": _content(good, route.media_type)},
        "default": {"description": "An error.", "content": _content(error)},
    }


def _content(schema: dict[str, Any], media_type: str = JSON) -> dict[str, Any]:
    return {media_type: {"schema": schema}}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "title": name.title()}}


def _query_parameters(model: str) -> list[dict[str, Any]]:
    properties = _schema(MODELS[model])["properties"] if model else {}
    return [
        {"name": name, "in": "query", "required": False, "description": schema.pop("description"), "schema": schema}
        for name, schema in properties.items()
    ]
