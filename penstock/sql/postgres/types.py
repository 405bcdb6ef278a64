"""Types of PostgreSQL that clients see, and the type for each of DuckDB's types.

``rows`` encodes values of these types as messages, ``parameters`` reads the values that a client sends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TEXT_FORMAT, BINARY_FORMAT = 0, 1
NO_MODIFIER = -1
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_ARRAY_END = re.compile(r"\[\d*\]$")
NUMERIC_BASE = 10_000
"""Base of the digits of a binary numeric."""


@dataclass(frozen=True, slots=True)
class PgType:
    """A type of PostgreSQL; ``duckdb`` is the type of the same values, ``size`` in bytes or -1."""

    name: str
    oid: int
    array_oid: int
    size: int
    category: str
    long_name: str
    duckdb: str
    element: PgType | None = None

    @property
    def array(self) -> PgType:
        """Return the type of arrays of this type."""
        return PgType(f"_{self.name}", self.array_oid, 0, -1, "A", "ARRAY", f"{self.duckdb}[]", self)


BOOL = PgType("bool", 16, 1000, 1, "B", "boolean", "BOOLEAN")
BYTEA = PgType("bytea", 17, 1001, -1, "U", "bytea", "BLOB")
INT8 = PgType("int8", 20, 1016, 8, "N", "bigint", "BIGINT")
INT2 = PgType("int2", 21, 1005, 2, "N", "smallint", "SMALLINT")
INT4 = PgType("int4", 23, 1007, 4, "N", "integer", "INTEGER")
TEXT = PgType("text", 25, 1009, -1, "S", "text", "VARCHAR")
JSON = PgType("json", 114, 199, -1, "U", "json", "JSON")
FLOAT4 = PgType("float4", 700, 1021, 4, "N", "real", "FLOAT")
FLOAT8 = PgType("float8", 701, 1022, 8, "N", "double precision", "DOUBLE")
DATE = PgType("date", 1082, 1182, 4, "D", "date", "DATE")
TIME = PgType("time", 1083, 1183, 8, "D", "time without time zone", "TIME")
TIMESTAMP = PgType("timestamp", 1114, 1115, 8, "D", "timestamp without time zone", "TIMESTAMP")
TIMESTAMPTZ = PgType("timestamptz", 1184, 1185, 8, "D", "timestamp with time zone", "TIMESTAMPTZ")
INTERVAL = PgType("interval", 1186, 1187, 16, "T", "interval", "INTERVAL")
NUMERIC = PgType("numeric", 1700, 1231, -1, "N", "numeric", "DECIMAL(38,9)")
OID = PgType("oid", 26, 1028, 4, "N", "oid", "UINTEGER")
UUID = PgType("uuid", 2950, 2951, 16, "U", "uuid", "UUID")
ANSWERED = (
    *(BOOL, BYTEA, INT8, INT2, INT4, TEXT, JSON, FLOAT4, FLOAT8, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL),
    *(NUMERIC, OID, UUID),
)
"""Types of columns. The numbers of objects are the only ones without a sign, as in PostgreSQL."""
DECLARED = (
    PgType("char", 18, 1002, 1, "Z", '"char"', "VARCHAR"),
    PgType("name", 19, 1003, 64, "S", "name", "VARCHAR"),
    PgType("bpchar", 1042, 1014, -1, "S", "character", "VARCHAR"),
    PgType("varchar", 1043, 1015, -1, "S", "character varying", "VARCHAR"),
    PgType("jsonb", 3802, 3807, -1, "U", "jsonb", "JSON"),
    PgType("regclass", 2205, 2210, 4, "N", "regclass", "UINTEGER"),
)
"""Types that clients declare for parameters in addition."""
BY_OID = {kind.oid: kind for scalar in (*ANSWERED, *DECLARED) for kind in (scalar, scalar.array)}
TYPES_BY_NAME = {
    **{name: kind for kind in (*ANSWERED, *DECLARED) for name in (kind.name, kind.long_name)},
    "int": INT4,
    "decimal": NUMERIC,
}
"""Types by the names that casts use."""
_BY_DUCKDB = {
    **{kind.duckdb: kind for kind in ANSWERED if kind is not NUMERIC},
    **dict.fromkeys(("TINYINT", "UTINYINT"), INT2),
    "USMALLINT": INT4,
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM"), NUMERIC),
    "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ,
    "TIMESTAMPTZ_NS": TIMESTAMPTZ,
    **dict.fromkeys(("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), TIMESTAMP),
    "TIME_NS": TIME,
    **dict.fromkeys(('"NULL"', "NULL", "BIT", "TIME WITH TIME ZONE", "TIMETZ"), TEXT),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer; ``modifier`` is precision and scale of a numeric."""

    name: str
    kind: PgType
    modifier: int = NO_MODIFIER


def column(name: str, duckdb_type: str) -> Column:
    """Return a column of a type of DuckDB. Types that PostgreSQL lacks become json."""
    if scalar := _BY_DUCKDB.get(duckdb_type):
        return Column(name, scalar)
    if match := _DECIMAL.fullmatch(duckdb_type):
        return Column(name, NUMERIC, (int(match[1]) << 16 | int(match[2])) + 4)
    if duckdb_type.startswith("ENUM("):
        return Column(name, TEXT)
    element_type = _ARRAY_END.sub("", duckdb_type)
    element = NUMERIC if _DECIMAL.fullmatch(element_type) else _BY_DUCKDB.get(element_type)
    if element is not None and element is not JSON and duckdb_type.endswith("]"):
        return Column(name, element.array)
    return Column(name, JSON)
