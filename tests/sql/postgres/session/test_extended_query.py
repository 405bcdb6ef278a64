"""Extended queries of psycopg and asyncpg: statements with parameters, and their types."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import uuid
from typing import Any

import asyncpg
import psycopg
import pytest

from penstock.sql.postgres.server import Server
from tests.sql.postgres.postgres_server import connect

UTC = dt.UTC


VALUES: list[Any] = [
    *(1, 2**40, -1.5, "a'b", b"\x00\xff", True, None, dt.date(1999, 1, 2), dt.time(1, 2, 3, 4), [1, 2, None]),
    dt.datetime(2020, 1, 2, 3, 4, 5, 6),
    dt.datetime(1969, 1, 2, 3, 4, 5, tzinfo=UTC),
    dt.timedelta(days=400, seconds=5),
    *(decimal.Decimal("1.50"), decimal.Decimal("-123456789012345678901234567.125"), uuid.UUID(int=5), 2**80),
]


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("placeholder", ["%t", "%b"])
def test_parameter_comes_back_as_it_was_sent(
    connection: psycopg.Connection[Any], binary: bool, placeholder: str
) -> None:
    with connection.cursor(binary=binary) as cursor:
        row = cursor.execute(f"select {', '.join([placeholder] * len(VALUES))}", VALUES).fetchone()
    assert row is not None
    assert list(row) == VALUES


TYPES: dict[str, Any] = {
    "true": True,
    "1::utinyint": 1,
    "'-inf'::float": float("-inf"),
    "1e20::double": 1e20,
    "date '1999-12-31'": dt.date(1999, 12, 31),
    "timestamptz '2020-01-01 00:00:00+01'": dt.datetime(2019, 12, 31, 23, tzinfo=UTC),
    "interval '14 months 3 days 4 hours'": dt.timedelta(days=365 + 60 + 3, hours=4),
    "12345.6700::decimal(12,4)": decimal.Decimal("12345.6700"),
    "0.00::decimal(5,2)": decimal.Decimal("0.00"),
    "100000000::decimal(12,2)": decimal.Decimal("100000000.00"),
    "170141183460469231731687303715884105727::hugeint": decimal.Decimal(2**127 - 1),
    "[1, 2, null]": [1, 2, None],
    "['a\"b\\c', null, '']": ['a"b\\c', None, ""],
    "[date '2020-01-01']": [dt.date(2020, 1, 1)],
    "[timestamptz '2020-01-01']": [dt.datetime(2020, 1, 1, tzinfo=UTC)],
    "[1.5::decimal(4,2)]": [decimal.Decimal("1.50")],
    "[true, null]": [True, None],
    "[uuid '00000000-0000-0000-0000-000000000005']": [uuid.UUID(int=5)],
    "[]::int[]": [],
    "{'a': [{'b': null}]}": {"a": [{"b": None}]},
    "map {'k': 1}": {"k": 1},
    "'{\"a\": 1}'::json": {"a": 1},
    "null": None,
}


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_type_of_duckdb_arrives_as_a_type_of_the_client(connection: psycopg.Connection[Any], binary: bool) -> None:
    row = connection.cursor(binary=binary).execute(f"select {', '.join(TYPES)}").fetchone()
    assert row is not None
    assert list(row) == list(TYPES.values())


def test_statement_is_prepared_once_and_run_with_other_parameters(connection: psycopg.Connection[Any]) -> None:
    for number in range(3):
        rows = connection.execute("select uuid from events where uuid = %s", (f"u{number}",), prepare=True).fetchall()
        assert rows == [(f"u{number}",)]
    assert connection.execute('select count(*) from events where "offset" >= %s', ("1",)).fetchone() == (1,)


def test_number_of_a_parameter_does_not_decide_how_many_there_are(sql_server: Server) -> None:
    with connect(sql_server) as connection:
        answer = connection.pgconn.prepare(b"far", b"select $60000")
        assert b"could not determine data type of parameter $1" in answer.error_message
        for number in range(2):
            oids = [25] * 60_000
            answer = connection.pgconn.prepare(b"wide%d" % number, b"select 1 where $60000 is null", oids)
            assert (answer.error_message != b"") == (number == 1)
        assert b"too many prepared statements" in answer.error_message


async def with_asyncpg(server: Server) -> None:
    host, port = server.address
    options = {"host": host, "port": port, "user": "ann", "database": "penstock"}
    connection = await asyncpg.connect(**options)
    begin, end = dt.datetime(2000, 1, 1, tzinfo=dt.UTC), dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    for condition, arguments in {
        '"offset" >= $1 and "offset" < $2': (0, 5),
        "received between $1 and $2": (begin, end),
        "uuid = any($1) and uuid <> all($2::text[])": (["u0", "u1"], ["none"]),
        '"offset" = any($1)': ([0, 1],),
        "uuid in ($1, $2) and $3 and length(uuid) = $4": ("u0", "u1", True, 2),
        "received > now() - $1::interval and $2::text is not null and uuid like $2": (dt.timedelta(days=9999), "u%"),
        "('{\"a\": 7}'::json->>'a')::bigint > $1 and payload <> $2": (5, b"none"),
    }.items():
        rows = await connection.fetch(
            f"select uuid from events where {condition} and topic = 't' order by 1", *arguments
        )
        assert [row["uuid"] for row in rows] == ["u0", "u1"], condition
    assert len(await connection.fetch("select uuid from events order by uuid limit $1 offset $2", 1, 1)) == 1
    assert await connection.fetchval("select $1::int + $2::numeric", 1, decimal.Decimal("1.5")) == decimal.Decimal(
        "2.5"
    )
    assert await connection.fetchval("select upper($1)", "a") == "A"
    texts = "select 'parameter 7', cast('penstock parameter 7' as varchar), $1::int limit $2"
    assert await connection.fetchval(texts, 1, 1) == "parameter 7"
    async with connection.transaction():
        assert len([row async for row in connection.cursor("select uuid from events where uuid <> $1", "u0")]) == 2
    with pytest.raises(TimeoutError):
        await connection.fetch("select count(*) from range(100000000000)", timeout=1)
    assert await connection.fetchval("select 1") == 1
    await connection.close()
    async with asyncpg.create_pool(**options, min_size=1, max_size=2) as pool:
        counts = [await pool.fetchval('select count(*) from events where "offset" = $1', n) for n in range(3)]
        assert sum(counts) == 3


def test_types_of_parameters_follow_from_their_places(sql_server: Server) -> None:
    """asyncpg, like pgx and tokio-postgres, encodes by the types that the server names."""
    asyncio.run(with_asyncpg(sql_server))


def test_many_parameters_of_unknown_type_are_texts(sql_server: Server) -> None:
    """Their types are not asked for one by one; psycopg's texts are numbers in their places all the same."""
    with connect(sql_server) as connection:
        places = ", ".join(["%s"] * 300)
        found = connection.execute(f'select count(*) from events where "offset" in ({places})'.encode(), ["0"] * 300)
        assert found.fetchone() == (2,)
