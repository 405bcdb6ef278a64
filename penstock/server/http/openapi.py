"""The OpenAPI document, and models that describe what the routes read themselves.

Nothing is read by these models (slogd takes both spellings of a name, the first of several values and any content
type), and every field may be left out.
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
    schema.pop("required", None)
    return schema


class ReadQuery(BaseModel):
    """Where to start (at most one of offset, timestamp, position and cursor), and what is wanted."""

    offset: Uint64 = Field(description="Start at this offset.")
    timestamp: str = Field(description="Start at the first entry at this time or later (RFC 3339).")
    position: Literal["UNSPECIFIED", "EARLIEST", "LATEST"] = Field(
        description="EARLIEST, or LATEST: the end; with max_messages, that many entries before it."
    )
    max_messages: Int32 = Field(description="Most entries of an answer; 0 or missing: 1,000. In a stream, of a frame.")
    cursor: str = Field(description="Start where the named cursor stands.")
    filter: str = Field(
        description="Only entries whose annotations match, such as (k:userid v:vip\\-[0-9]+) OR (k:important). "
        "The answer has next_offset: where to go on.",
    )


class SearchQuery(BaseModel):
    """What is looked for, and where (at most one of before, offset and timestamp)."""

    text: str = Field(description="Only entries with this text in their payload or annotations.")
    filter: str = Field(description="Only entries whose annotations match, as for reading.")
    before: Uint64 = Field(description="The newest ones below this offset; without: the newest.")
    offset: Uint64 = Field(description="The first ones from this offset on.")
    timestamp: str = Field(description="The first ones at this time or later (RFC 3339).")
    max_messages: Int32 = Field(description="Most entries of an answer, up to 1,000; without: 50.")


class BalanceQuery(BaseModel):
    """The minutes that are asked for."""

    bucket: int = Field(description="The minute that begins then alone (seconds since the epoch).")
    since: int = Field(description="Minutes from then on (seconds since the epoch).")
    until: int = Field(description="Minutes before then (seconds since the epoch).")


class SeriesQuery(BaseModel):
    """The stretches that are asked for."""

    since: int = Field(description="From then on (seconds since the epoch).")
    step: int = Field(description="Seconds of a stretch; without: 60.")


class EventsQuery(BaseModel):
    """Which events are asked for."""

    since: int = Field(description="Those that lasted until then or later (seconds since the epoch).")
    limit: int = Field(description="So many of the newest at most; without: 100.")


class DescribeQuery(BaseModel):
    """Which topics are described."""

    topic: str = Field(description="This topic alone; may be given several times.")


class VerifyQuery(BaseModel):
    """The range that is checked."""

    begin: int = Field(description="The first offset; without: 0.")
    end: int = Field(description="The offset behind the last one; 0 or missing: to the end.")


class Entry(BaseModel):
    """An entry to append."""

    raw_bytes: Base64 = Field(description="The payload, in base64.")
    protobuf: dict[str, Any] = Field(description="Or an Any: @type and the fields of that type.")
    annotations: dict[str, str]
    key: Base64 = Field(description="Partition key, in base64.")


class AppendBody(BaseModel):
    """Entries, and what makes their append part of a transaction or safe to retry."""

    logs: Annotated[list[Entry], WithJsonSchema({"type": "array", "items": _schema(Entry)})]
    transaction_id: str = Field(description="Stage the entries for this transaction; its commit gives the offsets.")
    producer_id: str = Field(description="With sequence: makes a retry harmless.")
    sequence: Uint64Text = Field(description="Grows by one with each request to the topic.")


class BeginBody(BaseModel):
    """A transaction's time."""

    timeout: str = Field(description="Such as 30s: aborted after it; without, the configured time.")


class CursorBody(BaseModel):
    """A cursor's place."""

    offset: Uint64Text = Field(description="Of the next entry to read.")


class LedgerPost(BaseModel):
    """What a tier has counted; the rest is the tier's own."""

    tier: str = Field(description="landed, client, event, or an auditor's own.")
    version: int = Field(description="Grows with each post; of two posts the higher one counts.")
    counts: list[dict[str, Any]] | dict[str, int] = Field(description="Absolute counts.")


class Error(BaseModel):
    """How every error is answered."""

    error: str = Field(description="What is wrong.")
    code: int = Field(description="gRPC's code of it.")


class TierQuery(BaseModel):
    """Whose counts are asked for."""

    tier: str = Field(description="landed, or what an auditor told of; without: landed.")


MODELS: dict[str, type[BaseModel]] = {
    model.__name__: model
    for model in (
        *(ReadQuery, SearchQuery, BalanceQuery, SeriesQuery, EventsQuery, DescribeQuery, VerifyQuery, TierQuery),
        *(AppendBody, BeginBody, CursorBody, LedgerPost, TopicConfig),
    )
}
_IN_PATH = re.compile(r"\{(\w+)\}")


def document(routes: Iterable[DescribedRoute]) -> dict[str, Any]:
    """The document (OpenAPI 3.1). Raises KeyError where a route names a model that is none."""
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
    identity = re.sub(r"\W", "_", f"{route.call.__name__}{route.path}")
    parameters = [*map(_path_parameter, _IN_PATH.findall(route.path)), *_query_parameters(route.query)]
    told = {
        "tags": [route.tag] if route.tag else [],
        "summary": route.summary,
        "description": inspect.getdoc(route.call) or "",
        "operationId": f"{identity}_{route.method.lower()}",
        "parameters": parameters,
        "requestBody": {"content": _content(_schema(MODELS[route.body]))} if route.body else {},
    }
    return {name: what for name, what in told.items() if what} | {"responses": _responses(route)}


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
