"""Timestamps of syslog headers, parsed as whole columns: RFC 3164, ISO 8601, and variants of devices.

A time without a year gets the year that puts it nearest to its receipt. A time without a zone, or with the name of a
zone that several countries use, is in the listener's zone; if clocks are set back and the time occurs twice, the
occurrence nearest to its receipt is meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import from_numpy, values_of
from penstock.wire.datagrams import Bytes, Ints, spans
from penstock.wire.syslog.octets import Bools, Octets, Spans

MAX_TIME_BYTES = 40
"""Limit: a longer text is not a time; it bounds the matrix of texts."""
_MAX_FRACTION_DIGITS = 9
"""Limit: digits of a fraction of a second."""
_TEMPLATE = np.frombuffer(b"0000-00-00T00:00:00.000000Z", np.uint8)
_POINT_INDEX = 19
_MONTHS = b"JanFebMarAprMayJunJulAugSepOctNovDec"
_MINUTE_US, _QUARTER_US, _DAY_US = 60_000_000, 900_000_000, 86_400_000_000
_HALF_YEAR_DAYS = 183
_ZERO, _SPACE, _DASH, _COLON, _SLASH = ord("0"), ord(" "), ord("-"), ord(":"), ord("/")
_ZONES = {
    -600: "HST",
    -540: "AKST",
    -480: "PST AKDT",
    -420: "MST PDT",
    -360: "MDT",
    -300: "EST CDT",
    -240: "EDT",
    0: "UTC UT GMT WET",
    60: "WEST CET MET",
    120: "CEST MEST EET SAST",
    180: "EEST MSK",
    480: "HKT AWST",
    540: "JST KST",
    570: "ACST",
    600: "AEST",
    630: "ACDT",
    660: "AEDT",
    720: "NZST",
    780: "NZDT",
}
"""Names of zones by their minutes ahead of UTC; American names as in RFC 5322, section 4.3."""
_MINUTES_OF_ZONE = {name: minutes for minutes, names in _ZONES.items() for name in names.split()}
STAMP = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ 123][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}"
"""Pattern of RFC 3164's time."""
RFC3339 = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
"""Pattern of RFC 3339's time with a zone."""
_BASIC = r"\A(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)"
_STAMP, _RFC3339 = re.compile(STAMP), re.compile(RFC3339)
_SHARED_ZONE_NAMES = ("BST", "CST", "IST")
"""Names that mean another zone in another country: the listener's zone decides."""
ZONE_NAMES = (*_MINUTES_OF_ZONE, *_SHARED_ZONE_NAMES)


@dataclass(frozen=True, slots=True)
class Offsets:
    """Minutes ahead of UTC that are stated after the times (int64), and a mask of the rows that state them."""

    minutes: Ints
    is_known: Bools


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds since the epoch (int64), a mask of readable times, and a mask of RFC 3339 texts with a zone."""

    micros: Ints
    is_valid: Bools
    is_rfc3339: Bools

    def column(self) -> pa.Array[Any]:
        """Return timestamps in UTC; null for unreadable texts."""
        return from_numpy(self.micros, ~self.is_valid).cast(pa.timestamp("us", "UTC"))

    def format_rfc3339(self, rows: Ints) -> pa.Array[Any]:
        """Return the readable times of ``rows`` as RFC 3339 in UTC, type binary."""
        micros = self.micros[rows]
        moments = micros.astype("datetime64[us]")
        months = moments.astype("datetime64[M]").astype(np.int64)
        day = (moments.astype("datetime64[D]") - moments.astype("datetime64[M]")).astype(np.int64) + 1
        seconds, fraction = micros % _DAY_US // 1_000_000, micros % 1_000_000
        numbers: list[tuple[int, Ints]] = [
            (4, 1970 + months // 12),
            (2, months % 12 + 1),
            (2, day),
            (2, seconds // 3600),
        ]
        numbers += [(2, seconds // 60 % 60), (2, seconds % 60), (6, fraction)]
        text = np.tile(_TEMPLATE, (len(rows), 1))
        begin = 0
        for width, number in numbers:
            for digit in range(width):
                text[:, begin + digit] = number // 10 ** (width - 1 - digit) % 10 + _ZERO
            begin += width + 1
        text[fraction == 0, _POINT_INDEX] = ord("Z")
        begins = np.arange(len(rows)) * text.shape[1]
        return spans(text, begins, begins + np.where(fraction == 0, _POINT_INDEX + 1, text.shape[1]))


def read_times(
    octets: Octets, ranges: Spans, received: Ints, zone: tzinfo | None, offsets: Offsets | None = None
) -> Times:
    """Parse the texts in ``ranges`` (empty if missing).

    ``received``: microseconds since the epoch, one per row or one for all. ``zone``: zone of times without one; None
    for this machine's. ``offsets``: offsets that are stated outside of ``ranges``.
    """
    text = _Texts(octets, ranges)
    if not text.is_valid.any():
        return Times(text.zeros, text.is_valid, text.is_valid)
    is_basic = _has_basic_format(text)
    if is_basic.any():
        text = _Texts(*_extended_format(octets, ranges, is_basic))
    is_iso = _has_numeric_date(text)
    days, clock_at, year_at = _month_name_days(text, ~is_iso, received) if not is_iso.all() else (text.zeros,) * 3
    if is_iso.any():
        days, clock_at = np.where(is_iso, _iso_days(text, is_iso), days), np.where(is_iso, 11, clock_at)
    micros = days * _DAY_US + _time_of_day(text, _common_position(clock_at))
    fraction_at = _common_position(clock_at + 8)
    fraction, zone_at = _fraction(text, fraction_at)
    minutes, end = _offset(text, _common_position(zone_at))
    text.require((end == text.lengths) | ((year_at > 0) & (end + 1 == year_at)))
    is_local = end == zone_at
    if offsets is not None:
        minutes = np.where(is_local & offsets.is_known, offsets.minutes, minutes)
        is_local = is_local & ~offsets.is_known
    plain = (
        text.is_valid
        & is_iso
        & ~is_basic
        & (end > zone_at)
        & (text.byte_at(10) == ord("T"))
        & _is_rfc3339(text, fraction_at, _common_position(zone_at))
    )
    if zone is not UTC and (needs_zone := text.is_valid & is_local).any():
        minutes[needs_zone] = _local_minutes(
            micros[needs_zone], zone, np.broadcast_to(received, micros.shape)[needs_zone]
        )
    return Times(micros + fraction - minutes * _MINUTE_US, text.is_valid, plain)


def format_time(text: bytes, received: int, zone: tzinfo | None) -> str | None:
    """Return RFC 3164's time, or RFC 3339's with a zone, as the columns do; None for any other.

    ``received``: microseconds since the epoch.
    """
    if _RFC3339.fullmatch(text):
        return text.decode()
    return format_stamp(text.decode(), received, zone) if _STAMP.fullmatch(text) else None


def format_stamp(stamp: str, received: int, zone: tzinfo | None) -> str | None:
    """Return RFC 3164's time (``Oct  1 22:14:15``) as RFC 3339 in UTC, as the columns do.

    ``received``: microseconds since the epoch. None for a rare time: a leap day, a leap second, one that ``zone`` has
    twice or never, or one outside of the calendar.
    """
    return _stamp_in_quarter(stamp, received // _QUARTER_US, zone)


@lru_cache(maxsize=1024)
def _stamp_in_quarter(stamp: str, quarter_of_receipt: int, zone: tzinfo | None) -> str | None:
    # Only the month of the receipt matters, which is that of its quarter of an hour.
    now = _start_of_quarter(quarter_of_receipt)
    month, day = _MONTHS.decode().index(stamp[:3]) // 3 + 1, int(stamp[4:6])
    ahead = month - now.month
    try:
        time = (int(stamp[7:9]), int(stamp[10:12]), int(stamp[13:15]))
        local = datetime(now.year + (ahead < -6) - (ahead > 6), month, day, *time)
    except ValueError:
        return None
    if month == 2 and day == 29:
        return None
    if zone is not UTC:
        quarter = (local - datetime(1970, 1, 1)) // timedelta(minutes=15)
        minutes = _minutes_ahead(zone, quarter, 0)
        if minutes != _minutes_ahead(zone, quarter, 1):
            return None
        local -= timedelta(minutes=minutes)
    return f"{local.isoformat()}Z"


def read_offsets(zone_names: pa.Array[Any], received: Ints, zone: tzinfo | None) -> Offsets:
    """Return the offsets of ``zone_names`` (type binary, null if missing): names, or ``+0200`` and ``+02:00``.

    ``received`` and ``zone`` as for ``read_times``: names of the listener's zone precede names of other countries.
    """
    zone_names = zone_names.cast(pa.string())
    names = pc.unique(zone_names.drop_null())
    by_name = _MINUTES_OF_ZONE | _minutes_of_own_names(zone, int(received[0]) if len(received) else 0)
    minutes = [
        _minutes_of_text(text) if text[0] in "+-" else by_name.get(text, by_name.get(text.upper()))
        for text in values_of(names)
    ]
    column = pa.array(minutes, pa.int64()).take(pc.index_in(zone_names, names))
    return Offsets(column.fill_null(0).to_numpy(zero_copy_only=False), column.is_valid().to_numpy(zero_copy_only=False))


def _minutes_of_text(offset: str) -> int:
    minutes = int(offset[1:3]) * 60 + int(offset[-2:])
    return -minutes if offset[0] == "-" else minutes


@lru_cache(maxsize=64)
def _own_names(zone: tzinfo | None, year: int) -> dict[str, int]:
    halves = [datetime(year, month, 1, tzinfo=UTC).astimezone(zone) for month in (1, 7)]
    return {moment.tzname() or "": round((moment.utcoffset() or timedelta()).total_seconds() / 60) for moment in halves}


def _minutes_of_own_names(zone: tzinfo | None, received: int) -> dict[str, int]:
    return _own_names(zone, 1970 + int(np.int64(received).astype("datetime64[us]").astype("datetime64[Y]").astype(int)))


class _Texts:
    """Texts as a matrix of bytes; ``is_valid`` marks the texts that may still be a time."""

    def __init__(self, octets: Octets, ranges: Spans) -> None:
        self.lengths: Ints = ranges.ends - ranges.begins
        self.zeros: Ints = np.zeros(len(ranges.begins), np.int64)
        self.is_valid: Bools = (self.lengths > 0) & (self.lengths <= MAX_TIME_BYTES)
        width = int(min(self.lengths.max(initial=0), MAX_TIME_BYTES)) + 1
        self._columns = np.ascontiguousarray(octets.head(ranges.begins, ranges.ends, width).T)
        self._rows = np.arange(len(ranges.begins))

    def byte_at(self, positions: Ints | int) -> Ints:
        """Return the byte of each row at its position, or at one position of all; 0 after its end."""
        last = len(self._columns) - 1
        octets: Bytes
        # Fast path: one position of all rows is a view on a column, without a gather.
        if isinstance(positions, int):
            octets = self._columns[min(positions, last)]
        else:
            octets = self._columns[np.minimum(positions, last), self._rows]
        return octets.astype(np.int64)

    def number(self, positions: Ints | int, width: int, where: Bools | None = None) -> Ints:
        """Return the number of ``width`` digits at each position; rows in ``where`` without digits are not times."""
        digits = np.stack([self.byte_at(positions + digit) for digit in range(width)]) - _ZERO
        is_digit = (digits >= 0) & (digits <= 9)
        self.require(np.logical_and.reduce(is_digit, axis=0), where)
        number: Ints = 10 ** np.arange(width - 1, -1, -1) @ digits
        return number

    def require(self, condition: Bools, where: Bools | None = None) -> None:
        """Mark rows (of ``where``) that do not meet ``condition`` as no times."""
        self.is_valid &= condition if where is None else condition | ~where


def _common_position(positions: Ints) -> Ints | int:
    """Return the position as one number if all rows share it: reads of columns are then views."""
    return int(positions[0]) if (positions == positions[0]).all() else positions


def _has_basic_format(text: _Texts) -> Bools:
    """Report which texts begin as ISO 8601's basic format, ``20261011T221415``."""
    is_basic: Bools = (text.byte_at(8) == ord("T")) & (text.byte_at(4) >= _ZERO) & (text.byte_at(4) <= _ZERO + 9)
    return is_basic


def _extended_format(octets: Octets, ranges: Spans, rows: Bools) -> tuple[Octets, Spans]:
    """Return all texts, with the hyphens and colons of the extended format in ``rows``."""
    texts = octets.texts(ranges.begins, ranges.ends)
    extended = Octets(pc.if_else(rows, pc.replace_substring_regex(texts, _BASIC, r"\1-\2-\3T\4:\5:\6"), texts))
    return extended, Spans(extended.starts, extended.stops)


def _has_numeric_date(text: _Texts) -> Bools:
    """Report which texts begin as ``2026-10-11``, Sophos' ``2026:10:11-`` or NetScaler's ``10/11/2026:``."""
    is_numeric: Bools = (
        (text.byte_at(4) == _DASH)
        | ((text.byte_at(4) == _COLON) & (text.byte_at(10) == _DASH))
        | (text.byte_at(2) == _SLASH)
    )
    return is_numeric


def _iso_days(text: _Texts, rows: Bools) -> Ints:
    """Return the days since the epoch of numeric dates."""
    slashed = rows & (text.byte_at(2) == _SLASH)
    colons = rows & ~slashed & (text.byte_at(4) == _COLON)
    year_at, month_at, day_at = np.where(slashed, 6, 0), np.where(slashed, 0, 5), np.where(slashed, 3, 8)
    if not slashed.any():
        year, month, day = text.number(0, 4, rows), text.number(5, 2, rows), text.number(8, 2, rows)
    else:
        year, month, day = text.number(year_at, 4, rows), text.number(month_at, 2, rows), text.number(day_at, 2, rows)
    second, separator = text.byte_at(7), text.byte_at(10)
    text.require((second == _DASH) & ((separator == ord("T")) | (separator == _SPACE)), rows & ~slashed & ~colons)
    text.require((second == _COLON) & (separator == _DASH), colons)
    text.require((text.byte_at(5) == _SLASH) & (separator == _COLON), slashed)
    return _days(text, rows, year, month, day)


def _month_name_days(text: _Texts, rows: Bools, received: Ints) -> tuple[Ints, Ints, Ints]:
    """Return days since the epoch of ``Oct  1``, ``Oct 1 2026`` and ``2026 Oct 1``, the start of the time, and that of
    a year at the end of the text, 0 without one.
    """
    leads = (text.byte_at(0) <= ord("9")) & rows
    month_at = 5 * leads
    position = _common_position(month_at)
    month = _month(text, position)
    tens, units = text.byte_at(position + 4), text.byte_at(position + 5)
    single = units == _SPACE
    day = np.where(single, tens - _ZERO, np.where(tens == _SPACE, 0, tens - _ZERO) * 10 + units - _ZERO)
    clock_at = month_at + 7 - single
    follows = (text.byte_at(_common_position(clock_at + 4)) == _SPACE) & ~leads & rows
    year = _year_of_receipt(month, received)
    if (is_leap_day := rows & (month == 2) & (day == 29)).any():
        year = np.where(is_leap_day, _leap_year_of_receipt(np.broadcast_to(received, month.shape), is_leap_day), year)
    is_last = rows & ~leads & ~follows & (text.byte_at(_common_position(np.maximum(text.lengths - 5, 0))) == _SPACE)
    year_at = np.where(is_last, text.lengths - 4, 0)
    if (has_year := leads | follows | is_last).any():
        position_of_year = np.where(leads, 0, np.where(is_last, year_at, clock_at))
        year = np.where(has_year, text.number(position_of_year, 4, has_year), year)
    return _days(text, rows, year, month, day), clock_at + 5 * follows, year_at


def _month(text: _Texts, position: Ints | int) -> Ints:
    """Return the number of the month named there, in any case; 0 if there is none."""
    first, *others = (text.byte_at(position + index) for index in range(3))
    code = (first & ~0x20) << 16 | (others[0] | 0x20) << 8 | others[1] | 0x20
    index = np.minimum(np.searchsorted(_SORTED_CODES, code), 11)
    return np.where(_SORTED_CODES[index] == code, _MONTH_OF_CODE[index], 0)


_CODES = np.array([int.from_bytes(_MONTHS[3 * month : 3 * month + 3]) for month in range(12)], np.int64)
_MONTH_OF_CODE: Ints = np.argsort(_CODES) + 1
_SORTED_CODES = np.sort(_CODES)


def _year_of_receipt(month: Ints, received: Ints) -> Ints:
    """Return the year that puts a time of ``month`` nearest to its receipt."""
    months = received.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
    ahead = month - 1 - months % 12
    return 1970 + months // 12 + (ahead < -6) - (ahead > 6)


def _leap_year_of_receipt(received: Ints, rows: Bools) -> Ints:
    """Return the last leap year whose 29 February is at most half a year after the receipt of ``rows``; 0 for other
    rows.
    """
    days = received[rows] // _DAY_US
    # Limit: leap years are at most eight years apart.
    years = (1970 + days.astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64))[:, None] + np.arange(-8, 2)
    last_of_february = _first_day((years - 1970) * 12 + 2) - 1
    is_leap = last_of_february - _first_day((years - 1970) * 12 + 1) == 28
    is_candidate = is_leap & (last_of_february - days[:, None] <= _HALF_YEAR_DAYS)
    leap_years = np.zeros(len(rows), np.int64)
    leap_years[rows] = np.where(is_candidate, years, 0).max(axis=1)
    return leap_years


def _days(text: _Texts, rows: Bools, year: Ints, month: Ints, day: Ints) -> Ints:
    """Return days since the epoch; a day outside the calendar is not a time."""
    text.require((year >= 1) & (year <= 9998) & (month >= 1) & (month <= 12), rows)
    months = (year - 1970) * 12 + month - 1
    first, following = _first_day(months), _first_day(months + 1)
    text.require((day >= 1) & (first + day <= following), rows)
    return first + day - 1


def _first_day(months: Ints) -> Ints:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _time_of_day(text: _Texts, position: Ints | int) -> Ints:
    """Return the microseconds of ``22:14:15``; second 60 belongs to the next minute."""
    hour, minute, second = (text.number(position + offset, 2) for offset in (0, 3, 6))
    text.require((text.byte_at(position + 2) == ord(":")) & (text.byte_at(position + 5) == ord(":")))
    text.require((hour < 24) & (minute < 60) & (second <= 60))
    return ((hour * 60 + minute) * 60 + second) * 1_000_000


def _fraction(text: _Texts, positions: Ints | int) -> tuple[Ints, Ints]:
    """Return the microseconds of ``.003`` or ``,003``, and the end of the fraction; finer digits are dropped."""
    micros, end, scale = text.zeros, text.zeros + positions, 100_000
    mark = text.byte_at(positions)
    going = (mark == ord(".")) | (mark == ord(","))
    for index in range(_MAX_FRACTION_DIGITS + 1):
        if not going.any():
            break
        end = end + going
        digit = text.byte_at(positions + 1 + index) - _ZERO
        going = going & (digit >= 0) & (digit <= 9)
        text.require((index > 0) | going | (end == positions))
        micros, scale = micros + scale * np.where(going, digit, 0), scale // 10
    return micros, end


def _offset(text: _Texts, positions: Ints | int) -> tuple[Ints, Ints]:
    """Return the minutes of ``+02:00``, ``+0200``, ``+02`` or ``Z``, and the end of the offset, or its start if
    missing.
    """
    sign = text.byte_at(positions)
    is_offset = (sign == ord("+")) | (sign == _DASH)
    end = positions + (sign == ord("Z"))
    if not is_offset.any():
        return text.zeros.copy(), end
    colon = text.byte_at(positions + 3) == ord(":")
    short = is_offset & (text.lengths == positions + 3)
    hours = text.number(positions + 1, 2, is_offset)
    minutes = np.where(short, 0, text.number(positions + 3 + colon, 2, is_offset & ~short))
    text.require((hours < 24) & (minutes < 60), is_offset)
    total = np.where(is_offset, (hours * 60 + minutes) * np.where(sign == _DASH, -1, 1), 0)
    return total, np.where(is_offset, np.where(short, positions + 3, positions + 5 + colon), end)


def _is_rfc3339(text: _Texts, fraction_at: Ints | int, zone_at: Ints | int) -> Bools:
    """Report whether fraction and zone have RFC 3339's form: a point, and a colon."""
    zulu = text.byte_at(zone_at) == ord("Z")
    is_standard: Bools = (text.byte_at(fraction_at) != ord(",")) & (zulu | (text.byte_at(zone_at + 3) == ord(":")))
    return is_standard


def _local_minutes(micros: Ints, zone: tzinfo | None, received: Ints) -> Ints:
    """Return the minutes that ``zone`` is ahead of UTC at these local times.

    A time that occurs twice, when clocks are set back, is the occurrence nearest to its receipt.
    """
    # Zones change on quarters of an hour, so one lookup serves all times of a quarter.
    quarters, indices = np.unique(micros // _QUARTER_US, return_inverse=True)
    minutes = np.array([[_minutes_ahead(zone, quarter, fold) for fold in (0, 1)] for quarter in quarters.tolist()])
    first, second = minutes[indices].T.astype(np.int64)
    # Times that do not occur, when clocks are set forward, have the smaller offset first.
    is_nearer = np.abs(micros - second * _MINUTE_US - received) < np.abs(micros - first * _MINUTE_US - received)
    ahead: Ints = np.where((first > second) & is_nearer, second, first)
    return ahead


@lru_cache(maxsize=4096)
def _minutes_ahead(zone: tzinfo | None, quarter: int, fold: int) -> int:
    local = _start_of_quarter(quarter).replace(fold=fold)
    offset = (local.astimezone() if zone is None else local.replace(tzinfo=zone)).utcoffset()
    return round((offset or timedelta()).total_seconds() / 60)


def _start_of_quarter(quarter: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(minutes=15 * quarter)
