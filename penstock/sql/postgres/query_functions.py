"""Functions of PostgreSQL that BI tools write into their queries and that DuckDB lacks or has for other types.

Formats of dates are constants in both, so they are rewritten in the statement's text (PostgreSQL, table 9.27, "Template
Patterns for Date/Time Formatting"), before the functions are made.
"""

from __future__ import annotations

import re

FORMATTED = {"to_char": "time_text", "to_timestamp": "time_of_text", "to_date": "date_of_text"}
"""Functions whose last argument is a format, and their names for one of ``strftime``."""
QUERY_FUNCTIONS: dict[str, list[tuple[str, str]]] = {
    "time_text": [("a, f", "strftime(a, f)")],
    "time_of_text": [("a, f", "CAST(strptime(a, f) AS TIMESTAMPTZ)")],
    "date_of_text": [("a, f", "CAST(strptime(a, f) AS DATE)")],
    "date_bin": [("i, a, o", "time_bucket(CAST(i AS INTERVAL), a, CAST(o AS TIMESTAMPTZ))")],
    "clock_timestamp": [("", "now()")],
    "statement_timestamp": [("", "now()")],
    "encode": [
        ("a", "system.main.encode(a)"),
        (
            "a, f",
            "CASE f WHEN 'hex' THEN lower(hex(a)) WHEN 'base64' THEN to_base64(a) ELSE error('hex or base64') END",
        ),
    ],
    "decode": [
        ("a", "system.main.decode(a)"),
        ("a, f", "CASE f WHEN 'hex' THEN unhex(a) WHEN 'base64' THEN from_base64(a) ELSE error('hex or base64') END"),
    ],
    "convert_from": [("a, e", "system.main.decode(a)")],
    "octet_length": [("a", "strlen(CAST(a AS VARCHAR))")],
    "initcap": [
        (
            "a",
            "array_to_string(list_transform(regexp_extract_all(lower(a), '[[:alnum:]]+|[^[:alnum:]]+'), "
            "lambda w: upper(w[1]) || w[2:]), '')",
        )
    ],
    "width_bucket": [
        (
            "x, a, b, n",
            "CAST(CASE WHEN x < a THEN 0 WHEN x >= b THEN n + 1 ELSE floor((x - a) * n / (b - a)) + 1 END AS INT)",
        )
    ],
}
"""Versions of each function: its parameters, and its value."""
_PATTERNS = {
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "MS": "%g",
    "US": "%f",
    "YYYY": "%Y",
    "YY": "%y",
    "IYYY": "%G",
    "IW": "%V",
    "MM": "%m",
    "DDD": "%j",
    "DD": "%d",
    "ID": "%u",
    "Month": "%B",
    "Mon": "%b",
    "Day": "%A",
    "Dy": "%a",
    "AM": "%p",
    "PM": "%p",
    "TZ": "UTC",
}
_FOLDED = {pattern.upper(): code for pattern, code in _PATTERNS.items()}
_LACKING = (
    "SSSS",
    "SSSSS",
    "Y,YYY",
    "YYY",
    "CC",
    "BC",
    "AD",
    "Q",
    "WW",
    "J",
    "RM",
    "OF",
    "TZH",
    "TZM",
    "FF",
    "TH",
    "SP",
)
"""Patterns of PostgreSQL that ``strftime`` has no code for."""
_ALL = sorted((*_FOLDED, *_LACKING, "FM"), key=len, reverse=True)
_PIECE = re.compile('"([^"]*)"|' + "|".join(map(re.escape, _ALL)) + "|%", re.IGNORECASE)


def duckdb_format(text: str) -> str | None:
    """Return the format of ``strftime`` for a format of ``to_char``; None for one with a pattern that it lacks."""
    pieces, position = [], 0
    for match in _PIECE.finditer(text):
        pieces.append(text[position : match.start()])
        position = match.end()
        piece = match[0].upper()
        if piece in _LACKING:
            return None
        if match[1] is not None:
            pieces.append(match[1].replace("%", "%%"))
        else:
            pieces.append({**_FOLDED, "%": "%%", "FM": ""}[piece])
    return "".join((*pieces, text[position:]))
