"""Keys of the web console."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from penstock.config.keys.values import Address, Network, Section

NO_ROLE = "none"
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,60}")
RESERVED_HEADERS = {"host", "origin", "cookie", "authorization", "x-forwarded-for", "user-agent"}
"""Headers that browsers or proxies set to something else than a user's name."""


class ConsoleConfig(Section):
    """The web console."""

    http: Address = Field("127.0.0.1:8840", description="Address of the web console.")
    users: Path | None = Field(
        None, description="File of users with their roles and passwords; penstock users add writes it."
    )
    trusted_user_header: str = Field(
        "",
        description='Header in which a proxy names the user whom it has logged in; "" = off.',
    )
    trusted_proxies: tuple[Network, ...] = Field(
        (), description="Addresses or networks that may send trusted_user_header; others are refused with it."
    )
    trusted_user_role: Literal["viewer", "operator", "none"] = Field(
        "viewer", description="Role of users whom the proxy names and users does not list; none = refused."
    )

    @field_validator("trusted_user_header")
    @classmethod
    def _is_header(cls, header: str) -> str:
        if header and (not _HEADER.fullmatch(header) or header.lower() in RESERVED_HEADERS):
            raise ValueError("is not a header of a proxy such as X-Forwarded-Email")
        return header

    @model_validator(mode="after")
    def _proxy_is_complete(self) -> ConsoleConfig:
        if bool(self.trusted_user_header) != bool(self.trusted_proxies):
            raise ValueError("trusted_user_header and trusted_proxies need each other")
        return self
