from __future__ import annotations

import base64
import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.slogd.json.go_text import from_base64, parse_number, parse_time, quoted


def refusal(call: object, *arguments: object) -> str:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - its text is what is looked at
        call(*arguments)  # type: ignore[operator]
    return str(raised.value)


@given(st.binary(max_size=40), st.integers(0, 60))
def test_base64_is_read_with_line_ends_anywhere(data: bytes, at: int) -> None:
    text = base64.b64encode(data).decode()
    assert from_base64(text[:at] + "\r\n" + text[at:]) == data


@pytest.mark.parametrize(
    ("text", "place"),
    [("***", 0), ("YQ", 0), ("YWJjYQ", 4), ("YQ=", 3), ("YQ=a", 2), ("YQ==x", 4), ("YWI==", 4), ("Y*==", 1)],
)
def test_the_place_of_an_error_in_base64_is_gos(text: str, place: int) -> None:
    assert refusal(from_base64, text) == f"illegal base64 data at input byte {place}"


@given(st.text(max_size=12))
def test_any_text_is_base64_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        from_base64(text)


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_times_are_read_to_the_microsecond(moment: datetime) -> None:
    seconds, nanos = parse_time(moment.isoformat() + "Z")
    assert (seconds, nanos) == ((moment - datetime(1970, 1, 1)) // timedelta(seconds=1), moment.microsecond * 1000)


def test_zones_and_nanoseconds_are_read() -> None:
    at = int(datetime(2026, 11, 21, 1, 5, 57, tzinfo=UTC).timestamp())
    assert parse_time("2026-11-21T01:05:57.112292720Z") == (at, 112292720)
    assert parse_time("2026-11-21T02:35:57+01:30") == (at, 0)
    assert parse_time("2026-11-20T23:05:57-02:00") == (at, 0)
    assert parse_time("0000-02-29T00:00:00Z") == (-62162121600, 0)


LAYOUT = '"2006-01-02T15:04:05.999999999Z07:00"'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("garbage", f'parsing time "garbage" as {LAYOUT}: cannot parse "garbage" as "2006"'),
        ("2026-11-21", f'parsing time "2026-11-21" as {LAYOUT}: cannot parse "" as "T"'),
        ("2026-11-21 01:05:57Z", f'parsing time "2026-11-21 01:05:57Z" as {LAYOUT}: cannot parse " 01:05:57Z" as "T"'),
        ("2026-11-21T01:05:57", f'parsing time "2026-11-21T01:05:57" as {LAYOUT}: cannot parse "" as "Z07:00"'),
        ("2026-13-21T01:05:57Z", 'parsing time "2026-13-21T01:05:57Z": month out of range'),
        ("2026-02-30T01:05:57Z", 'parsing time "2026-02-30T01:05:57Z": day out of range'),
        ("2026-11-21T24:05:57Z", 'parsing time "2026-11-21T24:05:57Z": hour out of range'),
        ("2026-11-21T01:05:57Zx", 'parsing time "2026-11-21T01:05:57Zx": extra text: "x"'),
    ],
)
def test_refused_times_have_gos_words(text: str, said: str) -> None:
    assert refusal(parse_time, text) == said


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_time(text)


@given(st.integers(-(2**31), 2**31 - 1))
def test_numbers_are_read_in_each_base(value: int) -> None:
    sign = "-" if value < 0 else ""
    for digits in ("{}", "0x{:X}", "0b{:b}", "0o{:o}", "0{:o}"):
        text = sign + digits.format(abs(value))
        assert parse_number(text, -(2**31), 2**31 - 1) == value


@pytest.mark.parametrize("text", ["abc", "-1", "+1", "", "1.5", "1e3", " 1", "0x", "09", "1__0", "_1", "1_", "٣"])
def test_what_is_no_number_is_refused_in_gos_words(text: str) -> None:
    assert refusal(parse_number, text, 0, 2**64 - 1) == f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax"


def test_a_number_that_is_too_large_is_said_to_be() -> None:
    assert parse_number("1_000", 0, 2**64 - 1) == 1000
    large = "18446744073709551616"
    assert refusal(parse_number, large, 0, 2**64 - 1) == f'strconv.ParseUint: parsing "{large}": value out of range'
    small = refusal(parse_number, "2147483648", -(2**31), 2**31 - 1)
    assert small == 'strconv.ParseInt: parsing "2147483648": value out of range'
