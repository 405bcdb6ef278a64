"""The page that finds a message."""

from __future__ import annotations

import re

import pytest

from penstock.console.pages.find import listing, stations
from penstock.upkeep.trace.stations import Step
from penstock.upkeep.trace.tracer import Trace

STEPS = [Step("received", "by udp"), Step("log buffer", "udp.1"), Step("log", "topic t, offset 3")]
TABLE = [*STEPS, Step("micro-batch", "7"), Step("table", "a file"), Step("proof", "holds")]


def mood_and_kinds(fate: str, steps: list[Step]) -> tuple[str, list[str]]:
    """Return the mood of the verdict, and the kind of each station."""
    html = stations(Trace("t", 3, "<u>", fate, "is somewhere", steps))
    assert "&lt;u&gt;" in html
    (mood,) = re.findall(r'class="verdict (\w+)"', html)
    return mood, re.findall(r'<li class="(\w+)"', html)


@pytest.mark.parametrize(
    ("fate", "steps", "mood", "kinds"),
    [
        ("landed.event", TABLE, "good", ["reached"] * 6),
        ("pending", STEPS, "warn", ["reached", "reached", "here", "ahead", "ahead", "ahead"]),
        ("duplicate", TABLE, "warn", ["reached"] * 4 + ["here", "ahead"]),
        ("transformed.dropped", TABLE, "warn", ["reached"] * 4 + ["here", "ahead"]),
        ("deleted", TABLE, "warn", ["reached"] * 4 + ["here", "ahead"]),
        ("quarantined.bad_json", TABLE, "bad", ["reached"] * 4 + ["ended", "ahead"]),
        ("gap.corrupt", STEPS, "bad", ["reached", "reached", "ended", "ahead", "ahead", "ahead"]),
        ("unaccounted", TABLE, "bad", ["reached"] * 3 + ["ended", "ahead", "ahead"]),
    ],
)
def test_stations_are_green_until_the_message_and_red_where_it_ended(
    fate: str, steps: list[Step], mood: str, kinds: list[str]
) -> None:
    assert mood_and_kinds(fate, steps) == (mood, kinds)


def test_unmatched_query_is_shown_escaped() -> None:
    assert "&lt;script&gt;" in listing("<script>", [])
