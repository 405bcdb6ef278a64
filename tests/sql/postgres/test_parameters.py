"""Parameters of clients as literals."""

from __future__ import annotations

import contextlib
import struct
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.postgres.parameters import BadParameter, literal, split_array
from penstock.sql.postgres.types import (
    BINARY_FORMAT,
    BY_OID,
    BYTEA,
    FLOAT8,
    INT4,
    INT8,
    NUMERIC,
    TEXT,
    TEXT_FORMAT,
    TIME,
    TIMESTAMP,
)

DUCKDB = duckdb.connect(":memory:")
OIDS = st.sampled_from([0, *BY_OID, 99_999])


@given(OIDS, st.sampled_from([TEXT_FORMAT, BINARY_FORMAT]), st.binary(max_size=40) | st.none())
def test_any_parameter_is_one_literal_or_refused(oid: int, form: int, parameter: bytes | None) -> None:
    try:
        text = literal(oid, form, parameter)
    except BadParameter:
        return
    # Neither ends the literal early nor begins another statement: DuckDB reads one value, or refuses the cast.
    (statement,) = duckdb.extract_statements(f"SELECT {text} AS v")
    assert statement.type == duckdb.StatementType.SELECT
    try:
        relation = DUCKDB.sql(f"SELECT {text} AS v, 7 AS last")
        assert relation.columns == ["v", "last"]
    except duckdb.Error:
        pass


@pytest.mark.parametrize(
    ("oid", "form", "parameter", "expected"),
    [
        (0, TEXT_FORMAT, b"it's", "it's"),
        (TEXT.oid, BINARY_FORMAT, "ä".encode(), "ä"),
        (INT4.oid, BINARY_FORMAT, struct.pack("!i", -5), -5),
        (INT8.oid, TEXT_FORMAT, b"12", 12),
        (FLOAT8.oid, BINARY_FORMAT, struct.pack("!d", 0.1), 0.1),
        (BYTEA.oid, TEXT_FORMAT, b"\\x00ff", b"\x00\xff"),
        (BYTEA.oid, TEXT_FORMAT, b"a\\\\b\\000\\377", b"a\\b\x00\xff"),
        (BYTEA.oid, BINARY_FORMAT, b"'\0", b"'\0"),
        (NUMERIC.oid, TEXT_FORMAT, b"-1.50", Decimal("-1.50")),
        (NUMERIC.oid, TEXT_FORMAT, b"1e200", 1e200),
        (NUMERIC.oid, BINARY_FORMAT, struct.pack("!HhHHHH", 2, 0, 0, 2, 12, 3400), Decimal("12.34")),
        (INT4.array_oid, TEXT_FORMAT, b"{1,NULL,3}", [1, None, 3]),
        (TEXT.array_oid, TEXT_FORMAT, b'{"a,b",null,"NULL"}', ["a,b", None, "NULL"]),
        (INT4.oid, TEXT_FORMAT, None, None),
    ],
)
def test_parameter_is_the_value_that_the_client_sent(
    oid: int, form: int, parameter: bytes | None, expected: Any
) -> None:
    assert DUCKDB.sql(f"SELECT {literal(oid, form, parameter)}").fetchall() == [(expected,)]


@pytest.mark.parametrize(
    ("oid", "parameter"),
    [
        (INT4.oid, b"123"),
        (NUMERIC.oid, struct.pack("!HhHH", 1, 0, 0xC000, 0)),
        (NUMERIC.oid, struct.pack("!HhHH", 60_000, 0, 0, 0)),
        (NUMERIC.oid, struct.pack("!HhHHH", 1, 30_000, 0, 0, 1)),
        (INT4.array_oid, struct.pack("!iIIii", 2, 0, INT4.oid, 1, 1)),
        (INT4.array_oid, struct.pack("!iIIiii", 1, 0, INT4.oid, 1, 1, 1 << 30)),
        (TIMESTAMP.oid, struct.pack("!q", (1 << 63) - 1)),
        (TEXT.oid, b"\xff"),
        (TEXT.oid, b"a\0b"),
    ],
)
def test_damaged_parameter_is_refused(oid: int, parameter: bytes) -> None:
    with pytest.raises(BadParameter):
        literal(oid, BINARY_FORMAT, parameter)


@given(st.lists(st.none() | st.text("ab ,{}\\\"'NUL", max_size=5), min_size=1, max_size=5))
def test_array_is_read_as_it_is_written(elements: list[str | None]) -> None:
    written = [
        "NULL" if element is None else '"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for element in elements
    ]
    expected = [None if element is None else element.encode() for element in elements]
    assert split_array("{" + ",".join(written) + "}") == expected


@given(st.text('{},"\\ abN1', max_size=20))
def test_any_text_is_an_array_or_refused(text: str) -> None:
    with contextlib.suppress(BadParameter):
        split_array("{" + text + "}")


def test_end_of_a_day_is_not_its_beginning() -> None:
    assert literal(TIME.oid, BINARY_FORMAT, struct.pack("!q", 24 * 3600 * 1_000_000)) == "CAST('24:00:00' AS TIME)"
    with pytest.raises(BadParameter, match="between 00:00:00 and 24:00:00"):
        literal(TIME.oid, BINARY_FORMAT, struct.pack("!q", -1))


def test_group_of_digits_of_a_numeric_is_checked() -> None:
    """cockroachdb/cockroach#169086."""
    with pytest.raises(BadParameter, match="9999"):
        literal(NUMERIC.oid, BINARY_FORMAT, struct.pack("!HhHHH", 1, 0, 0, 0, 12_345))
