"""Complaints are made once a minute."""

from __future__ import annotations

from penstock.process.rate_limited_log import SAY_AGAIN, Complaints


def test_the_same_line_is_said_again_after_a_while() -> None:
    said: list[str] = []
    now = [0.0]
    complaints = Complaints(said.append, lambda: now[0])
    for second in (0.0, 1.0, SAY_AGAIN - 1, SAY_AGAIN + 1):
        now[0] = second
        complaints.say("it hurts")
    complaints.say("here too")
    assert said == ["it hurts", "it hurts", "here too"]
