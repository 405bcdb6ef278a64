"""Times of syslog headers, as devices and programs write them."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.syslog.octets import Octets, Spans
from penstock.wire.syslog.times import Times, read_times

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
RECEIVED = "2026-11-22T10:00:00+00:00"


def read(*texts: bytes, received: str = RECEIVED, zone: tzinfo | None = UTC) -> Times:
    octets = Octets(pa.array(texts, pa.binary()))
    when = np.array([datetime.fromisoformat(received).timestamp() * 1_000_000], np.int64)
    return read_times(octets, Spans(octets.starts, octets.stops), when, zone)


def moments(*texts: bytes, received: str = RECEIVED, zone: tzinfo | None = UTC) -> list[str | None]:
    column = read(*texts, received=received, zone=zone).column().to_pylist()
    return [moment and moment.isoformat() for moment in column]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        (b"Oct 11 22:14:15", "2026-10-11T22:14:15+00:00"),
        (b"Oct  1 22:14:15", "2026-10-01T22:14:15+00:00"),
        (b"Oct 1 22:14:15", "2026-10-01T22:14:15+00:00"),
        (b"Oct 11 22:14:15.25", "2026-10-11T22:14:15.250000+00:00"),
        (b"Oct 11 22:14:15,003", "2026-10-11T22:14:15.003000+00:00"),
        (b"Oct 11 2024 22:14:15", "2024-10-11T22:14:15+00:00"),
        (b"Oct 1 2024 22:14:15.123456789", "2024-10-01T22:14:15.123456+00:00"),
        (b"2024 Oct 11 22:14:15", "2024-10-11T22:14:15+00:00"),
        (b"2024 Oct  1 22:14:15", "2024-10-01T22:14:15+00:00"),
        (b"2026-10-11T22:14:15Z", "2026-10-11T22:14:15+00:00"),
        (b"2026-10-11T22:14:15.003Z", "2026-10-11T22:14:15.003000+00:00"),
        (b"2026-10-11T22:14:15+02:00", "2026-10-11T20:14:15+00:00"),
        (b"2026-10-11T22:14:15.5-0730", "2026-10-12T05:44:15.500000+00:00"),
        (b"2026-10-11T22:14:15+02", "2026-10-11T20:14:15+00:00"),
        (b"2026-10-11 22:14:15,123", "2026-10-11T22:14:15.123000+00:00"),
        (b"2026-10-11T22:14:15", "2026-10-11T22:14:15+00:00"),
        (b"20250513T122935-0700", "2025-05-13T19:29:35+00:00"),
        (b"20250513T122935.25Z", "2025-05-13T12:29:35.250000+00:00"),
        (b"20250513T122935,5+02:00", "2025-05-13T10:29:35.500000+00:00"),
        (b"20250513T122935", "2025-05-13T12:29:35+00:00"),
        (b"Dec 31 23:59:60", "2027-01-01T00:00:00+00:00"),
    ],
)
def test_the_forms_of_a_time(text: bytes, moment: str) -> None:
    assert moments(text) == [moment]
    assert moments(b"Jan  1 00:00:00", text, b"2026-01-01T00:00:00.1Z", b"")[1] == moment


NO_TIMES = (
    *(b"20251313T122935Z", b"20250513T252935Z", b"2025051T122935Z", b"20250513T12293", b"20250513T1229350"),
    *(b"", b"-", b"Oct", b"Oct 11", b"Oct 32 22:14:15", b"Feb 30 22:14:15", b"Foo 11 22:14:15", b"Oct 11 24:14:15"),
    *(b"Oct 11 22:60:15", b"Oct 11 22:14:61", b"Oct 11 22:14:15.", b"Oct 11 22:14:15 x", b"Oct 11 22:14:15.12.3"),
    *(b"2026-13-11T22:14:15Z", b"2026-10-00T22:14:15Z", b"0000-10-11T22:14:15Z", b"9999-12-31T22:14:15Z"),
    *(b"2026-10-11T22:14:15+2", b"2026-10-11T22:14:15+25:00", b"2026-10-11T22:14:15Zz", b"2026-10-11"),
    *(b"2026-10-11T22:14:15.1234567890Z", b"2" * 41, b"2026-10-11T22:14", b"\xff" * 15, b"Oct 11 22:14:15\0"),
)


@pytest.mark.parametrize("text", NO_TIMES)
def test_invalid_time_is_none(text: bytes) -> None:
    assert moments(text) == [None]
    assert moments(b"Oct 11 22:14:15", text) == ["2026-10-11T22:14:15+00:00", None]


@pytest.mark.parametrize(
    ("text", "received", "moment"),
    [
        (b"Dec 31 23:59:59", "2027-01-01T00:00:05+00:00", "2026-12-31T23:59:59+00:00"),
        (b"Jan  1 00:00:03", "2026-12-31T23:59:58+00:00", "2027-01-01T00:00:03+00:00"),
        (b"Feb 29 12:00:00", "2028-03-01T00:00:00+00:00", "2028-02-29T12:00:00+00:00"),
        (b"Feb 29 12:00:00", "2027-03-01T00:00:00+00:00", "2024-02-29T12:00:00+00:00"),
        (b"Feb 29 12:00:00", "2027-12-01T00:00:00+00:00", "2028-02-29T12:00:00+00:00"),
        (b"Feb 29 12:00:00", "2103-03-01T00:00:00+00:00", "2096-02-29T12:00:00+00:00"),
        (b"Feb 30 12:00:00", "2027-03-01T00:00:00+00:00", None),
        (b"Jun 10 12:00:00", "2026-12-05T00:00:00+00:00", "2026-06-10T12:00:00+00:00"),
    ],
)
def test_a_time_without_a_year_is_near_its_receipt(text: bytes, received: str, moment: str | None) -> None:
    assert moments(text, received=received) == [moment]


def test_a_time_without_a_zone_is_of_the_listeners() -> None:
    summer, winter = b"Jul 11 22:14:15", b"Nov 11 22:14:15"
    assert moments(summer, winter, b"2026-07-11T22:14:15Z", zone=BERLIN) == [
        "2026-07-11T20:14:15+00:00",
        "2026-11-11T21:14:15+00:00",
        "2026-07-11T22:14:15+00:00",
    ]
    here = datetime(2026, 7, 11, 22, 14, 15).astimezone(UTC).isoformat()
    assert moments(summer, zone=None) == [here]


@pytest.mark.parametrize(
    ("zone", "text", "received", "moment"),
    [
        ("Europe/Berlin", b"Oct 25 02:30:00", "2026-10-25T00:30:01+00:00", "2026-10-25T00:30:00+00:00"),
        ("Europe/Berlin", b"Oct 25 02:30:00", "2026-10-25T01:30:01+00:00", "2026-10-25T01:30:00+00:00"),
        ("Europe/Berlin", b"2026-10-25T02:59:59", "2026-10-25T02:00:00+00:00", "2026-10-25T01:59:59+00:00"),
        ("Europe/Berlin", b"2026-10-25T02:30:00+02:00", "2026-10-25T01:30:01+00:00", "2026-10-25T00:30:00+00:00"),
        ("Europe/Berlin", b"Oct 25 03:00:00", "2026-10-25T01:00:00+00:00", "2026-10-25T02:00:00+00:00"),
        ("Europe/Berlin", b"Mar 29 02:30:00", "2026-03-29T01:30:01+00:00", "2026-03-29T01:30:00+00:00"),
        ("Australia/Lord_Howe", b"Apr  5 01:40:00", "2026-04-04T14:40:01+00:00", "2026-04-04T14:40:00+00:00"),
        ("Australia/Lord_Howe", b"Apr  5 01:40:00", "2026-04-04T15:10:01+00:00", "2026-04-04T15:10:00+00:00"),
        ("Australia/Lord_Howe", b"Apr  5 01:20:00", "2026-04-04T15:10:01+00:00", "2026-04-04T14:20:00+00:00"),
    ],
)
def test_local_time_that_occurs_twice_is_the_one_nearest_to_its_receipt(
    zone: str, text: bytes, received: str, moment: str
) -> None:
    assert moments(text, received=received, zone=zoneinfo.ZoneInfo(zone)) == [moment]


@pytest.mark.parametrize(
    ("zone", "text", "moment"),
    [
        ("Europe/Berlin", b"2026-03-29T02:00:00", "2026-03-29T01:00:00+00:00"),
        ("Europe/Berlin", b"2026-03-29T02:59:59", "2026-03-29T01:59:59+00:00"),
        ("America/New_York", b"2026-03-08T02:30:00", "2026-03-08T07:30:00+00:00"),
        ("Australia/Lord_Howe", b"2026-10-04T02:10:00", "2026-10-03T15:40:00+00:00"),  # half an hour
        ("Antarctica/Troll", b"2026-03-29T02:30:00", "2026-03-29T02:30:00+00:00"),  # two hours
        ("Europe/Dublin", b"2026-03-29T01:30:00", "2026-03-29T01:30:00+00:00"),  # standard time is that of summer
        ("Africa/Casablanca", b"2026-03-22T02:30:00", "2026-03-22T02:30:00+00:00"),  # the end of Ramadan
        ("America/Santiago", b"2026-09-06T00:30:00", "2026-09-06T04:30:00+00:00"),  # midnight
        ("Africa/Cairo", b"2026-04-24T00:30:00", "2026-04-23T22:30:00+00:00"),
        ("Pacific/Apia", b"2011-12-30T12:00:00", "2011-12-30T22:00:00+00:00"),  # a day
        ("Asia/Kathmandu", b"1986-01-01T00:05:00", "1985-12-31T18:35:00+00:00"),  # a quarter of an hour
    ],
)
def test_local_time_that_does_not_occur_has_the_offset_before_the_change(zone: str, text: bytes, moment: str) -> None:
    """A clock that was not set forward shows it (RFC 5545, 3.3.5)."""
    assert moments(text, zone=zoneinfo.ZoneInfo(zone)) == [moment]


def test_only_rfc_3339_with_a_zone_stays_unchanged() -> None:
    plain = [b"2026-10-11T22:14:15Z", b"2026-10-11T22:14:15.1+02:00"]
    rewritten = [
        b"2026-10-11T22:14:15",
        b"2026-10-11T22:14:15,1Z",
        b"2026-10-11 22:14:15Z",
        b"2026-10-11T22:14:15+0200",
    ]
    assert read(*plain, *rewritten).is_rfc3339.tolist() == [True, True, False, False, False, False]


@given(
    st.datetimes(datetime(1800, 1, 1), datetime(9000, 1, 1)),
    st.sampled_from(["seconds", "milliseconds", "microseconds"]),
    st.integers(-1439, 1439),
)
def test_times_are_written_as_they_were_read(moment: datetime, precision: str, offset: int) -> None:
    sign, hours, minutes = "-" if offset < 0 else "+", *divmod(abs(offset), 60)
    text = f"{moment.isoformat(timespec=precision)}{sign}{hours:02}:{minutes:02}"
    times = read(text.encode())
    expected = datetime.fromisoformat(text)
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(times.micros[0])) == expected
    (written,) = times.format_rfc3339(np.array([0])).to_pylist()
    assert datetime.fromisoformat(written.decode()) == expected


PIECES = st.sampled_from([*(bytes([c]) for c in b"0123456789:-+ TZ.,"), b"Oct", b"Jan ", b"2026", b"22:14:15", b"\xff"])


@given(st.lists(st.lists(PIECES, max_size=20).map(b"".join), min_size=1, max_size=10))
def test_any_text_is_a_time_or_none_whatever_stands_beside_it(texts: list[bytes]) -> None:
    assert moments(*texts, zone=BERLIN) == [moments(text, zone=BERLIN)[0] for text in texts]
