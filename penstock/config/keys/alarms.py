"""Keys of alarms."""

from __future__ import annotations

import shlex
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from penstock.config.keys.secrets import SECRET
from penstock.config.keys.values import Seconds, Section


class AlarmsConfig(Section):
    """Rules over the metrics that run in the daemon, and the receivers of their alarms."""

    webhook: str = Field("", json_schema_extra=SECRET, description='URL to which alarms are posted as JSON; "" = off.')
    command: str = Field("", description='Command that receives each alarm as JSON on standard input; "" = off.')
    every: Seconds = Field(15.0, ge=0.1, description="Interval of evaluating the rules.")
    timeout: Seconds = Field(10.0, gt=0, description="Time limit of the webhook and of the command.")
    retry_for: Seconds = Field(900.0, ge=0, description="Time for which a failed delivery of an alarm is retried.")

    @field_validator("webhook")
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
