"""Sends one mail or one post to a webhook in a process of its own, which the delivery of alarms kills at its deadline.

Nothing limits the resolver, and smtplib limits each read and each address that it tries, not the whole. In a thread of
the daemon, a host name that resolves slowly, or a server that sends a byte now and then, would hold the thread and
delay the other destinations. Imports little, because it starts once for each attempt.
"""

from __future__ import annotations

import json
import ssl
import sys
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, Request, build_opener

from penstock.process.kernel import die_with_parent
from penstock.process.ledger_posts import NoRedirects


def main() -> None:
    """Do the task on standard input; exit with status 1 and one line on standard error if it fails."""
    die_with_parent()
    task = json.load(sys.stdin)
    try:
        reason = _post(task["url"], task["document"]) if "url" in task else _send_mail(task)
    except (OSError, ValueError, HTTPException) as error:
        cause = error.reason if isinstance(error, URLError) else error
        reason = " ".join(str(cause).split()) or type(error).__name__
    if reason:
        sys.exit(reason)


def _post(url: str, document: Any) -> str:
    """Post JSON; return why the server did not accept it, or nothing. Raises OSError, ValueError, HTTPException."""
    headers = {"content-type": "application/json", "user-agent": "penstock"}
    request = Request(url, json.dumps(document).encode(), headers, method="POST")
    # The certificates of the machine: webhooks often are inside a company.
    opener = build_opener(NoRedirects, HTTPSHandler(context=ssl.create_default_context()))
    try:
        opener.open(request).close()
    except HTTPError as error:
        is_redirect = error.code in (301, 302, 303, 307, 308)
        return f"HTTP status {error.code}{', a redirect, which is not followed' if is_redirect else ''}"
    return ""


def _send_mail(task: dict[str, str]) -> str:
    """Hand a mail to its server; return why it is not sent, or nothing. Raises OSError, ValueError.

    The task has ``server``, ``user`` and ``password``, which may be empty, and the text of the ``mail``.
    """
    # Imported on first use: posts need neither.
    import smtplib
    from email import message_from_string
    from email.message import EmailMessage
    from email.policy import SMTP

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
