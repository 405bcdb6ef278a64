"""Full-text search in messages, landed or not."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from penstock.landing.rows.engine import sql_literal
from penstock.sql.query import Query
from penstock.sql.tables import Tables


class Match(NamedTuple):
    """A message: its position (``topic:offset``, for Kafka ``topic/partition:offset``), time, kind and payload."""

    position: str
    timestamp: datetime
    kind: str
    payload: bytes


def containing(tables: Tables, text: str, limit: int, timeout_s: float | None = None) -> list[Match]:
    """Return the newest messages whose payload, data or annotations contain ``text``, at most ``limit``.

    Raises BadQuery, also after ``timeout_s``, and what ``Query`` raises.
    """
    literal = sql_literal(text)
    position = """topic || coalesce('/' || "partition", '') || ':' || "offset\""""
    query = (
        f"SELECT {position}, timestamp, kind, coalesce(payload, encode(data), ''::BLOB) FROM landed "  # noqa: S608  quoted
        f"WHERE contains(payload::VARCHAR, encode({literal})::VARCHAR) OR contains(data, {literal}) "
        f'OR contains(annotations::VARCHAR, {literal}) ORDER BY timestamp DESC, "offset" DESC'
    )
    with Query(tables, query, timeout_s=timeout_s) as search:
        return [Match(*row.values()) for row in search.answer(limit).to_pylist()]
