"""Sends one mail in a process of its own, which the delivery of alarms kills at its deadline.

smtplib limits each read and each address that it tries, not the whole, and nothing limits the resolver: in a thread,
a server that sends a byte now and then would hold it for ever. Imports little, because it starts once for each mail.
"""

from __future__ import annotations

import json
import smtplib
import ssl
import sys
from email import message_from_string
from email.message import EmailMessage
from email.policy import SMTP
from urllib.parse import urlsplit

from penstock.process.kernel import die_with_parent


def main() -> None:
    """Send the mail of the task on standard input; exit with status 1 and one line on standard error if it fails."""
    die_with_parent()
    try:
        reason = _send(json.load(sys.stdin))
    except (OSError, ValueError, smtplib.SMTPException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
    if reason:
        sys.exit(reason)


def _send(task: dict[str, str]) -> str:
    """Hand a mail to its server; return why it is not sent, or nothing. Raises OSError, ValueError, SMTPException.

    The task has ``server``, ``user`` and ``password``, which may be empty, and the text of the ``mail``.
    """
    server, context = urlsplit(task["server"]), ssl.create_default_context()
    host, is_tls = server.hostname or "", server.scheme == "smtps"
    port = server.port or (465 if is_tls else 25)
    with smtplib.SMTP_SSL(host, port, context=context) if is_tls else smtplib.SMTP(host, port) as connection:
        connection.ehlo()
        if not is_tls and connection.has_extn("starttls"):
            connection.starttls(context=context)
            connection.ehlo()
            is_tls = True
        if task["user"]:
            if not is_tls:
                return "the mail server offers no TLS, so the password is not sent"
            connection.login(task["user"], task["password"])
        refused = connection.send_message(message_from_string(task["mail"], EmailMessage, policy=SMTP))
        return f"the mail server refuses {', '.join(refused)}" if refused else ""


if __name__ == "__main__":
    main()
