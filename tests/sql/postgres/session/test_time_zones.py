"""Texts that name a zone, next to what PostgreSQL takes them for."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from penstock.sql.postgres.session.time_zones import time_zone

ZONES = [
    *("Europe/Berlin", "europe/berlin", "UTC", "gmt", "DEFAULT", "local", "CET", "EST", "EST5EDT", "Etc/GMT+5"),
    *("UTC+3", "GMT-02:00", "<+03>-3", "XYZ5", "3", "-7", "+5", "0"),
]
REFUSED = ["PST", "IST", "Nowhere/Land", "", "'; drop table x"]


@pytest.mark.parametrize("text", ZONES)
def test_text_means_the_zone_that_it_means_for_postgresql(postgres: psycopg.Connection[Any], text: str) -> None:
    name = text if text in ("DEFAULT", "local") else f"'{text}'"
    postgres.execute("reset timezone")
    row = postgres.execute(f"set time zone {name}; select extract(timezone from timestamptz '2026-07-01')".encode())
    assert row.nextset()
    (offset_s,) = row.fetchone() or (None,)
    postgres.execute("set timezone to 'UTC'")
    zone = time_zone(text)
    assert zone
    offset = datetime(2026, 7, 1, tzinfo=ZoneInfo(zone)).utcoffset()
    assert offset is not None
    assert offset.total_seconds() == offset_s


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_is_no_zone_for_postgresql_is_none(postgres: psycopg.Connection[Any], text: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        postgres.execute("set time zone '" + text.replace("'", "''") + "'")  # type: ignore[arg-type]
    assert time_zone(text) is None


def test_offset_of_an_interval_is_a_zone_unless_it_has_minutes() -> None:
    assert time_zone("interval -05:00 hour to minute") == "Etc/GMT+5"
    assert time_zone("interval +05:30 hour to minute") is None
    assert time_zone("5.5") is None
