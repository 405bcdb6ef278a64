"""What Go's decoders take, and what they say of what they do not take: slogd's HTTP API answers with their words.

Functions return the value or raise ValueError with Go's text.
"""

from __future__ import annotations

import base64
import calendar
import re

_CANONICAL = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_LINE_ENDS = "\r\n"

RFC3339_NANO = "2006-01-02T15:04:05.999999999Z07:00"
_CHUNKS = (
    ("", "2006"),
    ("-", "01"),
    ("-", "02"),
    ("T", "15"),
    (":", "04"),
    (":", "05"),
    ("", ".999999999"),
    ("", "Z07:00"),
)
"""The layout: literal text, and the element after it."""
_LIMITS = {"01": ("month", 1, 12), "15": ("hour", 0, 23), "04": ("minute", 0, 59), "05": ("second", 0, 59)}
_DIGITS = {2: "01", 8: "01234567", 10: "0123456789", 16: "0123456789abcdef"}
_PREFIXES = {"0x": 16, "0b": 2, "0o": 8}
LONGEST_NUMBER = 100
"""Characters of a number that are looked at: a text of a million digits must not cost anything."""


def from_base64(text: str) -> bytes:
    """The standard alphabet with padding; line ends are passed over."""
    plain = text.replace("\r", "").replace("\n", "")
    if _CANONICAL.fullmatch(plain):
        return base64.b64decode(plain)
    raise ValueError(f"illegal base64 data at input byte {_wrong_byte(text)}")


def _wrong_byte(text: str) -> int:
    """Where Go sees the error: it reads four characters at a time, and looks back when they are not there."""
    data = text.encode("utf-8", "replace").decode("latin-1")
    place = taken = 0
    while place < len(data):
        char = data[place]
        place += 1
        if char in _LINE_ENDS:
            continue
        if char in _ALPHABET:
            taken = (taken + 1) % 4
        else:
            return _wrong_padding(data, place, taken) if char == "=" else place - 1
    return place - taken


def _wrong_padding(data: str, place: int, taken: int) -> int:
    """Likewise, from a padding character on: ``place`` is behind it, ``taken`` are the characters before it."""
    if taken < 2:
        return place - 1
    if taken == 2:
        place = _behind_line_ends(data, place)
        if place == len(data):
            return place
        if data[place] != "=":
            return place - 1
        place += 1
    return _behind_line_ends(data, place)


def _behind_line_ends(data: str, place: int) -> int:
    while place < len(data) and data[place] in _LINE_ENDS:
        place += 1
    return place


def parse_time(text: str) -> tuple[int, int]:
    """Seconds since the epoch and nanoseconds of an RFC 3339 time, as Go's time.Parse takes it."""
    rest, found = text, {}
    for literal, element in _CHUNKS:
        for char in literal:
            if not rest.startswith(char):
                raise _cannot(text, rest, literal)
            rest = rest[1:]
        taken = _element(element, rest)
        if taken is None:
            raise _cannot(text, rest, element)
        found[element], rest = taken
        name, low, high = _LIMITS.get(element, ("", 0, 0))
        if name and not low <= found[element] <= high:
            raise ValueError(f"parsing time {quoted(text)}: {name} out of range")
    if rest:
        raise ValueError(f"parsing time {quoted(text)}: extra text: {quoted(rest)}")
    return _seconds(text, found), found[".999999999"]


def _seconds(text: str, found: dict[str, int]) -> int:
    year, month, day = (found[name] for name in ("2006", "01", "02"))
    if not 1 <= day <= (calendar.monthrange(year or 4, month)[1]):
        raise ValueError(f"parsing time {quoted(text)}: day out of range")
    days = _days_from_epoch(year, month, day)
    return days * 86400 + found["15"] * 3600 + found["04"] * 60 + found["05"] - found["Z07:00"]


def _days_from_epoch(year: int, month: int, day: int) -> int:
    """In the Gregorian calendar, also in the year 0, which ``datetime`` does not know."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def _element(element: str, rest: str) -> tuple[int, str] | None:
    """The value of one element and what is behind it; None when it cannot be read."""
    if element == "2006":
        return (int(rest[:4]), rest[4:]) if re.match(r"[0-9]{4}", rest) else None
    if element == ".999999999":
        match = re.match(r"[.,]([0-9]+)", rest)
        return (int(match[1][:9].ljust(9, "0")), rest[match.end() :]) if match else (0, rest)
    if element == "Z07:00":
        return _zone(rest)
    match = re.match(r"[0-9]{1,2}" if element == "15" else r"[0-9]{2}", rest)
    return (int(match[0]), rest[match.end() :]) if match else None


def _zone(rest: str) -> tuple[int, str] | None:
    """Seconds east of Greenwich."""
    if rest.startswith("Z"):
        return 0, rest[1:]
    match = re.match(r"([+-])([0-9]{2}):([0-9]{2})", rest)
    if not match or int(match[2]) > 24 or int(match[3]) > 60:
        return None
    seconds = int(match[2]) * 3600 + int(match[3]) * 60
    return (-seconds if match[1] == "-" else seconds), rest[6:]


def _cannot(text: str, rest: str, element: str) -> ValueError:
    return ValueError(
        f"parsing time {quoted(text)} as {quoted(RFC3339_NANO)}: cannot parse {quoted(rest)} as {quoted(element)}"
    )


def quoted(text: str) -> str:
    """In double quotes; what is not printable ASCII as ``\\x`` and two digits for each byte."""
    parts = []
    for char in text:
        if char in '"\\':
            parts.append("\\" + char)
        elif " " <= char < "\x7f" or char == "\x7f":
            parts.append(char)
        else:
            parts += [f"\\x{byte:02x}" for byte in char.encode("utf-8", "replace")]
    return '"' + "".join(parts) + '"'


def parse_number(text: str, low: int, high: int) -> int:
    """A number of a query, from ``low`` to ``high``: decimal, or with 0x, 0o, 0b, 0 before it (strconv, base 0)."""
    function = "ParseUint" if low == 0 else "ParseInt"
    value = _number(text, signed=low < 0) if len(text) <= LONGEST_NUMBER else None
    if value is None:
        raise ValueError(f"strconv.{function}: parsing {_shown(text)}: invalid syntax")
    if not low <= value <= high:
        raise ValueError(f"strconv.{function}: parsing {_shown(text)}: value out of range")
    return value


def _shown(text: str) -> str:
    return quoted(text[:LONGEST_NUMBER])


def _number(text: str, signed: bool) -> int | None:
    sign = text[:1] if signed and text[:1] in ("+", "-") else ""
    digits = text[len(sign) :].lower()
    base = _PREFIXES.get(digits[:2], 8 if digits[:1] == "0" and len(digits) > 1 else 10)
    prefix = 2 if digits[:2] in _PREFIXES else 1 if base == 8 else 0
    # An underscore may stand between digits, and between the prefix and them.
    if "__" in digits or digits.endswith("_") or digits.startswith("_"):
        return None
    plain = digits[prefix:].replace("_", "")
    if not plain or any(digit not in _DIGITS[base] for digit in plain):
        return None
    return -int(plain, base) if sign == "-" else int(plain, base)
