"""Times of syslog headers, whole columns at a time: RFC 3164's, ISO 8601's, and what devices make of them.

A time without a year gets the one that brings it nearest to its receipt; one without a zone is of the listener's, and
the nearest to its receipt, too, where the listener's clock is set back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.records import from_numpy
from penstock.wire.datagrams import Bytes, Ints, spans
from penstock.wire.syslog.octets import Bools, Octets, Spans

LONGEST = 40
"""Bytes of a time; what is longer is none."""
_FRACTION = 9
"""Digits of a fraction of a second at most."""
_WRITTEN = np.frombuffer(b"0000-00-00T00:00:00.000000Z", np.uint8)
_POINT = 19
_MONTHS = b"JanFebMarAprMayJunJulAugSepOctNovDec"
_MINUTE, _QUARTER, _DAY = 60_000_000, 900_000_000, 86_400_000_000
_ZERO, _SPACE, _DASH, _COLON, _SLASH = ord("0"), ord(" "), ord("-"), ord(":"), ord("/")


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds since the epoch (int64), where they are known, and which texts are RFC 3339 with a zone already."""

    micros: Ints
    known: Bools
    is_rfc3339: Bools

    def column(self) -> pa.Array[Any]:
        """As timestamps in UTC; null where the text is no time."""
        return from_numpy(self.micros, ~self.known).cast(pa.timestamp("us", "UTC"))

    def written(self, rows: Ints) -> pa.Array[Any]:
        """Those of ``rows``, all known, as RFC 3339 in UTC, type binary."""
        micros = self.micros[rows]
        moments = micros.astype("datetime64[us]")
        months = moments.astype("datetime64[M]").astype(np.int64)
        day = (moments.astype("datetime64[D]") - moments.astype("datetime64[M]")).astype(np.int64) + 1
        seconds, fraction = micros % _DAY // 1_000_000, micros % 1_000_000
        numbers: list[tuple[int, Ints]] = [
            (4, 1970 + months // 12),
            (2, months % 12 + 1),
            (2, day),
            (2, seconds // 3600),
        ]
        numbers += [(2, seconds // 60 % 60), (2, seconds % 60), (6, fraction)]
        text = np.tile(_WRITTEN, (len(rows), 1))
        at = 0
        for width, number in numbers:
            for place in range(width):
                text[:, at + place] = number // 10 ** (width - 1 - place) % 10 + _ZERO
            at += width + 1
        text[fraction == 0, _POINT] = ord("Z")
        begins = np.arange(len(rows)) * text.shape[1]
        return spans(text, begins, begins + np.where(fraction == 0, _POINT + 1, text.shape[1]))


def read_times(
    octets: Octets, places: Spans, received: Ints, zone: tzinfo | None, in_utc: Bools | None = None
) -> Times:
    """What stands at ``places`` (empty where no time does) means.

    ``received``: microseconds since the epoch, one a row, or one for all. ``zone``: of times that name none; None is
    this machine's. ``in_utc``: rows that are known to be in UTC, whatever they name.
    """
    text = _Texts(octets, places)
    if not text.ok.any():
        return Times(text.zeros, text.ok, text.ok)
    is_iso = _has_numeric_date(text)
    days, clock_at = _month_name_days(text, ~is_iso, received) if not is_iso.all() else (text.zeros, text.zeros)
    if is_iso.any():
        days, clock_at = np.where(is_iso, _iso_days(text, is_iso), days), np.where(is_iso, 11, clock_at)
    micros = days * _DAY + _time_of_day(text, _one(clock_at))
    fraction, zone_at = _fraction(text, clock_at + 8)
    minutes, end = _offset(text, zone_at)
    text.keep(end == text.lengths)
    is_local = (end == zone_at) if in_utc is None else (end == zone_at) & ~in_utc
    plain = text.ok & is_iso & (end > zone_at) & (text.at(10) == ord("T")) & _is_rfc3339(text, clock_at + 8, zone_at)
    if zone is not UTC and (wanting := text.ok & is_local).any():
        minutes[wanting] = _local_minutes(micros[wanting], zone, np.broadcast_to(received, micros.shape)[wanting])
    return Times(micros + fraction - minutes * _MINUTE, text.ok, plain)


class _Texts:
    """Texts as a matrix of bytes, and which of them are as a time should be so far (``ok``)."""

    def __init__(self, octets: Octets, places: Spans) -> None:
        self.lengths: Ints = places.ends - places.begins
        self.zeros: Ints = np.zeros(len(octets), np.int64)
        self.ok: Bools = (self.lengths > 0) & (self.lengths <= LONGEST)
        width = int(min(self.lengths.max(initial=0), LONGEST)) + 1
        self._columns = np.ascontiguousarray(octets.head(places.begins, places.ends, width).T)
        self._rows = np.arange(len(octets))

    def at(self, places: Ints | int) -> Ints:
        """The byte of each row at its place, or at one place of all; 0 behind its end."""
        last = len(self._columns) - 1
        octets: Bytes
        if isinstance(places, int):
            octets = self._columns[min(places, last)]
        else:
            octets = self._columns[np.minimum(places, last), self._rows]
        return octets.astype(np.int64)

    def number(self, places: Ints | int, width: int, where: Bools | None = None) -> Ints:
        """The number of ``width`` digits at each row's place; what is none is no time, in the rows ``where``."""
        digits = np.stack([self.at(places + place) for place in range(width)]) - _ZERO
        good = (digits >= 0) & (digits <= 9)
        self.keep(np.logical_and.reduce(good, axis=0), where)
        value: Ints = 10 ** np.arange(width - 1, -1, -1) @ digits
        return value

    def keep(self, condition: Bools, where: Bools | None = None) -> None:
        """Rows (of those ``where``) for which ``condition`` does not hold are no times."""
        self.ok &= condition if where is None else condition | ~where


def _one(places: Ints) -> Ints | int:
    """The place of all rows where they have the same: columns are read at once there."""
    return int(places[0]) if (places == places[0]).all() else places


def _has_numeric_date(text: _Texts) -> Bools:
    """Which texts begin as ``2026-10-11``, Sophos' ``2026:10:11-`` or NetScaler's ``10/11/2026:``."""
    found: Bools = (text.at(4) == _DASH) | ((text.at(4) == _COLON) & (text.at(10) == _DASH)) | (text.at(2) == _SLASH)
    return found


def _iso_days(text: _Texts, rows: Bools) -> Ints:
    """Days since the epoch of a numeric date."""
    slashed = rows & (text.at(2) == _SLASH)
    colons = rows & ~slashed & (text.at(4) == _COLON)
    year_at, month_at, day_at = np.where(slashed, 6, 0), np.where(slashed, 0, 5), np.where(slashed, 3, 8)
    if not slashed.any():
        year, month, day = text.number(0, 4, rows), text.number(5, 2, rows), text.number(8, 2, rows)
    else:
        year, month, day = text.number(year_at, 4, rows), text.number(month_at, 2, rows), text.number(day_at, 2, rows)
    second, separator = text.at(7), text.at(10)
    text.keep((second == _DASH) & ((separator == ord("T")) | (separator == _SPACE)), rows & ~slashed & ~colons)
    text.keep((second == _COLON) & (separator == _DASH), colons)
    text.keep((text.at(5) == _SLASH) & (separator == _COLON), slashed)
    return _days(text, rows, year, month, day)


def _month_name_days(text: _Texts, rows: Bools, received: Ints) -> tuple[Ints, Ints]:
    """Days since the epoch of ``Oct  1``, ``Oct 1 2026`` and ``2026 Oct 1``, and where the time of day begins."""
    leads = (text.at(0) <= ord("9")) & rows
    month_at = 5 * leads
    at = _one(month_at)
    month = _month(text, at)
    tens, ones = text.at(at + 4), text.at(at + 5)
    single = ones == _SPACE
    day = np.where(single, tens - _ZERO, np.where(tens == _SPACE, 0, tens - _ZERO) * 10 + ones - _ZERO)
    clock_at = month_at + 7 - single
    follows = (text.at(_one(clock_at + 4)) == _SPACE) & ~leads & rows
    year = _year_of_receipt(month, received)
    if (given := leads | follows).any():
        year = np.where(given, text.number(np.where(leads, 0, clock_at), 4, given), year)
    return _days(text, rows, year, month, day), clock_at + 5 * follows


def _month(text: _Texts, at: Ints | int) -> Ints:
    """The number of the month whose name stands there; 0 where none does."""
    code = text.at(at) << 16 | text.at(at + 1) << 8 | text.at(at + 2)
    place = np.minimum(np.searchsorted(_SORTED_CODES, code), 11)
    return np.where(_SORTED_CODES[place] == code, _MONTH_OF_CODE[place], 0)


_CODES = np.array([int.from_bytes(_MONTHS[3 * month : 3 * month + 3]) for month in range(12)], np.int64)
_MONTH_OF_CODE: Ints = np.argsort(_CODES) + 1
_SORTED_CODES = np.sort(_CODES)


def _year_of_receipt(month: Ints, received: Ints) -> Ints:
    """The year that brings a time of that month nearest to its receipt."""
    months = received.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
    ahead = month - 1 - months % 12
    return 1970 + months // 12 + (ahead < -6) - (ahead > 6)


def _days(text: _Texts, rows: Bools, year: Ints, month: Ints, day: Ints) -> Ints:
    """Days since the epoch; what is no day of the calendar is no time."""
    text.keep((year >= 1) & (year <= 9998) & (month >= 1) & (month <= 12), rows)
    months = (year - 1970) * 12 + month - 1
    first, following = _first_day(months), _first_day(months + 1)
    text.keep((day >= 1) & (first + day <= following), rows)
    return first + day - 1


def _first_day(months: Ints) -> Ints:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _time_of_day(text: _Texts, at: Ints | int) -> Ints:
    """Microseconds of ``22:14:15``; the 60th second is one of the next minute."""
    hour, minute, second = (text.number(at + place, 2) for place in (0, 3, 6))
    text.keep((text.at(at + 2) == ord(":")) & (text.at(at + 5) == ord(":")))
    text.keep((hour < 24) & (minute < 60) & (second <= 60))
    return ((hour * 60 + minute) * 60 + second) * 1_000_000


def _fraction(text: _Texts, at: Ints) -> tuple[Ints, Ints]:
    """Microseconds of ``.003`` or ``,003``, and where it ends; what is finer is left out."""
    micros, end, scale = text.zeros, at, 100_000
    mark = text.at(at)
    going = (mark == ord(".")) | (mark == ord(","))
    for place in range(_FRACTION + 1):
        if not going.any():
            break
        end = end + going
        digit = text.at(at + 1 + place) - _ZERO
        going = going & (digit >= 0) & (digit <= 9)
        text.keep((place > 0) | going | (end == at))
        micros, scale = micros + scale * np.where(going, digit, 0), scale // 10
    return micros, end


def _offset(text: _Texts, at: Ints) -> tuple[Ints, Ints]:
    """Minutes of ``+02:00``, ``+0200``, ``+02`` and ``Z``, and where it ends: where it began, if nothing is there."""
    sign = text.at(at)
    is_offset = (sign == ord("+")) | (sign == _DASH)
    end = at + (sign == ord("Z"))
    if not is_offset.any():
        return text.zeros.copy(), end
    colon = text.at(at + 3) == ord(":")
    short = is_offset & (text.lengths == at + 3)
    hours = text.number(at + 1, 2, is_offset)
    minutes = np.where(short, 0, text.number(at + 3 + colon, 2, is_offset & ~short))
    text.keep((hours < 24) & (minutes < 60), is_offset)
    total = np.where(is_offset, (hours * 60 + minutes) * np.where(sign == _DASH, -1, 1), 0)
    return total, np.where(is_offset, np.where(short, at + 3, at + 5 + colon), end)


def _is_rfc3339(text: _Texts, fraction_at: Ints, zone_at: Ints) -> Bools:
    """Whether fraction and zone are as RFC 3339 has them: a point, and a colon."""
    zulu = text.at(zone_at) == ord("Z")
    found: Bools = (text.at(fraction_at) != ord(",")) & (zulu | (text.at(zone_at + 3) == ord(":")))
    return found


def _local_minutes(micros: Ints, zone: tzinfo | None, received: Ints) -> Ints:
    """Return by how many minutes ``zone`` is ahead of UTC at these local times.

    A time that occurs twice, when clocks are set back, is the one nearest to its receipt.
    """
    quarters, which = np.unique(micros // _QUARTER, return_inverse=True)
    minutes = np.array([[_minutes_ahead(zone, quarter, fold) for fold in (0, 1)] for quarter in quarters.tolist()])
    first, second = minutes[which].T.astype(np.int64)
    # Times that do not occur, when clocks are set forward, are ahead by less at first.
    is_nearer = np.abs(micros - second * _MINUTE - received) < np.abs(micros - first * _MINUTE - received)
    ahead: Ints = np.where((first > second) & is_nearer, second, first)
    return ahead


@lru_cache(maxsize=4096)
def _minutes_ahead(zone: tzinfo | None, quarter: int, fold: int) -> int:
    local = (datetime(1970, 1, 1) + timedelta(minutes=15 * quarter)).replace(fold=fold)
    offset = (local.astimezone() if zone is None else local.replace(tzinfo=zone)).utcoffset()
    return round((offset or timedelta()).total_seconds() / 60)
