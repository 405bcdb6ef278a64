"""Keys of TLS and tokens, for gRPC, HTTP and Flight alike."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from penstock.config.keys.secrets import SECRET
from penstock.config.keys.values import Section, TopicName
from penstock.config.units import split_address

LEAST_TOKEN = 16
"""Characters of a token: shorter ones can be guessed."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PATTERN = re.compile(r"[a-z0-9_\-.]*\*?")
_CURSORS = re.compile(rf"{_PATTERN.pattern}(/{_PATTERN.pattern})?")


class TokenConfig(Section):
    """One bearer token and what may be done with it. Topics by name, or ``*`` for all, or ``prefix*``."""

    token: str = Field(json_schema_extra=SECRET, description="the token, or sha256: and the hex digest of it")
    read: tuple[str, ...] = Field((), description="topics that may be read")
    write: tuple[str, ...] = Field((), description="topics that may be written")
    cursor: tuple[str, ...] = Field(
        (), description="topics whose cursors may be moved, or TOPIC/NAME: those of that name alone"
    )
    admin: bool = Field(
        False,
        description="may create, configure and delete topics, read internal ones, and do what ledger and monitor do",
    )
    ledger: bool = Field(False, description="may post to the ledger")
    monitor: bool = Field(
        False,
        description="may see the whole balance, metrics, statistics and the configuration, and log in to the console",
    )

    @field_validator("token")
    @classmethod
    def _long_enough(cls, token: str) -> str:
        if token.startswith("sha256:"):
            if not _DIGEST.fullmatch(token):
                raise ValueError("after sha256: stand 64 hex digits")
        elif len(token) < LEAST_TOKEN:
            raise ValueError(f"a token has at least {LEAST_TOKEN} characters")
        return token

    @field_validator("read", "write")
    @classmethod
    def _topics(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [name for name in names if not name or not _PATTERN.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is no topic, nor the beginning of one and a *")
        return names

    @field_validator("cursor")
    @classmethod
    def _cursors(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [name for name in names if not name or not _CURSORS.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is no topic, nor TOPIC/CURSOR; each may end in a *")
        return names


class SecurityConfig(Section):
    """Who may reach the log daemon, and how."""

    tls_cert: Path | None = Field(None, description="certificate chain of the servers (PEM); needs tls_key")
    tls_key: Path | None = Field(None, description="private key of tls_cert (PEM)")
    client_ca: Path | None = Field(None, description="authorities whose client certificates are asked for (PEM)")
    tokens: dict[TopicName, TokenConfig] = Field(default_factory=dict, description="bearer tokens by name")
    open_health: bool = Field(True, description="gRPC health checks need no token")
    open_reflection: bool = Field(
        True, description="gRPC reflection, /docs and /openapi.json, which describe the API, need no token"
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="names, besides localhost and addresses, under which browsers reach the HTTP API and the console; "
        "* = any",
    )
    insecure: bool = Field(False, description="allow other addresses than loopback without TLS or tokens")

    @model_validator(mode="after")
    def _complete(self) -> SecurityConfig:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key need each other")
        if self.client_ca is not None and self.tls_cert is None:
            raise ValueError("client_ca needs tls_cert and tls_key")
        tokens = [given.token for given in self.tokens.values()]
        if len(set(tokens)) < len(tokens):
            raise ValueError("tokens: two names have the same token")
        return self

    def gaps(self) -> Iterator[str]:
        """What is missing for other addresses than loopback."""
        if not self.insecure:
            if self.tls_cert is None:
                yield "tls_cert and tls_key"
            if not self.tokens:
                yield "tokens"

    def check_files(self) -> str:
        """A name that the certificate holds for, "" without one.

        Raises ConfigError when certificate, key or authorities cannot be used, or not together.
        """
        if self.tls_cert is None or self.tls_key is None:
            return ""
        from penstock.config.keys.tls import checked_name  # brings OpenSSL: some megabytes that receivers do without

        return checked_name(self.tls_cert, self.tls_key, self.client_ca)


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` can be reached from this machine alone."""
    host = split_address(address)[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(addresses: dict[str, str], security: SecurityConfig) -> None:
    """Raises ValueError, naming the key of an address that is open to others without TLS and tokens."""
    for key, address in addresses.items():
        missing = " and ".join(security.gaps())
        if missing and not is_loopback(address):
            raise ValueError(f"{key}: {address} is not loopback: set security.{missing}, or security.insecure = true")


def check_console(address: str, security: SecurityConfig) -> None:
    """Raises ValueError where others than this machine could reach the console, which speaks no TLS."""
    if not is_loopback(address) and not security.insecure:
        raise ValueError(
            f"console.http: {address} is not loopback, and the console speaks no TLS, and without tokens asks for no "
            "password: put a proxy that does before it, or set security.insecure = true"
        )
