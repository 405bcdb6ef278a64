"""Lines of ``penstock senders``."""

from __future__ import annotations

from penstock.cli.senders import sender_lines
from tests.console.pages.test_senders import DOCUMENT


def test_lines_name_losses_pauses_and_who_is_silent_or_new() -> None:
    first, heads, large, small, empty = (line.split() for line in sender_lines(DOCUMENT))
    assert first == ["listener", "web:", "7", "senders,", "the", "largest", "2"]
    assert heads[:4] == ["sender", "accepted", "lost", "last"]
    assert large[:6] == ["<192.0.2.1>", "81240", "hole", "12,", "refused", "1"]
    assert large[-6:] == ["60", "s", "silent", "for", "1094", "s"]
    assert (small[:3], small[-2:]) == (["db1", "3", "-"], ["-", "new"])
    assert empty == ["listener", "tcp:", "0", "senders"]


def test_one_sender_is_named_in_the_singular() -> None:
    document = {"listeners": [{"listener": "web", "number": 1, "senders": []}]}
    assert next(sender_lines(document)).startswith("listener web: 1 sender, ")
