from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.reading.query import DEFAULT_MESSAGES, LAST_OFFSET, Query, parse_query
from penstock.slogd.errors import BadRequest
from penstock.slogd.slogd_pb2 import GetLogsRequest

NAMES = ("offset", "timestamp", "timestamp.seconds", "position", "max_messages", "maxMessages", "other")


def query(*parameters: tuple[str, str]) -> Query:
    return Query.from_request(parse_query("t", parameters))


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.text(max_size=30))))
def test_any_query_is_parsed_or_raises_bad_request(parameters: list[tuple[str, str]]) -> None:
    with contextlib.suppress(BadRequest):
        Query.from_request(parse_query("t", parameters))


def test_empty_query_is_a_page_from_the_start() -> None:
    assert query() == Query("t")
    assert query().page == DEFAULT_MESSAGES


def test_starts_are_parsed() -> None:
    assert query(("offset", "5")).offset == 5
    assert query(("position", "LATEST"), ("maxMessages", "2")) == Query("t", latest=True, max_messages=2)
    assert query(("position", "2")).latest
    assert query(("position", "EARLIEST")) == query(("position", "UNSPECIFIED")) == Query("t")


def test_time_is_rounded_up_to_microseconds() -> None:
    assert query(("timestamp", "1970-01-01T00:00:01.000000001Z")).micros == 1_000_001
    assert query(("timestamp", "1970-01-01T00:00:01.000001Z")).micros == 1_000_001
    assert query(("timestamp", "1970-01-01T00:00:00Z")).micros == 0
    assert query(("timestamp.seconds", "5")).micros == 5_000_000
    assert query(("timestamp", "1969-12-31T23:59:59.5Z")).micros == -500_000


def test_offset_is_limited_to_the_last_possible_one() -> None:
    assert query(("offset", str(2**64 - 1))).offset == LAST_OFFSET


def test_first_value_of_a_name_wins() -> None:
    assert query(("offset", "1"), ("offset", "2")).offset == 1


@pytest.mark.parametrize(
    "parameters",
    [
        [("offset", "-1")],
        [("offset", "18446744073709551616")],
        [("offset", "")],
        [("offset", "1" * 5000)],
        [("offset", "٣")],
        [("max_messages", "-1")],
        [("max_messages", "2147483648")],
        [("max_messages", "many")],
        [("position", "latest")],
        [("position", "3")],
        [("timestamp", "garbage")],
        [("timestamp.seconds", str(2**62))],
        [("timestamp.nanos", "-5")],
        [("offset", "1"), ("position", "LATEST")],
    ],
)
def test_unreadable_parameter_is_refused(parameters: list[tuple[str, str]]) -> None:
    with pytest.raises(BadRequest):
        query(*parameters)


def test_impossible_requests_are_refused() -> None:
    bad = [GetLogsRequest(topic="t", max_messages=-1), GetLogsRequest(topic="t", position=9)]
    for nanos, seconds in ((-5, 1), (10**9, 1), (0, 2**40)):
        bad.append(GetLogsRequest(topic="t"))
        bad[-1].timestamp.nanos, bad[-1].timestamp.seconds = nanos, seconds
    for request in bad:
        with pytest.raises(BadRequest):
            Query.from_request(request)


def test_filter_is_compiled_on_first_use_and_cached() -> None:
    parsed = query(("filter", " k:user v:vip "))
    assert parsed.filter is parsed.filter is query(("filter", "k:user v:vip")).filter
    bad = query(("filter", "k:("))
    with pytest.raises(BadRequest, match="bad filter"):
        bad.filter  # noqa: B018 - asking for it compiles it
