"""Types of PostgreSQL for the types of DuckDB."""

from __future__ import annotations

import pytest

from penstock.sql.postgres.types import column


@pytest.mark.parametrize(
    ("duckdb_type", "name", "modifier"),
    [
        ("BIGINT", "int8", -1),
        ("UTINYINT", "int2", -1),
        ("HUGEINT", "numeric", -1),
        ("DECIMAL(12,4)", "numeric", (12 << 16 | 4) + 4),
        ("VARCHAR[]", "_text", -1),
        ("INTEGER[3]", "_int4", -1),
        ("VARCHAR[][]", "json", -1),
        ("STRUCT(a INTEGER)", "json", -1),
        ("MAP(VARCHAR, INTEGER)", "json", -1),
        ("ENUM('a', 'b')", "text", -1),
        ('"NULL"', "text", -1),
        ("SOMETHING NEW", "json", -1),
    ],
)
def test_type_of_duckdb_has_a_type_of_postgresql(duckdb_type: str, name: str, modifier: int) -> None:
    answered = column("c", duckdb_type)
    assert (answered.kind.name, answered.modifier) == (name, modifier)
