"""Typed columns once more, event by event with Python's own parser: what tables must agree with after any change.

The parser keeps the digits of numbers and all members of an object. And texts of ``data`` to try both with.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st

ABSENT = object()
Path = tuple[str, ...]
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6})0{0,3})?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
MAX_DIGITS = 15
"""Digits of a number with an exponent, written without it."""
_WIDE = Context(prec=5000, Emin=-999999, Emax=999999)


class Number(str):
    """The text of a number."""


class Members(list[tuple[str, Any]]):
    """The members of an object, with repeated keys."""

    def first(self, key: str) -> Any:
        return next((value for name, value in self if name == key), ABSENT)


def parse(text: str) -> Any:
    """Parse JSON without losing anything."""
    return json.loads(text, object_pairs_hook=Members, parse_int=Number, parse_float=Number)


@dataclass(frozen=True)
class Plain:
    """A column: its name, type, the keys of its field, and its default as a value of Python."""

    name: str
    kind: str
    path: Path
    default: Any = None


def read_columns(columns: Sequence[Plain], document: Any) -> dict[str, Any]:
    """Return the columns of the document of ``data``; ABSENT for none."""
    cells = {}
    for column in columns:
        value = lookup(document, column.path)
        is_missing = value is ABSENT or value is None
        cells[column.name] = column.default if is_missing else read_value(column.kind, value)[1]
    return cells


def lookup(document: Any, path: Path) -> Any:
    """Return the value at a path; the first one of a repeated key."""
    for key in path:
        document = document.first(key) if isinstance(document, Members) else ABSENT
    return document


def read_value(kind: str, value: Any) -> tuple[bool, Any]:
    """Report whether a column of this type holds all of a value, and return what it holds."""
    if value is None:
        return True, None
    if kind.startswith("array<"):
        if not isinstance(value, list) or isinstance(value, Members):
            return False, None
        items = [_read_item(kind[6:-1], item) for item in value]
        return (True, [cell for _, cell in items]) if all(fits for fits, _ in items) else (False, None)
    if kind.startswith("struct<"):
        return _read_struct(kind, value)
    cell = _read_scalar(kind, value)
    return cell is not None, cell


def _read_item(kind: str, item: Any) -> tuple[bool, Any]:
    """Do the same for an item of a list: an object has no other and no repeated fields there."""
    fits, cell = read_value(kind, item)
    if kind.startswith("struct<") and isinstance(item, Members):
        names = [name for name, _ in item]
        fits = fits and len({*names}) == len(names)
    return fits, cell


def struct_fields(kind: str) -> dict[str, str]:
    """Return the fields of a type of structs without inner structs."""
    return dict(re.findall(r"(\w+):((?:[a-z]+\([0-9,]+\)|[a-z<>]+?))(?=,|>$)", kind[7:]))


def _read_struct(kind: str, value: Any) -> tuple[bool, Any]:
    if not isinstance(value, Members):
        return False, None
    fields = struct_fields(kind)
    members = {name: value.first(name) for name in fields}
    read = {n: read_value(of, None if members[n] is ABSENT else members[n]) for n, of in fields.items()}
    fits = all(ok for ok, _ in read.values()) and all(name in fields for name, _ in value)
    return fits, {name: cell for name, (_, cell) in read.items()}


def _read_scalar(kind: str, value: Any) -> Any:
    is_text, is_number = type(value) is str, isinstance(value, Number)
    if kind == "string":
        return value if is_text else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind in ("int", "bigint"):
        bits = 31 if kind == "int" else 63
        is_whole = is_number and re.fullmatch("-?[0-9]+", value) and -(1 << bits) <= int(value) < 1 << bits
        return int(value) if is_whole else None
    if kind == "double":
        return float(value) if is_number and math.isfinite(float(value)) else None
    if kind == "date":
        return _read_day(value) if is_text else None
    if kind == "timestamp":
        return _read_time(value) if is_text else None
    if kind == "json":
        return value
    return _read_decimal(kind, value) if is_text or is_number else None


def _read_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else None
    except ValueError:
        return None


def _read_time(text: str) -> datetime | None:
    match = _TIME.fullmatch(text)
    if match is None or (day := _read_day(match[1])) is None:
        return None
    try:
        zone = timedelta(hours=int(match[7] or 0), minutes=int(match[8] or 0))
        clock = int(match[2]), int(match[3]), int(match[4]), int((match[5] or "").ljust(6, "0"))
        time = datetime(day.year, day.month, day.day, *clock, timezone(-zone if match[6] == "-" else zone))
        return time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _read_decimal(kind: str, text: str) -> Decimal | None:
    precision, scale = map(int, re.findall("[0-9]+", kind))
    has_exponent = isinstance(text, Number) and "e" in text.lower() and scale > 0
    if not has_exponent and not re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?" if scale else "-?(0|[1-9][0-9]*)", text):
        return None
    number = _WIDE.create_decimal(text)
    if has_exponent and not _is_short(text, number):
        return None
    scaled = number.scaleb(scale, _WIDE)
    if scaled != scaled.to_integral_value(context=_WIDE) or scaled.copy_abs() >= 10**precision:
        return None
    return number


def _is_short(text: str, number: Decimal) -> bool:
    """Report whether a number with an exponent is one that a decimal column takes, see docs/tables.md."""
    if re.search(r"[0-9.]{17}|[0-9]{16}[eE]|[0-9.][eE]-[0-9]{3}", text):
        return False
    whole, _, places = format(number.normalize(_WIDE), "f").lstrip("-0.").partition(".")
    return len(whole + places) <= MAX_DIGITS - (number == number.to_integral_value(context=_WIDE))


def read_rest(columns: Sequence[Plain], document: Any) -> Any:
    """Return what no column has of a document; ABSENT for nothing."""
    if not isinstance(document, Members) or _repeats_key(columns, document, ()):
        return document
    return _remaining(columns, document, ())


def _fields(columns: Sequence[Plain]) -> Iterator[Plain]:
    """Yield the columns; of structs their fields."""
    for column in columns:
        if column.kind.startswith("struct<"):
            yield from _fields([Plain(n, k, (*column.path, n)) for n, k in struct_fields(column.kind).items()])
        else:
            yield column


def _repeats_key(columns: Sequence[Plain], document: Any, path: Path) -> bool:
    """Report whether a key that leads to a column occurs twice in its object."""
    if not isinstance(document, Members):
        return False
    below = {field.path[len(path)] for field in _fields(columns) if field.path[: len(path)] == path != field.path}
    names = [name for name, _ in document if name in below]
    return len({*names}) < len(names) or any(
        _repeats_key(columns, document.first(name), (*path, name)) for name in names
    )


def _remaining(columns: Sequence[Plain], document: Members, path: Path) -> Any:
    members = Members()
    for name, value in document:
        inner = (*path, name)
        fields = [field for field in _fields(columns) if field.path == inner]
        if any(value is None or read_value(field.kind, value)[0] for field in fields):
            continue
        is_struct = any(c.path == inner and c.kind.startswith("struct<") for c in columns)
        if is_struct and (value is None or (isinstance(value, Members) and not value)):
            continue
        if isinstance(value, Members) and value and any(f.path[: len(inner)] == inner for f in _fields(columns)):
            value = _remaining(columns, value, inner)
        if value is not ABSENT:
            members.append((name, value))
    return members or ABSENT


def is_same(kind: str, expected: Any, cell: Any) -> bool:
    """Report whether a cell of a table has the expected value."""
    if expected is None or cell is None:
        return expected is None and cell is None
    if kind == "json":
        return bool(normalize(parse(cell)) == normalize(expected))
    if kind.startswith("array<"):
        return len(cell) == len(expected) and all(map(is_same, [kind[6:-1]] * len(cell), expected, cell))
    if kind.startswith("struct<"):
        return all(is_same(of, expected[name], cell[name]) for name, of in struct_fields(kind).items())
    return type(cell) is type(expected) and bool(cell == expected)


def normalize(value: Any) -> Any:
    """Return a value that is equal for equal JSON: exact numbers, and members by key."""
    if isinstance(value, Number):
        return "number", _WIDE.create_decimal(value).normalize(_WIDE)
    if isinstance(value, Members):
        return "object", sorted(((name, normalize(inner)) for name, inner in value), key=lambda member: member[0])
    if isinstance(value, list):
        return "list", [normalize(item) for item in value]
    return type(value).__name__, value


def without_blanks(text: str) -> str:
    """Return a JSON text without blanks between its values."""
    return re.sub(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', lambda match: match[1] or "", text)


_DIGITS = st.text("0123456789", min_size=1, max_size=40)
NUMBERS = st.one_of(
    st.integers(-10, 10).map(str),
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.tuples(st.sampled_from(["", "-"]), st.integers(0, 10**20).map(str), _DIGITS).map(
        lambda p: f"{p[0]}{p[1]}.{p[2]}"
    ),
    st.sampled_from(
        [
            "1.10",
            "-0",
            "-0.0",
            "0.0",
            "1E5",
            "1e+5",
            "12e-1",
            "0.30000000000000004",
            "9007199254740993",
            "5e-324",
            "9223372036854775807",
            "1e308",
            "9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
            "2147483647",
            "2147483648",
            "-2147483648",
            "1e22",
            "1e23",
            "-2147483649",
            "0.1e-7",
            "4.350",
            "99999999.99",
            "100000000.00",
            "1234567890123456",
            "123456789012345.6",
            "0.000001",
            "0.0000001",
            "12345678901234567890.25",
            "1.000000000000000000000",
            "1.7976931348623157e308",
            "2.2250738585072014e-308",
            "123456789012345678e-10",
            "1e-400",
            "4.3512345e-320",
            "-9E-324",
            "123e-330",
            "0e-999",
            "1.25e-307",
        ]
    ),
)
"""Numbers; digits beyond a double do not matter, but its range does: 1e400 is no number to some readers."""
_PIECES = st.sampled_from(
    [
        *(
            "a",
            "é",
            "\\u00e9",
            "\\n",
            "\\/",
            "\\\\",
            '\\"',
            "\\ud83d\\ude00",
            "\U0001f600",
            "\\u0000",
            "\u2028",
            "\ue000x",
        ),
        *(
            "\\ue000x",
            "\ufeff",
            "e\u0301",
            "\u200b",
            "\x7f",
            " ",
            "\u00a0",
            "\\b",
            "\\t",
            "{",
            "}",
            "[",
            ",",
            ":",
            "null",
        ),
        *(
            "\\u001f",
            "\uffff",
            "\U0010ffff",
            "12",
            ".",
            "\\u0061",
            "12345678901234567.5",
            "'",
            "%",
            "~1",
            "\u0130",
            "ﬀ",
        ),
    ]
)
_DAYS = ["2026-01-31", "2026-02-30", "0001-01-01", "9999-12-31", "1582-10-10", "1969-12-31", "2024-02-29", "2026-1-1"]
_CLOCKS = [
    "T14:00:00Z",
    "T23:59:59.123456Z",
    "T23:59:59.123456000Z",
    "T23:59:59.1234567Z",
    "T00:00:00+05:30",
    "T00:00:00",
]
_CLOCKS += ["T23:59:59-12:00", "T12:00:00.000001+00:00", "T23:59:60Z", "T24:00:00Z", "T12:00:00.5-00:30", "T12:60:00Z"]
_CLOCKS += ["T12:00:00+15:59", "T12:00:00z", "T12:00:00 Z", ""]
STRINGS = st.one_of(
    st.lists(_PIECES, max_size=6).map("".join),
    st.tuples(st.sampled_from(_DAYS), st.sampled_from(_CLOCKS)).map("".join),
    NUMBERS,
).map(lambda text: f'"{text}"')
_SPELLINGS = {"a": '"\\u0061"', "0": '"\\u0030"', "é": '"\\u00e9"'}


def keys(names: Sequence[str]) -> st.SearchStrategy[str]:
    """Return JSON texts of keys, some with escapes."""
    plain = st.sampled_from(names).map(lambda name: json.dumps(name, ensure_ascii=False))
    return plain | st.sampled_from(names).map(lambda name: _SPELLINGS.get(name, json.dumps(name)))


_BLANKS = st.sampled_from(["", "", "", "", " ", "\n\t", "\r\n  "])


def documents(names: Sequence[str], *, max_leaves: int = 8) -> st.SearchStrategy[str]:
    """Return JSON texts of ``data``: mostly objects with these keys, also repeated ones."""
    scalars = st.one_of(st.sampled_from(["null", "true", "false", "{}", "[]"]), NUMBERS, STRINGS)

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        lists = st.tuples(_BLANKS, st.lists(inner, max_size=3)).map(lambda p: f"[{p[0]}{f'{p[0]},'.join(p[1])}]")
        return lists | objects(inner)

    def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        member = st.tuples(_BLANKS, keys(names), _BLANKS, inner).map("{0[0]}{0[1]}:{0[2]}{0[3]}{0[0]}".format)
        return st.lists(member, max_size=5).map(lambda members: "{" + ",".join(members) + "}")

    values = st.recursive(scalars, extend, max_leaves=max_leaves)
    return st.one_of(objects(values), objects(values), objects(values), values)
