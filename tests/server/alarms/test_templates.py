"""Alarms in the forms of Slack, PagerDuty and e-mail."""

from __future__ import annotations

import pytest

from penstock.server.alarms.templates import mail, pagerduty_event, slack_message

ALARM = {
    "alarm": "PenstockKernelDrops",
    "state": "begins",
    "severity": "warning",
    "labels": {"listener": "in"},
    "value": 7,
    "summary": "the kernel dropped 7 datagrams of listener <in> & out",
    "advice": "see penstock doctor",
    "at": "2026-11-22T01:15:20+00:00",
    "host": "web-1",
    "receipt": "7 messages lost of 9",
}
ENDED = {**ALARM, "state": "ends"}


def test_slack_message_has_no_markup_from_texts() -> None:
    text = slack_message(ALARM)["text"]
    assert text.startswith(":rotating_light: *the kernel dropped 7 datagrams of listener &lt;in&gt; &amp; out*\n")
    assert text.endswith("see penstock doctor\n7 messages lost of 9\nhost web-1")
    assert slack_message(ENDED)["text"].startswith(":white_check_mark: *ended: the kernel")


def test_pagerduty_event_of_the_end_resolves_the_one_of_the_begin() -> None:
    begin, end = pagerduty_event(ALARM, "key"), pagerduty_event(ENDED, "key")
    assert (begin["event_action"], end["event_action"]) == ("trigger", "resolve")
    assert begin["dedup_key"] == end["dedup_key"]
    assert len(begin["dedup_key"]) <= 255
    assert begin["dedup_key"] != pagerduty_event({**ALARM, "labels": {"listener": "other"}}, "key")["dedup_key"]
    assert (begin["routing_key"], begin["payload"]["severity"], begin["payload"]["source"]) == (
        "key",
        "warning",
        "web-1",
    )
    assert len(pagerduty_event({**ALARM, "summary": "x" * 5000}, "key")["payload"]["summary"]) == 1024


@pytest.mark.parametrize("summary", ["two\r\nBcc: somebody@example.org", "two\nlines"])
def test_subject_of_a_mail_is_one_line(summary: str) -> None:
    message = mail({**ALARM, "summary": summary}, "penstock@example.org", ["a@example.org", "b@example.org"])
    assert message["Subject"].startswith("[warning] two ")
    assert message["Bcc"] is None
    assert message["To"] == "a@example.org, b@example.org"
    assert "7 messages lost of 9" in message.get_content()
