"""Keys of alarms."""

from __future__ import annotations

import shlex
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from penstock.config.keys.secrets import SECRET
from penstock.config.keys.values import Seconds, Section, Size


class AlarmsConfig(Section):
    """Rules over the metrics that run in the daemon, and the receivers of their alarms."""

    webhook: str = Field("", json_schema_extra=SECRET, description='URL to which alarms are posted as JSON; "" = off.')
    command: str = Field("", description='Command that receives each alarm as JSON on standard input; "" = off.')
    slack: str = Field(
        "",
        json_schema_extra=SECRET,
        description='URL of an incoming webhook of Slack; "" = off.',
    )
    pagerduty: str = Field(
        "", json_schema_extra=SECRET, description='Routing key of PagerDuty (Events API v2); "" = off.'
    )
    pagerduty_url: str = Field(
        "https://events.pagerduty.com/v2/enqueue", description="Address of PagerDuty's Events API v2."
    )
    smtp: str = Field(
        "",
        description='Mail server: smtp://HOST:PORT (STARTTLS if it is offered) or smtps://HOST:PORT; "" = off.',
    )
    smtp_user: str = Field("", description="User at the mail server; the password is sent only with TLS.")
    smtp_password: str = Field("", json_schema_extra=SECRET, description="Password at the mail server.")
    mail_from: str = Field("", description="Sender of mails with alarms.")
    mail_to: tuple[str, ...] = Field((), description="Receivers of mails with alarms.")
    every: Seconds = Field(15.0, ge=0.1, description="Interval of evaluating the rules.")
    timeout: Seconds = Field(10.0, gt=0, description="Time limit of one delivery.")
    retry_for: Seconds = Field(900.0, ge=0, description="Time for which a failed delivery of an alarm is retried.")
    disk_free: Size = Field(
        "10GiB",
        validate_default=True,
        description="Free space below which a disk is nearly full, if disk_free_share is undercut as well; 0 = off.",
    )
    disk_free_share: float = Field(
        0.05, ge=0, le=1, description="Share of a disk's size below which it is nearly full, with disk_free; 0 = off."
    )

    @field_validator("webhook", "slack", "pagerduty_url")
    @classmethod
    def _is_address(cls, webhook: str) -> str:
        # The texts do not repeat the address: it often contains a password, and errors reach logs.
        if not webhook:
            return webhook
        if not webhook.startswith(("http://", "https://")):
            raise ValueError("is not an address such as https://hooks.example.org/penstock")
        if not all(" " < character <= "~" for character in webhook):
            raise ValueError("has spaces or characters outside ASCII: write them percent-encoded")
        try:
            address = urlsplit(webhook)
            has_host, _ = bool(address.hostname), address.port
        except ValueError:
            has_host = False
        if not has_host:
            raise ValueError("has no host, or an invalid port")
        if "@" in address.netloc:
            raise ValueError(
                "has a user or password: let the receiver take a secret in the path, or use alarms.command"
            )
        return webhook

    @field_validator("command")
    @classmethod
    def _is_command(cls, command: str) -> str:
        try:
            shlex.split(command)
        except ValueError as error:
            raise ValueError(f"is not a command: {error}") from None
        return command

    @field_validator("smtp")
    @classmethod
    def _is_mail_server(cls, smtp: str) -> str:
        try:
            address = urlsplit(smtp)
            is_server = address.scheme in ("smtp", "smtps") and bool(address.hostname) and address.port != 0
        except ValueError:
            is_server = False
        if smtp and (not is_server or "@" in address.netloc or address.path.strip("/")):
            raise ValueError("is not a mail server such as smtp://mail.example.org:587; the user is alarms.smtp_user")
        return smtp

    @model_validator(mode="after")
    def _mail_is_complete(self) -> AlarmsConfig:
        if self.smtp and not (self.mail_from and self.mail_to):
            raise ValueError("smtp needs mail_from and mail_to")
        if bool(self.smtp_user) != bool(self.smtp_password):
            raise ValueError("smtp_user and smtp_password need each other")
        if any(character in address for address in (self.mail_from, *self.mail_to) for character in "\r\n"):
            raise ValueError("an address of mail_from or mail_to has a line end")
        return self

    @property
    def disk_limits(self) -> tuple[int, float]:
        """Bytes and share of its size below which a disk is nearly full."""
        return self.disk_free, self.disk_free_share

    @property
    def has_destination(self) -> bool:
        """Report whether alarms are delivered anywhere."""
        return bool(self.webhook or self.command or self.slack or self.pagerduty or self.smtp)
