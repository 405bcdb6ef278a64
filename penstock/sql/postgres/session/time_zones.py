"""The time zone of a session: a client's text as a zone that DuckDB has."""

from __future__ import annotations

import re
from functools import cache

import duckdb

from penstock.sql.query import SETTINGS

DEFAULT = "UTC"
_DEFAULTS = ("utc", "gmt", "default", "local", "z")
_OF_OTHER_COUNTRIES = """
    act aet agt art ast bet bst cat cnt cst ctt eat ect iet ist jst mit net nst plt pnt prt pst sst vst
"""
"""Abbreviations that are zones for DuckDB alone: for PostgreSQL they are fixed offsets, of other countries, or none."""
_HOURS = re.compile(r"(?:interval )?([+-]?)0?(\d{1,2})(?::00)*(?: hour.*)?")
"""Hours east of UTC, as a number or an interval."""
_POSIX = re.compile(r"(?:[a-z]{3,}|<[^<>]+>)([+-]?)0?(\d{1,2})(?::00)*")
"""An abbreviation of one's own and hours west of UTC."""


def time_zone(text: str) -> str | None:
    """Return the zone that ``SET TIME ZONE`` means by a text; None if there is none, or if its offset has minutes."""
    lowered = text.strip().lower()
    if lowered in _DEFAULTS:
        return DEFAULT
    if name := _names().get(lowered):
        return name
    if match := _HOURS.fullmatch(lowered):
        sign = "+" if match[1] == "-" else "-"
    elif match := _POSIX.fullmatch(lowered):
        sign = match[1] or "+"
    else:
        return None
    return _names().get(f"etc/gmt{sign}{match[2]}")


@cache
def _names() -> dict[str, str]:
    """Return the names of all zones by their lower case."""
    with duckdb.connect(":memory:", config=SETTINGS) as connection:
        rows = connection.execute("SELECT name FROM pg_timezone_names()").fetchall()
    names = {name.lower(): name for (name,) in rows}
    return {lowered: name for lowered, name in names.items() if lowered not in _OF_OTHER_COUNTRIES.split()}
