"""Search in a topic, page by page in both directions."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.config import SecurityConfig
from tests.server.running import Running


def search(running: Running, **query: object) -> dict[str, Any]:
    status, document = running.request_json("GET", f"/topic/t/search?{urlencode(query)}")
    assert status == 200, document
    page: dict[str, Any] = document
    return page


def offsets(page: dict[str, Any]) -> list[int]:
    return [int(entry.get("offset", 0)) for entry in page.get("logs", ())]


def filled(running: Running, count: int = 30) -> None:
    for n in range(count):
        marks = {"user": f"vip-{n % 5}"} if n % 2 else {}
        body = {"logs": [{"raw_bytes": "YXBwbGU=" if n % 3 else "cGVhcg==", "annotations": marks}]}  # apple, pear
        assert running.request("POST", "/topic/t/logs", body)[0] == 200


def test_search_starts_at_the_newest_entries_and_continues_below(running: Running) -> None:
    filled(running)
    page = search(running, max_messages=4)
    assert (offsets(page), page["begin"], page["end"]) == ([26, 27, 28, 29], "26", "30")
    assert (page["start"], page["stop"]) == ("0", "30")
    assert offsets(search(running, max_messages=4, before=page["begin"])) == [22, 23, 24, 25]
    assert offsets(search(running, before=3)) == [0, 1, 2]
    assert offsets(search(running, before=0)) == []
    assert offsets(search(running, offset=28)) == [28, 29]
    assert offsets(search(running, offset=99)) == []


def test_text_matches_payloads_and_annotations(running: Running) -> None:
    filled(running)
    assert offsets(search(running, text="pear")) == list(range(0, 30, 3))
    assert offsets(search(running, text="vip-3")) == [3, 13, 23]
    assert offsets(search(running, text="user", max_messages=2)) == [27, 29]
    assert offsets(search(running, text="pear", offset=4, max_messages=2)) == [6, 9]
    nothing = search(running, text="plum")
    assert (offsets(nothing), nothing["begin"], nothing["end"]) == ([], "0", "30")


def test_filter_searches_beyond_the_newest_entries(running: Running) -> None:
    filled(running)
    assert offsets(search(running, filter="k:user v:vip-1", max_messages=2)) == [11, 21]
    assert offsets(search(running, filter="k:user", text="pear", max_messages=1)) == [27]


def test_search_starts_at_a_time(running: Running) -> None:
    filled(running)
    stamp = search(running, offset=12, max_messages=1)["logs"][0]["timestamp"]
    assert offsets(search(running, timestamp=stamp, max_messages=3)) == [12, 13, 14]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(most=st.integers(1, 9), text=st.sampled_from(["", "pear", "vip-3", "plum"]))
def test_consecutive_pages_return_all_matches_once_in_both_directions(
    filled_once: Running, most: int, text: str
) -> None:
    expected = offsets(search(filled_once, text=text, max_messages=1000))
    back: list[int] = []
    offset = 30
    while offset > 0:
        page = search(filled_once, text=text, max_messages=most, before=offset)
        back, offset = offsets(page) + back, int(page["begin"])
    ahead: list[int] = []
    offset = 0
    while offset < 30:
        page = search(filled_once, text=text, max_messages=most, offset=offset)
        ahead, offset = ahead + offsets(page), int(page["end"])
    assert back == ahead == expected


@pytest.fixture
def filled_once(running: Running) -> Running:
    filled(running)
    return running


def test_search_ends_in_time_and_reports_its_progress(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(running)
    monkeypatch.setattr("penstock.server.reading.search.MAX_SCAN_S", -1.0)
    page = search(running, text="plum")
    assert (int(page["begin"]) < 30, int(page["begin"]) > 0, page["end"]) == (True, True, "30")


def test_invalid_search_is_refused_with_a_reason(running: Running) -> None:
    filled(running, 1)
    for query, reason in (
        ("text=" + "x" * 1001, "text has at most 1,000 characters"),
        ("before=1&offset=2", "one of before, offset and timestamp"),
        ("before=-1", "before is a whole number"),
        ("offset=99999999999999999999", "offset is a whole number"),
        ("timestamp=noon", ""),
        ("filter=plain", "bad filter"),
    ):
        status, _, text = running.request("GET", f"/topic/t/search?{query}")
        assert (status, reason in json.loads(text)["error"]) == (400, True), text
    assert running.request("GET", "/topic/none/search")[0] == 404
    assert len(offsets(search(running, max_messages=100_000))) == 1


def test_search_requires_the_right_to_read(tmp_path: Any) -> None:
    tokens = {"all": {"token": "a" * 20, "read": ["t"]}, "other": {"token": "b" * 20, "read": ["u"]}}
    running = Running(tmp_path, SecurityConfig(tokens=tokens))
    try:
        running.log.topic("t", create=True)
        headers = {name: {"authorization": f"Bearer {token['token']}"} for name, token in tokens.items()}
        assert running.request("GET", "/topic/t/search", headers=headers["all"])[0] == 200
        assert running.request("GET", "/topic/t/search?text=x", headers=headers["other"])[0] == 403
        assert running.request("GET", "/topic/t/search")[0] == 401
    finally:
        running.stop()
