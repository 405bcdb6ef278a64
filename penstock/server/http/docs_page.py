"""The page at /docs: the HTTP API described, made from its OpenAPI document. Nothing is loaded from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_METHODS = ("get", "put", "post", "patch", "delete")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 small { font-weight: normal; color: #666 }
h2 { border-bottom: 1px solid #ddd; margin-top: 2.5rem }
details { border: 1px solid #ddd; border-radius: 4px; margin: .5rem 0; padding: .4rem .8rem }
summary { cursor: pointer }
code, pre { font: 13px/1.4 ui-monospace, monospace; background: #f6f6f6 }
pre { padding: .6rem; overflow: auto }
b.get { color: #1a6 } b.post { color: #15b } b.put, b.patch { color: #a60 } b.delete { color: #b22 }
td { padding: .1rem .8rem .1rem 0; vertical-align: top }
@media (prefers-color-scheme: dark) { body { background: #1c1c1c; color: #ddd } code, pre { background: #2a2a2a } }
"""


def docs_page(document: Mapping[str, Any]) -> str:
    """HTML of an OpenAPI 3 document."""
    title, version = escape(document["info"]["title"]), escape(document["info"]["version"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}: HTTP API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{title} <small>HTTP API, version {version}</small></h1>"
        f'<p>Machines read <a href="openapi.json">openapi.json</a>.'
        f"{''.join(_groups(document))}</html>"
    )


def _groups(document: Mapping[str, Any]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for path, item in document.get("paths", {}).items():
        for method in _METHODS:
            if method in item:
                group = (item[method].get("tags") or ["log"])[0]
                groups.setdefault(group, []).append(_operation(path, method, item[method], document))
    for name, operations in groups.items():
        yield f"<h2>{escape(name)}</h2>{''.join(operations)}"


def _operation(path: str, method: str, operation: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    summary, told = operation.get("summary", ""), operation.get("description", "")
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    title = f"<b class={method}>{method.upper()}</b> <code>{escape(path)}</code> {escape(summary)}"
    return (
        f"<details><summary>{title}</summary>"
        f"<p>{escape(told)}</p>{_parameters(operation)}{_schema(body, document) if body else ''}</details>"
    )


def _parameters(operation: Mapping[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(p['name'])}</code><td>{escape(p['in'])}<td>{escape(str(_type(p)))}"
        f"<td>{escape(p.get('description', ''))}"
        for p in operation.get("parameters", ())
    ]
    return f"<table>{''.join(rows)}</table>" if rows else ""


def _type(parameter: Mapping[str, Any]) -> Any:
    schema = parameter.get("schema", {})
    return " | ".join(schema["enum"]) if "enum" in schema else schema.get("format") or schema.get("type", "")


def _schema(schema: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return f"<p>Body:</p><pre>{escape(json.dumps(schema, indent=2))}</pre>"
