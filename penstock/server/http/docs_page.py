"""HTML page at /docs of the OpenAPI document. It loads nothing, so that it works offline and under a strict policy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

_STYLE = """
html { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
details { margin: .5rem 0 } summary { cursor: pointer } b { text-transform: uppercase } pre { overflow: auto }
"""


def docs_page(document: Mapping[str, Any]) -> str:
    """Return the HTML of an OpenAPI 3 document."""
    title, version = escape(document["info"]["title"]), escape(document["info"]["version"])
    operations = (_operation(path, *entry) for path, methods in document["paths"].items() for entry in methods.items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}: HTTP API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f'<h1>{title}: HTTP API, version {version}</h1><p>Machines read <a href="openapi.json">openapi.json</a>.'
        f"{''.join(operations)}</html>"
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    title = f"<b>{method}</b> <code>{escape(path)}</code> {escape(operation.get('summary', ''))}"
    parameters = "".join(map(_parameter, operation.get("parameters", ())))
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    body = f"<p>Body:</p><pre>{escape(json.dumps(schema.get('properties', {}), indent=2))}</pre>" if schema else ""
    return (
        f"<details><summary>{title}</summary><p>{escape(operation.get('description', ''))}</p>"
        f"<ul>{parameters}</ul>{body}</details>"
    )


def _parameter(parameter: Mapping[str, Any]) -> str:
    schema = parameter.get("schema", {})
    kind = " | ".join(schema.get("enum", ())) or schema.get("format") or schema.get("type", "")
    description = escape(f"{kind}, in the {parameter['in']}. {parameter.get('description', '')}")
    return f"<li><code>{escape(parameter['name'])}</code>: {description}"
