from __future__ import annotations

import base64
import contextlib
import json
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.slogd.json.values import first_value, from_base64, parse_time

values = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(values, st.sampled_from(["", " rest", "\n{"]), st.sampled_from([None, 1]))
def test_first_value_ignores_what_follows(value: object, rest: str, indent: int | None) -> None:
    text = " " + json.dumps(value, indent=indent) + (rest or " ")
    assert first_value(text.encode()) == value


@pytest.mark.parametrize("text", ["", "  ", "tru", '{"a":', "[[", "{a:1}", "[1,]", '"\x01"', "[NaN]", "-Infinity", "é"])
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        first_value(text.encode())


@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:1.eE-+tfnul\\ ', max_size=20).map(str.encode))
@example(b"[" * 100_000)
@example(b"1" * 10_000)
def test_random_bytes_are_a_value_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        first_value(data)


@given(st.binary(max_size=40), st.integers(0, 60))
def test_from_base64_ignores_line_ends(data: bytes, position: int) -> None:
    text = base64.b64encode(data).decode()
    assert from_base64(text[:position] + "\r\n" + text[position:]) == data


@pytest.mark.parametrize("text", ["***", "YQ", "YWJjYQ", "YQ=", "YQ=a", "YQ==x", "YWI==", "Y*==", "_-8=", "é"])
def test_invalid_base64_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="illegal base64 data at input byte"):
        from_base64(text)


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_parse_time_keeps_microseconds(moment: datetime) -> None:
    assert parse_time(moment.isoformat() + "Z").ToDatetime() == moment


def test_parse_time_accepts_zones_and_nanoseconds() -> None:
    seconds = int(datetime(2026, 11, 21, 1, 5, 57, tzinfo=UTC).timestamp())
    for text, nanos in (("01:05:57.112292720Z", 112292720), ("02:35:57+01:30", 0), ("00:05:57-01:00", 0)):
        stamp = parse_time("2026-11-21T" + text)
        assert (stamp.seconds, stamp.nanos) == (seconds, nanos)


@pytest.mark.parametrize(
    "text",
    [
        "garbage",
        "2026-11-21",
        "2026-11-21 01:05:57Z",
        "2026-11-21T01:05:57",
        "2026-13-21T01:05:57Z",
        "2026-02-30T01:05:57Z",
        "2026-11-21T24:05:57Z",
        "2026-11-21T01:05:57Zx",
        "0000-02-29T00:00:00Z",
        "٢٠٢٦-11-21T01:05:57Z",
    ],
)
def test_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bad Timestamp: parsing time"):
        parse_time(text)


@given(st.from_regex(r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-9:]{8}(Z|\+[0-9]{2}:[0-9]{2})", fullmatch=True) | st.text())
def test_random_text_is_a_time_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_time(text)


def test_error_of_json_has_position_and_reason() -> None:
    with pytest.raises(ValueError, match=r"^not valid JSON at column 6: expecting ':' delimiter$"):
        first_value(b'{"a" 1}')
