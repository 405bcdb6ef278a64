"""Alarms in the forms of Slack, PagerDuty and e-mail.

Invariant: the begin and the end of one alarm have the same deduplication key, so that PagerDuty resolves the incident
that the begin opened.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.server.alarms.watch import ENDS

if TYPE_CHECKING:
    from email.message import EmailMessage

Alarm = Mapping[str, Any]
MAX_PAGERDUTY_SUMMARY_CHARS = 1024
"""Limit of PagerDuty's Events API v2."""


def slack_message(alarm: Alarm) -> dict[str, Any]:
    """Return the JSON of a Slack incoming webhook."""
    sign = ":white_check_mark:" if alarm["state"] == ENDS else ":rotating_light:"
    details = "\n".join(map(_slack_text, _details(alarm)))
    return {"text": f"{sign} *{_slack_text(title(alarm))}*\n{details}"}


def _slack_text(text: str) -> str:
    # Slack reads <, > and & as links and mentions, and topics are named by senders.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def pagerduty_event(alarm: Alarm, routing_key: str) -> dict[str, Any]:
    """Return an event of PagerDuty's Events API v2."""
    identity = json.dumps([alarm["host"], alarm["alarm"], alarm["labels"]], sort_keys=True)
    return {
        "routing_key": routing_key,
        "event_action": "resolve" if alarm["state"] == ENDS else "trigger",
        "dedup_key": f"penstock-{hashlib.sha256(identity.encode()).hexdigest()}",
        "payload": {
            "summary": title(alarm)[:MAX_PAGERDUTY_SUMMARY_CHARS],
            "source": alarm["host"],
            "severity": alarm["severity"],
            "timestamp": alarm["at"],
            "class": alarm["alarm"],
            "custom_details": {"labels": alarm["labels"], "advice": alarm["advice"], "receipt": alarm["receipt"]},
        },
    }


def mail(alarm: Alarm, sender: str, receivers: Sequence[str]) -> EmailMessage:
    """Return an e-mail in plain text."""
    from email.message import EmailMessage  # most daemons never send a mail

    message = EmailMessage()
    # One line: a line end in a topic's name must not begin another header.
    message["Subject"] = " ".join(f"[{alarm['severity']}] {title(alarm)}".split())
    message["From"], message["To"] = sender, ", ".join(receivers)
    message.set_content("\n".join([*_details(alarm), "", f"{alarm['alarm']} on {alarm['host']} at {alarm['at']}"]))
    return message


def title(alarm: Alarm) -> str:
    """Return an alarm in one line."""
    return f"{'ended: ' if alarm['state'] == ENDS else ''}{alarm['summary']}"


def _details(alarm: Alarm) -> list[str]:
    return [line for line in (alarm["advice"], alarm["receipt"], f"host {alarm['host']}") if line]
