"""Functions of PostgreSQL that BI tools write into their queries and that DuckDB lacks or has for other types.

Formats of dates are constants in both, so they are rewritten in the statement's text (PostgreSQL, table 9.27, "Template
Patterns for Date/Time Formatting"), before the functions are made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.sql.postgres.parameters import BadParameter
from penstock.sql.postgres.statements.tokens import Token

FORMATTED = {"to_char": "time_text", "to_timestamp": "time_of_text", "to_date": "date_of_text"}
"""Functions whose last argument is a format, and their names for one of ``strftime``."""
STARTS = {"hour": "start_of_hour", **dict.fromkeys(("century", "millennium"), "start_of_years")}
"""Functions in place of ``date_trunc`` for units that DuckDB begins at another time."""
_FORMAT_PLACE = re.compile(r"%(?:%|(?:(\d{1,4})\$)?(-?(?:\d+|\*(?:\d+\$)?)?)([sIL]))")
"""A place in a format of PostgreSQL: position, width and type. DuckDB's function of this name has ``{}``."""
_TYPE_OF_JSON = [
    (
        "a",
        "CASE json_type(a) WHEN 'VARCHAR' THEN 'string' WHEN 'OBJECT' THEN 'object' WHEN 'ARRAY' THEN 'array' "
        "WHEN 'BOOLEAN' THEN 'boolean' WHEN 'NULL' THEN 'null' ELSE if(a IS NULL, NULL, 'number') END",
    )
]


class FormatText(NamedTuple):
    """A format without positions, and the numbers of its arguments in the order of its places."""

    text: str
    arguments: list[int]


def parse_format(text: str) -> FormatText | None:
    """Return the places of a format; None if it has none. Raises BadParameter for a place with a width."""
    matches, pieces, arguments, position = [*_FORMAT_PLACE.finditer(text)], list[str](), list[int](), 0
    for match in matches:
        if match[2]:
            raise BadParameter(f"format has no equivalent of the width in {match[0]!r}: use lpad or rpad")
        pieces += [text[position : match.start()], f"%{match[3] or '%'}"]
        position = match.end()
        if match[3]:
            # Without a position: the argument behind the one before.
            arguments.append(int(match[1]) if match[1] else (arguments[-1] if arguments else 0) + 1)
    return FormatText("".join((*pieces, text[position:])), arguments) if matches else None


def _formatted() -> str:
    """Return the expression of ``format`` (PostgreSQL, 9.4.1) for the text and arguments of ``FormatText``."""
    places, texts = "regexp_extract_all(f, '%[sIL%]')", "string_split_regex(f, '%[sIL%]')"
    text = f"a[len(list_filter({places}[1:i], lambda x: x <> '%%'))]"
    return (
        f"{texts}[1] || array_to_string(list_transform(range(1, len({places}) + 1), lambda i: CASE {places}[i] "
        f"WHEN '%%' THEN '%' WHEN '%s' THEN coalesce({text}, '') WHEN '%I' THEN quote_ident({text}) "
        f"ELSE coalesce(quote_literal({text}), 'NULL') END || {texts}[i + 1]), '')"
    )


_SUBSTRING = [
    # A position before the first character counts from there; for DuckDB it counts from the end.
    # Nulls stay nulls: `greatest` alone would ignore them.
    ("a, s", "system.main.substring(a, if(s < 1, 1, s))"),
    (
        "a, s, n",
        "system.main.substring(a, if(s < 1, 1, s), if(n < 0, error('negative substring length not allowed'), "
        "if(s < 1, if(CAST(s AS BIGINT) + n < 1, 0, CAST(s AS BIGINT) + n - 1), n)))",
    ),
]
_QUOTED = (
    r"if(contains(CAST(a AS VARCHAR), '\'), 'E', '') || '''' || "
    r"replace(replace(CAST(a AS VARCHAR), '''', ''''''), '\', '\\') || ''''"
)
"""The expression of a literal for a value ``a``."""
_PARTS = "CASE WHEN a = '' THEN [] WHEN d = '' THEN [a] ELSE system.main.string_to_array(a, coalesce(d, '')) END"
"""The expression of the parts of a text ``a`` between the delimiters ``d``."""
_ABBREVIATIONS = {
    **dict.fromkeys(("AKST",), 9),
    **dict.fromkeys(("PST", "AKDT"), 8),
    **dict.fromkeys(("MST", "PDT"), 7),
    **dict.fromkeys(("CST", "MDT"), 6),
    **dict.fromkeys(("EST", "CDT", "ACT"), 5),
    **dict.fromkeys(("AST", "EDT"), 4),
    **dict.fromkeys(("ART", "ADT"), 3),
    **dict.fromkeys(("WET",), 0),
    **dict.fromkeys(("BST", "CET", "MET"), -1),
    **dict.fromkeys(("EET", "IST", "CEST", "MEST"), -2),
    **dict.fromkeys(("EEST", "IDT"), -3),
}
"""Hours west of UTC of abbreviations that DuckDB lacks or has as zones with summer time, or of other countries."""


def _time_in_zone() -> str:
    """Return the expression of a time ``t`` in a zone, or ``t`` of a zone as a time; an interval is east of UTC."""
    is_interval, sign = "typeof(z) = 'INTERVAL'", "if(typeof(t) = 'TIMESTAMP WITH TIME ZONE', 1, -1)"
    east = f"{sign} * if({is_interval}, try_cast(z AS INTERVAL), INTERVAL 0 SECONDS)"
    return f"system.main.timezone(if({is_interval}, 'UTC', {_zone('CAST(z AS VARCHAR)')}), t + {east})"


def _zone(name: str) -> str:
    """Return the expression of a zone by its name for DuckDB.

    PostgreSQL reads ``UTC+3`` by POSIX, as three hours west of UTC, and an abbreviation as a fixed offset.
    """
    offset, other = f"regexp_extract({name}, '[+-]\\d+')", f"regexp_full_match({name}, '[A-Za-z]*[+-]\\d+(:\\d+)+')"
    abbreviations = " ".join(f"WHEN '{short}' THEN 'Etc/GMT{hours:+}'" for short, hours in _ABBREVIATIONS.items())
    return (
        f"CASE WHEN regexp_full_match({name}, '[A-Za-z]*[+-]\\d+(:00)*') THEN 'Etc/GMT' || {offset}[1] || "
        f"CAST({offset}[2:] AS INT) WHEN {other} OR upper({name}) = 'NST' THEN "
        f"error('a zone with minutes: ' || {name}) ELSE CASE upper({name}) {abbreviations} ELSE {name} END END"
    )


QUERY_FUNCTIONS: dict[str, list[tuple[str, str]]] = {
    "time_text": [("a, f", "strftime(a, f)")],
    "time_of_text": [("a, f", "CAST(strptime(a, f) AS TIMESTAMPTZ)")],
    "date_of_text": [("a, f", "CAST(strptime(a, f) AS DATE)")],
    "text_of_pattern": [("a, p", "CASE WHEN regexp_matches(a, p, 's') THEN regexp_extract(a, p, 0, 's') END")],
    "group_of_pattern": [("a, p", "CASE WHEN regexp_matches(a, p, 's') THEN regexp_extract(a, p, 1, 's') END")],
    "text_of_format": [("f, a", _formatted())],
    "date_bin": [("i, a, o", "time_bucket(CAST(i AS INTERVAL), a, o)")],
    "json_typeof": _TYPE_OF_JSON,
    "jsonb_typeof": _TYPE_OF_JSON,
    "to_hex": [("a", "right(lower(system.main.to_hex(a)), if(typeof(a) IN ('INTEGER', 'SMALLINT'), 8, 16))")],
    "output_text": [("a", "if(typeof(a) = 'BOOLEAN', CAST(a AS VARCHAR)[1], CAST(a AS VARCHAR))")],
    "split_part": [
        (
            "a, d, n",
            "CASE WHEN n = 0 THEN error('field position must not be zero') WHEN d = '' THEN if(abs(n) = 1, a, '') "
            "ELSE system.main.split_part(a, d, n) END",
        )
    ],
    "btrim": [("a", "system.main.trim(a, ' ')"), ("a, c", "system.main.trim(a, c)")],
    "quote_literal": [("a", _QUOTED)],
    "quote_nullable": [("a", f"coalesce({_QUOTED}, 'NULL')")],
    "array_length": [
        ("a", "system.main.array_length(a)"),
        ("a, d", "nullif(system.main.array_length(a, d), 0)"),
    ],
    "timezone": [("a", "system.main.timezone(a)"), ("z, t", _time_in_zone())],
    # DuckDB takes both hours that the end of summer time repeats for the second one, but only for this unit.
    "start_of_hour": [
        (
            "u, t",
            "system.main.date_trunc('minute', t) - to_minutes(CAST(coalesce(date_part('minute', t), 0) AS BIGINT))",
        )
    ],
    # A century ends with the year of two zeros, with which it begins for DuckDB.
    "start_of_years": [("u, t", "system.main.date_trunc(u, t - INTERVAL 1 YEAR) + INTERVAL 1 YEAR")],
    "substring": _SUBSTRING,
    "substr": _SUBSTRING,
    "string_to_array": [
        ("a, d", _PARTS),
        ("a, d, n", f"list_transform({_PARTS}, lambda x: nullif(x, n))"),
    ],
    "array_to_string": [
        ("a, d", "if(a = [], '', system.main.array_to_string(a, d))"),
        (
            "a, d, n",
            "if(a = [], '', system.main.array_to_string(list_transform(CAST(a AS VARCHAR[]), lambda x: "
            "coalesce(x, n)), d))",
        ),
    ],
    "clock_timestamp": [("", "now()")],
    "statement_timestamp": [("", "now()")],
    "encode": [
        ("a", "system.main.encode(a)"),
        (
            "a, f",
            "CASE f WHEN 'hex' THEN lower(hex(a)) WHEN 'base64' THEN "
            "regexp_replace(regexp_replace(to_base64(a), '(.{76})', '\\1\n', 'g'), '=\n$', '=') "
            "ELSE error('hex or base64') END",
        ),
    ],
    "decode": [
        ("a", "system.main.decode(a)"),
        ("a, f", "CASE f WHEN 'hex' THEN unhex(a) WHEN 'base64' THEN from_base64(a) ELSE error('hex or base64') END"),
    ],
    "convert_from": [
        ("a, e", "CASE WHEN upper(replace(e, '-', '')) = 'UTF8' THEN system.main.decode(a) ELSE error('UTF8 only') END")
    ],
    "octet_length": [
        (
            "a",
            "CASE WHEN typeof(a) = 'BLOB' THEN system.main.octet_length(TRY_CAST(a AS BLOB)) "
            "ELSE strlen(CAST(a AS VARCHAR)) END",
        )
    ],
    "initcap": [
        (
            "a",
            "array_to_string(list_transform(regexp_extract_all(lower(a), '[\\p{L}\\p{N}]+|[^\\p{L}\\p{N}]+'), "
            "lambda w: upper(w[1]) || w[2:]), '')",
        )
    ],
    "width_bucket": [
        (
            "x, a, b, n",
            "CAST(CASE WHEN (x < a) = (a < b) AND x <> a THEN 0 WHEN (x < b) <> (a < b) OR x = b THEN n + 1 "
            "ELSE floor((x - a) * n / (b - a)) + 1 END AS INT)",
        )
    ],
}
"""Versions of each function: its parameters, and its value."""
_NUMBERS = {
    "HH24": "H",
    "HH12": "I",
    "HH": "I",
    "MI": "M",
    "SS": "S",
    "MM": "m",
    "DDD": "j",
    "DD": "d",
    "YYYY": "Y",
    "YY": "y",
    "IYYY": "G",
    "IW": "V",
    "ID": "u",
    "MS": "g",
    "US": "f",
}
_WITHOUT_ZEROS = frozenset({"HH24", "HH12", "HH", "MI", "SS", "MM", "DDD", "DD"})
_NAMES = {"Mon": "%b", "Dy": "%a", "AM": "%p", "PM": "%p", "TZ": "%Z", "FMMonth": "%B", "FMDay": "%A"}
"""Patterns that depend on upper and lower case; without FM, the long names are padded, which ``strftime`` cannot do."""
_LACKING = (
    *("SSSSS", "SSSS", "Y,YYY", "YYY", "Y", "IYY", "IY", "IDDD", "I", "CC", "BC", "AD", "B.C.", "A.D.", "Q", "WW", "W"),
    *("D", "J", "RM", "OF", "TZH", "TZM", "FF", "TH", "SP", "TM", "FX", "A.M.", "P.M.", "MONTH", "MON", "DAY", "DY"),
    *("AM", "PM", "TZ", "FM"),
)
"""Patterns of PostgreSQL that ``strftime`` has no code for, and names in another case than in ``_NAMES``."""
_ALL = sorted({*_NUMBERS, *(f"FM{name}" for name in (*_NUMBERS, "Month", "Day")), *_LACKING}, key=len, reverse=True)
_PIECE = re.compile('"([^"]*)"|' + "|".join(map(re.escape, _ALL)) + "|%", re.IGNORECASE)

_FRACTIONAL = {
    **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), ("0.000001", "1000000.0")),
    **dict.fromkeys(("millisecond", "milliseconds", "msec", "msecs", "ms"), ("0.001", "1000.0")),
}
"""Fields with a fraction: the factor of microseconds for a decimal, and their divisor for a double."""


def fractional_seconds(tokens: Sequence[Token], closing: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """Yield the index of each token that gives (milli)seconds their fraction, which DuckDB cuts off, and its text.

    These are ``extract(second FROM x)`` and ``date_part('second', x)``, whose type is double in PostgreSQL.
    """
    for index in range(len(tokens) - 3):
        field = tokens[index + 2]
        is_extract = tokens[index].is_word("extract") and tokens[index + 3].is_word("from")
        is_part = tokens[index].is_word("date_part") and field.content is not None
        factors = _FRACTIONAL.get((field.content or field.text).lower()) if is_extract or is_part else None
        if factors and index + 1 in closing:
            yield index, f"({tokens[index].text}"
            yield index + 2, "microseconds" if is_extract else "'microseconds'"
            yield closing[index + 1], f") * {factors[0]})" if is_extract else f") / {factors[1]})"


def duckdb_format(text: str) -> str | None:
    """Return the format of ``strftime`` for a format of ``to_char``; None for one with a pattern that it lacks,
    and for an empty one.
    """
    pieces, position = [], 0
    for match in _PIECE.finditer(text):
        pieces.append(text[position : match.start()])
        position = match.end()
        pattern = match[0].upper()
        is_trimmed = pattern.startswith("FM")
        number = pattern.removeprefix("FM")
        if match[1] is not None:
            pieces.append(match[1].replace("%", "%%"))
        elif pattern == "%":
            pieces.append("%%")
        elif match[0] in _NAMES:
            pieces.append(_NAMES[match[0]])
        elif number in _NUMBERS and not (is_trimmed and number not in _WITHOUT_ZEROS):
            pieces.append(f"%{'-' if is_trimmed else ''}{_NUMBERS[number]}")
        else:
            return None
    return "".join((*pieces, text[position:])) or None
