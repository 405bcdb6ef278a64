"""Texts of the alarms page."""

from __future__ import annotations

from typing import Any

from penstock.console.pages.alarms import (
    ALL,
    firing_html,
    history_html,
    label_choices,
    mute_words,
    rules_html,
    since_words,
)

RULE: dict[str, Any] = {
    "alarm": "PenstockKernelDrops",
    "severity": "warning",
    "state": "firing",
    "condition": "sum by (listener) (x) > 0",
    "hold_s": 300,
    "evaluated": True,
    "firing": [
        {
            "labels": {"listener": "a"},
            "summary": "3 of <a>",
            "since": "2026-11-22T01:15:20+00:00",
            "acknowledged": {"by": "ann", "at": "2026-11-22T01:20:00+00:00", "note": "<cable>"},
            "muted": False,
            "given_up": False,
        },
        {
            "labels": {"listener": "b"},
            "summary": "4 of b",
            "since": "2026-11-22T01:10:20+00:00",
            "acknowledged": None,
            "muted": False,
            "given_up": True,
        },
    ],
    "pending": [],
    "mutes": [{"until": 1_800_000_000, "by": "bob", "labels": {"listener": "c"}, "note": ""}],
}
QUIET = {**RULE, "state": "quiet", "firing": [], "mutes": [], "hold_s": 0}


def test_firing_alarm_names_who_acknowledged_it() -> None:
    html = firing_html({"alarms": [RULE]})
    assert "acknowledged by ann, 2026-11-22 01:20:00: &lt;cable&gt;" in html
    assert "3 of &lt;a&gt;" in html
    assert html.count("not yet") == 1
    assert html.count("delivery given up, see the log") == 1
    assert "No alarm fires" in firing_html({"alarms": [QUIET]})


def test_rule_names_state_condition_and_mutes() -> None:
    html = rules_html({"alarms": [RULE, QUIET]})
    for text in ("KernelDrops", "firing", "quiet", "sum by (listener) (x) &gt; 0", "5 min", "at once"):
        assert text in html
    assert since_words(RULE) == "2026-11-22 01:10:20"
    assert since_words(QUIET) == ""
    assert mute_words(RULE["mutes"][0]) == "until 2027-01-15 08:00:00 by bob, listener=c"
    assert "by Prometheus only" in rules_html({"alarms": [{**QUIET, "evaluated": False}]})


def test_history_names_the_end_of_a_mute() -> None:
    entry = {
        "at": "2026-11-22T01:15:20+00:00",
        "alarm": "PenstockKernelDrops",
        "state": "muted",
        "summary": "",
        "labels": {"listener": "a"},
        "by": "ann",
        "note": "<b>",
        "until": 1_800_000_000,
    }
    begins = {key: text for key, text in entry.items() if key != "until"} | {"state": "begins", "summary": "3 drops"}
    html = history_html({"history": [entry, begins]})
    for text in ("muted until 2027-01-15 08:00:00", "listener=a", "&lt;b&gt;", "3 drops"):
        assert text in html
    assert "Nothing has happened yet" in history_html({"history": []})


def test_mute_that_is_ended_is_one_that_is_shown() -> None:
    assert label_choices(RULE, is_unmute=True) == {"listener=c": {"listener": "c"}}
    everything = {**RULE, "mutes": [{**RULE["mutes"][0], "labels": {}}]}
    assert label_choices(everything, is_unmute=True) == {ALL: {}}
    assert label_choices(QUIET, is_unmute=True) == {ALL: {}}
    assert list(label_choices(RULE, is_unmute=False)) == [ALL, "listener=a", "listener=b", "listener=c"]
