"""Messages that have a text in them, wherever they are."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from penstock.landing.rows.engine import quoted
from penstock.sql.query import Query
from penstock.sql.tables import Tables


class Found(NamedTuple):
    """A message: its place (``topic:offset``, of Kafka ``topic/partition:offset``), when it was stored, its kind."""

    place: str
    timestamp: datetime
    kind: str
    payload: bytes


def containing(tables: Tables, text: str, limit: int, seconds: float | None = None) -> list[Found]:
    """The newest messages whose payload or annotations have ``text``, at most ``limit``.

    Raises BadQuery, also after ``seconds``, and what ``Query`` raises.
    """
    wanted = quoted(text)
    place = """topic || coalesce('/' || "partition", '') || ':' || "offset\""""
    query = (
        f"SELECT {place}, timestamp, kind, coalesce(payload, encode(data), ''::BLOB) FROM landed "  # noqa: S608  quoted
        f"WHERE contains(payload::VARCHAR, encode({wanted})::VARCHAR) OR contains(data, {wanted}) "
        f'OR contains(annotations::VARCHAR, {wanted}) ORDER BY timestamp DESC, "offset" DESC'
    )
    with Query(tables, query, seconds=seconds) as asked:
        return [Found(*row.values()) for row in asked.answer(limit).to_pylist()]
