"""Mails of alarms reach real mail servers, and a server that drips holds nothing beyond the deadline."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword

from penstock.config.keys.alarms import AlarmsConfig
from penstock.server.alarms.delivery import AlarmDelivery
from penstock.testing.pipe import free_ports, wait_until
from tests.server.alarms.test_delivery import delivery_processes, trickling, try_once
from tests.server.certificates import make

ALARM = {
    "alarm": "A",
    "labels": {"listener": "in"},
    "state": "begins",
    "severity": "critical",
    "summary": "7 messages lost: Z\u00fcrich \u2603",
    "value": 7,
    "advice": "",
    "at": "2026-11-22T01:15:20+00:00",
    "host": "web-1",
    "receipt": "7 lost of 9",
}


class Mailbox:
    """Mails that a mail server accepted; ``refused`` are receivers that it refuses."""

    def __init__(self) -> None:
        self.mails: list[Envelope] = []
        self.refused: set[str] = set()

    async def handle_RCPT(  # noqa: N802 - a name of aiosmtpd
        self, server: object, session: object, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - a name of aiosmtpd
        self, server: object, session: object, envelope: Envelope
    ) -> str:
        self.mails.append(envelope)
        return "250 OK"


@pytest.fixture
def mail_server() -> Iterator[tuple[Mailbox, str]]:
    """A mail server without TLS, and its address."""
    mailbox = Mailbox()
    (port,) = free_ports(1)
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    controller.start()
    yield mailbox, f"smtp://127.0.0.1:{port}"
    controller.stop()


def mail_config(server: str, **keys: object) -> AlarmsConfig:
    return AlarmsConfig(smtp=server, mail_from="penstock@example.org", mail_to=("a@x.org", "b@x.org"), **keys)


def test_mail_reaches_every_receiver(mail_server: tuple[Mailbox, str]) -> None:
    mailbox, server = mail_server
    assert try_once(mail_config(server), ALARM) == {"smtp": ""}
    (envelope,) = mailbox.mails
    assert (envelope.mail_from, envelope.rcpt_tos) == ("penstock@example.org", ["a@x.org", "b@x.org"])
    message = message_from_bytes(envelope.content, policy=default)  # type: ignore[arg-type]
    assert message["subject"] == "[critical] 7 messages lost: Zürich ☃"
    assert "7 lost of 9" in message.get_content()  # type: ignore[attr-defined]


def test_refused_receiver_is_an_error_that_names_it(mail_server: tuple[Mailbox, str]) -> None:
    mailbox, server = mail_server
    mailbox.refused = {"b@x.org"}
    assert try_once(mail_config(server), ALARM) == {"smtp": "the mail server refuses b@x.org"}


def test_password_is_not_sent_without_tls(mail_server: tuple[Mailbox, str]) -> None:
    mailbox, server = mail_server
    error = try_once(mail_config(server, smtp_user="u", smtp_password="secret"), ALARM)["smtp"]
    assert error == "the mail server offers no TLS, so the password is not sent"
    assert mailbox.mails == []


def test_password_is_sent_by_starttls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, mailbox, logins = make(tmp_path, "localhost"), Mailbox(), []

    def authenticate(
        server: object, session: object, envelope: object, mechanism: str, login: LoginPassword
    ) -> AuthResult:
        logins.append((login.login, login.password))
        return AuthResult(success=True)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    (port,) = free_ports(1)
    controller = Controller(
        mailbox, "127.0.0.1", port, tls_context=context, require_starttls=True, authenticator=authenticate
    )
    controller.start()
    try:
        config = mail_config(f"smtp://127.0.0.1:{port}", smtp_user="u", smtp_password="secret")
        assert "certificate verify failed" in try_once(config, ALARM)["smtp"]
        monkeypatch.setenv("SSL_CERT_FILE", str(pair.cert))
        assert try_once(config, ALARM) == {"smtp": ""}
    finally:
        controller.stop()
    assert (logins, len(mailbox.mails)) == ([(b"u", b"secret")], 1)


@pytest.mark.parametrize(
    ("scheme", "first"),
    [
        ("smtp", b""),
        ("smtp", b"220-"),
        ("smtp", b"220 mail\r\n250-"),
        ("smtp", b"220 mail\r\n250-mail\r\n250 STARTTLS\r\n220-"),
        ("smtps", b"\x16\x03\x03\x3f\xff"),  # the begin of a TLS record of 16 KiB
    ],
    ids=["banner", "long banner", "EHLO", "STARTTLS", "TLS record"],
)
def test_mail_server_that_drips_is_given_up_at_the_deadline(scheme: str, first: bytes) -> None:
    threads = set(threading.enumerate())
    with trickling(first) as address:
        config = mail_config(address.replace("http", scheme).rstrip("/"), timeout=2.0)
        begin = time.monotonic()
        assert try_once(config, ALARM) == {"smtp": "no answer within 2 s"}
        assert time.monotonic() - begin < 10
        assert delivery_processes() == []
    wait_until(lambda: set(threading.enumerate()) <= threads, what="no thread stays")


def test_server_that_is_not_there_is_named_in_one_line() -> None:
    (port,) = free_ports(1)
    assert "Connection refused" in try_once(mail_config(f"smtp://127.0.0.1:{port}"), ALARM)["smtp"]


def test_mails_do_not_wait_for_each_other(mail_server: tuple[Mailbox, str]) -> None:
    mailbox, server = mail_server

    async def send() -> None:
        dripping = [asyncio.create_task(AlarmDelivery(mail_config(slow, timeout=60)).try_once(ALARM)) for _ in range(8)]
        assert await AlarmDelivery(mail_config(server)).try_once(ALARM) == {"smtp": ""}
        assert not any(task.done() for task in dripping)
        for task in dripping:
            task.cancel()
        await asyncio.wait(dripping)

    with trickling(b"220-") as address:
        slow = address.replace("http", "smtp").rstrip("/")
        asyncio.run(send())
    assert len(mailbox.mails) == 1
