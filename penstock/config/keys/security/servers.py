"""Keys of TLS and tokens of gRPC, HTTP and Flight."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from penstock.config.keys.console import ConsoleConfig
from penstock.config.keys.secrets import SECRET
from penstock.config.keys.values import Section, TopicName
from penstock.config.units import split_address

MIN_TOKEN_LENGTH = 16
"""Limit in characters: shorter tokens can be guessed."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PATTERN = re.compile(r"[a-z0-9_\-.]*\*?")
_HOSTS = re.compile(r"[A-Za-z0-9_.-]*\*?")
_CURSORS = re.compile(rf"{_PATTERN.pattern}(/{_PATTERN.pattern})?")


class TokenConfig(Section):
    """A bearer token and its rights. Topics by name, ``prefix*``, or ``*`` for all."""

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
    relay: bool = Field(False, description="may append what another host received, counted under its source and minute")
    host: tuple[str, ...] = Field((), description="hosts by name, or prefix*, whose counts may be posted to the ledger")
    monitor: bool = Field(
        False,
        description="may see the whole balance, metrics, statistics and the configuration, and log in to the console",
    )

    @field_validator("token")
    @classmethod
    def _check_length(cls, token: str) -> str:
        if token.startswith("sha256:"):
            if not _DIGEST.fullmatch(token):
                raise ValueError("sha256: is followed by 64 hex digits")
        elif len(token) < MIN_TOKEN_LENGTH:
            raise ValueError(f"a token has at least {MIN_TOKEN_LENGTH} characters")
        return token

    @field_validator("read", "write")
    @classmethod
    def _check_topics(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [name for name in names if not name or not _PATTERN.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is neither a topic nor a prefix with *")
        return names

    @field_validator("host")
    @classmethod
    def _check_hosts(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [name for name in names if not name or not _HOSTS.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is neither a host nor a prefix with *")
        return names

    @field_validator("cursor")
    @classmethod
    def _check_cursors(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [name for name in names if not name or not _CURSORS.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is neither a topic nor TOPIC/CURSOR; both may end with *")
        return names


class SecurityConfig(Section):
    """Access to the log daemon."""

    tls_cert: Path | None = Field(None, description="File of the servers' certificate chain (PEM); needs tls_key.")
    tls_key: Path | None = Field(None, description="File of the private key of tls_cert (PEM).")
    client_ca: Path | None = Field(
        None, description="File of the authorities that must have signed the clients' certificates (PEM)."
    )
    tokens: dict[TopicName, TokenConfig] = Field(default_factory=dict, description="Bearer tokens by name.")
    open_health: bool = Field(True, description="Answer gRPC health checks without a token.")
    open_reflection: bool = Field(True, description="Serve gRPC reflection, /docs and /openapi.json without a token.")
    hosts: tuple[str, ...] = Field(
        (),
        description=(
            "Host names, in addition to localhost and addresses, under which browsers reach the HTTP "
            "API and the console; * = any."
        ),
    )
    insecure: bool = Field(False, description="Allow addresses other than loopback without TLS or tokens.")

    @model_validator(mode="after")
    def _check_complete(self) -> SecurityConfig:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key need each other")
        if self.client_ca is not None and self.tls_cert is None:
            raise ValueError("client_ca needs tls_cert and tls_key")
        tokens = [token.token for token in self.tokens.values()]
        # Rights are looked up by token, so one of two equal tokens would never apply.
        if len(set(tokens)) < len(tokens):
            raise ValueError("tokens: two names have the same token")
        return self

    def missing_protection(self) -> Iterator[str]:
        """Yield the settings that an address other than loopback lacks."""
        if not self.insecure:
            if self.tls_cert is None:
                yield "tls_cert and tls_key"
            if not self.tokens:
                yield "tokens"

    def check_files(self) -> str:
        """Return a name of the certificate, or "" without one.

        Raises ConfigError when certificate, key or authorities cannot be used, alone or together.
        """
        if self.tls_cert is None or self.tls_key is None:
            return ""
        # Here, because receivers do not need OpenSSL's memory.
        from penstock.config.keys.security.contexts import checked_name

        return checked_name(self.tls_cert, self.tls_key, self.client_ca)


def is_loopback(address: str) -> bool:
    """Report whether ``host:port`` is reachable from this machine only."""
    host = split_address(address)[0]
    # Only a literal is judged without DNS: a name could resolve to another address after the check.
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(addresses: dict[str, str], security: SecurityConfig) -> None:
    """Raise ValueError, naming the key, for an address that is open to others without TLS and tokens."""
    for key, address in addresses.items():
        missing = " and ".join(security.missing_protection())
        if missing and not is_loopback(address):
            raise ValueError(f"{key}: {address} is not loopback: set security.{missing}, or security.insecure = true")


def check_console(console: ConsoleConfig, security: SecurityConfig) -> None:
    """Raise ValueError if the console would be reachable from other machines without TLS or without a login."""
    if is_loopback(console.http) or security.insecure:
        return
    has_login = console.users or console.trusted_user_header or security.tokens
    missing = [] if console.tls_cert else ["console.tls_cert and tls_key"]
    missing += [] if has_login else ["console.users"]
    if missing:
        raise ValueError(
            f"console.http: {console.http} is not loopback: set {' and '.join(missing)}, put a proxy that has TLS "
            "and a login in front of a loopback address, or set security.insecure = true"
        )
