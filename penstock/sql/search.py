"""Full-text search in messages, landed or not."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from penstock.landing.rows.engine import sql_literal
from penstock.log.read.filters import written_forms
from penstock.sql.query import Query
from penstock.sql.tables import Tables

_SIGNS_OF_ESCAPES = tuple("x0123456789ABCDEF")
r"""Signs in ``\xHH``, as which DuckDB writes quotes and all bytes that are not ASCII: a text may begin within one."""
MAX_PATTERN_BYTES = 1000


class Match(NamedTuple):
    """A message: its position (``topic:offset``, for Kafka ``topic/partition:offset``), time, kind and payload."""

    position: str
    timestamp: datetime
    kind: str
    payload: bytes


def containing(tables: Tables, text: str, limit: int, timeout_s: float | None = None) -> list[Match]:
    """Return the newest messages whose payload or data, also as JSON, or annotations contain ``text``; up to ``limit``.

    Raises BadQuery, also after ``timeout_s``, and what ``Query`` raises.
    """
    forms = sorted(written_forms(text))
    conditions = [*map(_is_in_payload, forms), *(f"contains(data, {sql_literal(form)})" for form in forms)]
    conditions.append(f"contains(annotations::VARCHAR, {sql_literal(text)})")
    position = """topic || coalesce('/' || "partition", '') || ':' || "offset\""""
    query = (
        f"SELECT {position}, timestamp, kind, coalesce(payload, encode(data), ''::BLOB) FROM landed "  # noqa: S608  quoted
        f'WHERE {" OR ".join(conditions)} ORDER BY timestamp DESC, "offset" DESC'
    )
    with Query(tables, query, timeout_s=timeout_s) as search:
        return [Match(*row.values()) for row in search.answer(limit).to_pylist()]


def _is_in_payload(text: str) -> str:
    condition = f"contains(payload::VARCHAR, encode({sql_literal(text)})::VARCHAR)"
    if not text.startswith(_SIGNS_OF_ESCAPES):
        return condition
    # Limit: only the start of a long text is looked for at a byte's begin.
    start = text.encode()[:MAX_PATTERN_BYTES].hex().upper()
    return f"({condition} AND regexp_matches(hex(payload), '^(?:..)*{start}'))"
