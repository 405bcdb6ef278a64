"""A server for clients of PostgreSQL over the rows of a log, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from penstock.config import Settings
from penstock.sql.postgres.server import Server
from tests.spark.spark_helpers import append, event


def fill(topics: Path) -> None:
    append(topics, "t", [event(0), event(1), b"plain"])
    append(topics, "secret", [event(2)])


@contextmanager
def serving(folder: Path, **keys: Any) -> Iterator[Server]:
    """Serve the topics of a folder; ``sql`` and ``security`` are groups of keys."""
    sql = {"postgres": "127.0.0.1:0", "timeout": 120, **keys.pop("sql", {})}
    server = Server(Settings.model_validate({"data_dir": str(folder), "sql": sql, **keys}))
    server.start()
    try:
        yield server
    finally:
        server.close()


def connect(server: Server, **options: Any) -> psycopg.Connection[Any]:
    host, port = server.address
    return psycopg.connect(
        host=host,
        port=port,
        **{"user": "ann", "dbname": "penstock", "autocommit": True, "connect_timeout": 60, **options},
    )


def simple(connection: psycopg.Connection[Any], text: str) -> list[tuple[Any, ...]]:
    """Return the rows of a simple query."""
    with psycopg.ClientCursor(connection) as cursor:
        return cursor.execute(text).fetchall()
