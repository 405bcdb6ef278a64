"""The reference pages of the HTTP and gRPC APIs, from their own descriptions."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.config import Settings

PROTO = Path(__file__).parents[2] / "slogd" / "slogd.proto"
TAGS = {
    "log": "Entries",
    "topics": "Topics",
    "transactions": "Transactions",
    "cursors": "Cursors",
    "ledger": "Ledger",
    "alarms": "Alarms and changes",
}
OTHER_ROUTES = "Watching"
"""Heading of routes without a tag."""
HTTP_INTRODUCTION = """# HTTP

The log daemon serves JSON over HTTP at `log.http` (127.0.0.1:8844). A running daemon shows this reference at `/docs`,
and for programs at `/openapi.json`. With `security.tokens`, all other requests need `Authorization: Bearer TOKEN`, with
a token that has the [right](security.md) to the request.

Errors are `{"error": "what is wrong", "code": 5}` with gRPC's code: 400 (3), 401 (16), 403 (7), 404 (5), 409 (6, 10),
412 (9), 429 (8), 500 (13, 15), 503 (14). Numbers of 64 bits are strings and bytes are base64, as in protobuf's JSON.
The same calls by gRPC: [gRPC](grpc.md)."""
GRPC_INTRODUCTION = """# gRPC

The log daemon serves the service `slogd.StructuredLog` at `log.grpc` (127.0.0.1:8845), with reflection (`v1` and
`v1alpha`) and `grpc.health.v1.Health`. With `security.tokens`, each call needs the metadata `authorization: Bearer
TOKEN`, with a token that has the [right](security.md) to the call; health and reflection are open unless configured
otherwise. The client for Python is `penstock.client.Log`; for other languages, generate one from
`penstock/slogd/slogd.proto`. The same calls by HTTP: [HTTP](http.md)."""
_RPC = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);")


def http_page() -> str:
    """Return the page of the HTTP API as Markdown."""
    groups: dict[str, list[str]] = {}
    for path, item in _openapi_document()["paths"].items():
        for method, operation in item.items():
            heading = _heading(path, operation)
            groups.setdefault(heading, []).extend(_operation(method.upper(), path, operation))
    headings = [*TAGS.values(), OTHER_ROUTES]
    ordered = sorted(groups.items(), key=lambda group: headings.index(group[0]))
    return "\n".join([HTTP_INTRODUCTION, *(line for head, lines in ordered for line in (f"\n## {head}", *lines)), ""])


def _openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of a daemon with an empty log."""
    from penstock.files.change_log import ChangeLog
    from penstock.ledger.ledger import Ledger
    from penstock.log import Log
    from penstock.server.alarms.register import AlarmRegister
    from penstock.server.api.entries import EntriesApi
    from penstock.server.api.monitoring import MonitoringApi
    from penstock.server.http.monitoring_routes import monitoring_routes
    from penstock.server.http.openapi import document
    from penstock.server.http.operator_routes import operator_routes
    from penstock.server.http.routes import daemon_routes

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        log = Log(settings.topics)
        reports = MonitoringApi(settings, log, Ledger(log, settings.buffers, []))
        routes = daemon_routes(EntriesApi(log), stat=reports.stat, metrics=reports.metrics, balance=reports.balance)
        register = AlarmRegister(settings.data_dir / "alarms.state", None, log.clock.expected)
        operators = operator_routes(register, ChangeLog(settings.data_dir))
        log.close()
    return document([*routes, *monitoring_routes(reports), *operators])


def _heading(path: str, operation: Mapping[str, Any]) -> str:
    tags = operation.get("tags")
    if tags:
        return TAGS[tags[0]]
    return TAGS["log"] if path.startswith("/topic") else OTHER_ROUTES


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n### `{method} {path}`\n"
    summary, description = operation["summary"].rstrip("."), operation.get("description", "").strip().rstrip(".")
    yield f"{summary}." if description.lower() in ("", summary.lower()) else f"{summary}. {description}."
    rows = [_row(each["name"], _parameter_type(each), each) for each in operation.get("parameters", ())]
    if rows:
        yield from ("\n| parameter | type | meaning |", "| --- | --- | --- |", *rows)
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if properties := schema.get("properties"):
        yield from ("\n| in the body | type | meaning |", "| --- | --- | --- |", *_properties(properties, ""))


def _properties(properties: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, schema in properties.items():
        yield _row(prefix + name, _type(schema), schema)
        inner = schema.get("items", {}).get("properties")
        if inner:
            yield from _properties(inner, f"{prefix}{name}[].")


def _row(name: str, kind: str, described: Mapping[str, Any]) -> str:
    meaning = described.get("description", "").replace("|", "\\|")
    return f"| `{name}` | {kind} | {meaning} |"


def _parameter_type(parameter: Mapping[str, Any]) -> str:
    kind = _type(parameter.get("schema", {}))
    return (
        f"{kind}, in the path" if parameter["in"] == "path" else f"{kind}, required" if parameter["required"] else kind
    )


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    return str(schema.get("format") or schema.get("type", ""))


def grpc_page(proto: str = "") -> str:
    """Return the page of the gRPC API as Markdown; ``proto`` is the text of its file."""
    text = proto or PROTO.read_text()
    head, _, rest = text.partition("service StructuredLog {\n")
    service, _, messages = rest.partition("\n}\n")
    lines = [GRPC_INTRODUCTION, "\n## Calls\n", "| call | request | answer | meaning |", "| --- | --- | --- | --- |"]
    lines += [*_calls(service), "\n## By HTTP\n", "```text", *_by_http(head), "```"]
    return "\n".join([*lines, "\n## Messages\n", "```proto", messages.strip(), "```", ""])


def _calls(service: str) -> Iterator[str]:
    comment: list[str] = []
    for line in map(str.strip, service.splitlines()):
        if match := _RPC.fullmatch(line):
            name, streams_request, request, streams_answer, answer = match.groups()
            types = [
                f"{'stream of ' if many else ''}`{kind}`"
                for many, kind in ((streams_request, request), (streams_answer, answer))
            ]
            yield f"| `{name}` | {types[0]} | {types[1]} | {' '.join(comment)} |"
        comment = [*comment, line.removeprefix("// ")] if line.startswith("//") else []


def _by_http(head: str) -> Iterator[str]:
    """Yield the calls that the comment before the file's first statement lists."""
    for line in head.partition("syntax")[0].splitlines():
        if line.startswith("//   "):
            yield line.removeprefix("//   ")
