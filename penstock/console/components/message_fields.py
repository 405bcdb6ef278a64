"""JSON messages as columns: their fields by path, conditions on fields, and a text marked in HTML.

Invariant: payloads are untrusted; every text is escaped, and the number and length of fields are limited.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any

from penstock.console.components.message_view import payload, preview
from penstock.console.wording import exact

MAX_PARSED_BYTES = 256 << 10
"""A page parses fifty messages each second while it follows a topic; a larger one is shown as text."""
MAX_FIELDS, MAX_DEPTH = 200, 4
MAX_COLUMNS = 16
MAX_FIELD_CHARS, MAX_VALUE_CHARS = 80, 1000
FIELD_SEPARATOR = "."
_HAS_ONE_SPELLING = re.compile(r"-?\d+|[\w -]*[A-Za-z_][\w -]*", re.ASCII)


def read_fields(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a message by path, such as ``data.user``; empty unless it is a JSON object."""
    raw = payload(dict(entry))
    if len(raw) > MAX_PARSED_BYTES or raw.lstrip()[:1] != b"{":
        return {}
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):  # not JSON, or nested deeper than Python's parser allows
        return {}
    fields: dict[str, str] = {}
    if isinstance(document, dict):
        _add_fields(document, "", 1, fields)
    return fields


def _add_fields(document: Mapping[str, Any], prefix: str, depth: int, fields: dict[str, str]) -> None:
    for name, member in document.items():
        if len(fields) >= MAX_FIELDS:
            return
        path = prefix + name
        if isinstance(member, dict) and member and depth < MAX_DEPTH:
            _add_fields(member, path + FIELD_SEPARATOR, depth + 1, fields)
        else:
            fields[path] = member if isinstance(member, str) else json.dumps(member, ensure_ascii=False)


def common_fields(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the paths that most rows have, in the order of their first appearance."""
    counts = Counter(path for row in rows for path in row)
    order = {path: position for position, path in enumerate(counts)}
    return sorted(sorted(counts, key=lambda path: (-counts[path], order[path]))[:MAX_COLUMNS], key=order.__getitem__)


def parse_condition(text: str) -> tuple[str, str] | None:
    """Return the path and the value of ``path=value``; None if ``text`` is not a condition."""
    path, equals, value = text.partition("=")
    return (path.strip(), value.strip()) if equals and path.strip() else None


def meets(entry: Mapping[str, Any], conditions: Mapping[str, str]) -> bool:
    """Report whether a message has each of these fields with exactly this value."""
    fields = read_fields(entry) if conditions else {}
    return all(fields.get(path) == value for path, value in conditions.items())


def text_to_search(conditions: Mapping[str, str]) -> str:
    """Return a text that each message contains which meets the conditions; "" if none is certain."""
    # JSON may spell one value in several ways: quotes, slashes and other scripts as escapes, 1000.0 as 1e3.
    return max(filter(_HAS_ONE_SPELLING.fullmatch, conditions.values()), key=len, default="")


def mark_text(text: str, mark: str) -> str:
    """Return ``text`` as HTML with each occurrence of ``mark`` highlighted; case matters, as in a search."""
    if not mark:
        return escape(text)
    return f"<mark>{escape(mark)}</mark>".join(map(escape, text.split(mark)))


def columns_html(
    entries: Sequence[Mapping[str, Any]], mark: str, chosen: str, conditions: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return messages as a table with a column per JSON field; ``chosen`` is the offset of the open one.

    ``mark`` is highlighted everywhere, and the values of ``conditions`` in their columns.
    """
    rows = [read_fields(entry) for entry in entries]
    paths = common_fields(rows)
    heads = '<th class="n">offset</th><th class="n">time (UTC)</th>' + "".join(
        f"<th>{escape(path)}</th>" for path in paths or ["message"]
    )
    body = "".join(
        f'<tr data-offset="{escape(entry["offset"])}"{_chosen(entry, chosen)}>'
        f'<td class="n"><button class="link" data-offset="{escape(entry["offset"])}">{exact(int(entry["offset"]))}'
        f'</button></td><td class="n">{escape(entry["timestamp"][11:23].rstrip("Z"))}</td>'
        + (
            "".join(_cell(row.get(path, ""), conditions.get(path, mark)) for path in paths)
            if row
            else _text_cell(entry, mark, len(paths))
        )
        + "</tr>"
        for entry, row in zip(entries, rows, strict=True)
    )
    return f'<table class="data fields"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'


def _chosen(entry: Mapping[str, Any], chosen: str) -> str:
    return ' class="chosen"' if entry["offset"] == chosen else ""


def _cell(text: str, mark: str) -> str:
    shown = text if len(text) <= MAX_FIELD_CHARS else f"{text[:MAX_FIELD_CHARS]}..."
    return f"<td>{mark_text(shown, mark)}</td>"


def _text_cell(entry: Mapping[str, Any], mark: str, columns: int) -> str:
    return f'<td colspan="{max(columns, 1)}">{mark_text(preview(dict(entry)), mark)}</td>'


def fields_html(entry: Mapping[str, Any], conditions: Collection[str]) -> str:
    """Return the fields of one message, each with a button that selects messages with the same value."""
    fields = read_fields(entry)
    if not fields:
        return '<div class="dim">This message is not a JSON object.</div>'
    rows = "".join(
        f"<tr><td>{escape(path)}</td><td><code>{escape(value[:MAX_VALUE_CHARS])}</code></td>"
        f"<td>{'selected' if path in conditions else _only_button(path, value)}</td></tr>"
        for path, value in fields.items()
    )
    heads = "<thead><tr><th>field</th><th>value</th><th>messages</th></tr></thead>"
    return f'<div class="wide"><table class="data">{heads}<tbody>{rows}</tbody></table></div>'


def _only_button(path: str, value: str) -> str:
    if len(value) > MAX_VALUE_CHARS:
        return ""
    label = escape(f"only messages with {path} {value}")
    return f'<button class="link" data-condition="{escape(f"{path}={value}")}" aria-label="{label}">only these</button>'
