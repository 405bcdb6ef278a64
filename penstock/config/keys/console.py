"""Keys of the web console."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator, model_validator

from penstock.config.keys.values import Address, Network, Section
from penstock.config.units import ConfigError

if TYPE_CHECKING:
    import ssl

DEFAULT_ADDRESS = "127.0.0.1:8840"
NO_ROLE = "none"
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,60}")
RESERVED_HEADERS = {"host", "origin", "cookie", "authorization", "x-forwarded-for", "user-agent"}
"""Headers that browsers or proxies set to something else than a user's name."""


class ConsoleConfig(Section):
    """The web console."""

    http: Address = Field(DEFAULT_ADDRESS, description="Address of the web console.")
    tls_cert: Path | None = Field(None, description="File of the console's certificate chain (PEM); needs tls_key.")
    tls_key: Path | None = Field(None, description="File of the private key of tls_cert (PEM).")
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

    @property
    def url(self) -> str:
        """The address as browsers take it."""
        return f"{'https' if self.tls_cert else 'http'}://{self.http}"

    def tls_context(self) -> ssl.SSLContext | None:
        """Return a TLS context of the present files; None without TLS. Raises Unusable."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        # Here, because receivers do not need OpenSSL's memory.
        from penstock.config.keys.security.contexts import sender_context

        return sender_context(self.tls_cert, self.tls_key, None)

    def check_files(self) -> None:
        """Raise ConfigError if certificate and key cannot be used."""
        try:
            self.tls_context()
        except ValueError as error:  # Unusable, see tls_context
            raise ConfigError(f"console.{error}") from None

    @model_validator(mode="after")
    def _tls_is_complete(self) -> ConsoleConfig:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls_cert and tls_key need each other")
        return self

    @model_validator(mode="after")
    def _proxy_is_complete(self) -> ConsoleConfig:
        if bool(self.trusted_user_header) != bool(self.trusted_proxies):
            raise ValueError("trusted_user_header and trusted_proxies need each other")
        return self
