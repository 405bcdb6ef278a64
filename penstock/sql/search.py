"""Full-text search in messages, landed or not."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from penstock.landing.rows.engine import sql_literal
from penstock.log.read.filters import written_forms
from penstock.sql.query import Query
from penstock.sql.tables import Tables


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
    literals = [sql_literal(form) for form in sorted(written_forms(text))]
    conditions = [f"contains(payload::VARCHAR, encode({form})::VARCHAR) OR contains(data, {form})" for form in literals]
    conditions.append(f"contains(annotations::VARCHAR, {sql_literal(text)})")
    position = """topic || coalesce('/' || "partition", '') || ':' || "offset\""""
    query = (
        f"SELECT {position}, timestamp, kind, coalesce(payload, encode(data), ''::BLOB) FROM landed "  # noqa: S608  quoted
        f'WHERE {" OR ".join(conditions)} ORDER BY timestamp DESC, "offset" DESC'
    )
    with Query(tables, query, timeout_s=timeout_s) as search:
        return [Match(*row.values()) for row in search.answer(limit).to_pylist()]
