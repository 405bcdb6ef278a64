"""How Spark reaches the log daemon: its address, token and certificates, as options of the data source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:  # brings gRPC, which executors that read a folder do without
    from penstock.client.log.connection import Endpoint
    from penstock.config import Settings

RETRY_FOR_S = 30.0
"""Seconds for which the daemon may be away, unless ``retryFor`` says otherwise."""
PLAIN, OVER_TLS = "grpc://", "grpc+tls://"
OPTION_NAMES = ("uri", "token", "tlsCa", "tlsCert", "tlsKey", "tlsName", "retryFor")
"""The options' names: ``uri`` is ``host:port``, or that with ``grpc://`` or ``grpc+tls://`` before it.

``tlsCa``, ``tlsCert`` and ``tlsKey`` are PEM files of this machine, or PEM itself; ``retryFor`` such as ``30s``.
"""
_PEM = "-----BEGIN"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]@]+):[0-9]{1,5}")


class BadConnection(PenstockError, ValueError):
    """An option cannot be used; the text names it, and shows nothing secret."""


@dataclass(frozen=True, slots=True)
class DaemonConnection:
    """A server of the log daemon, and what is shown to it. ``retry_for``: seconds for which it may be away.

    Certificates and keys are PEM, not files: so they go with it to machines that have no such files.
    """

    address: str
    token: str = field(default="", repr=False)
    tls: bool = False
    ca: bytes | None = field(default=None, repr=False)
    cert: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    name: str = ""
    retry_for: float = RETRY_FOR_S

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> DaemonConnection:
        """From options by their names in lower case. Raises BadConnection."""
        given = options.get("uri", "").strip()
        ca, cert, key = (_pem(options, name) for name in ("tlsCa", "tlsCert", "tlsKey"))
        if (cert is None) != (key is None):
            raise BadConnection("tlsCert and tlsKey need each other")
        return cls(
            address=_address(given),
            token=options.get("token", ""),
            tls=given.startswith(OVER_TLS) or ca is not None or cert is not None,
            ca=ca,
            cert=cert,
            key=key,
            name=options.get("tlsname", ""),
            retry_for=_seconds(options),
        )

    @property
    def endpoint(self) -> Endpoint:
        """As the client of the log has it."""
        from penstock.client import Tls
        from penstock.client.log.connection import Endpoint

        tls = Tls(self.ca, self.cert, self.key, self.name) if self.tls else None
        return Endpoint(self.address, self.token or None, tls, self.address)

    def options(self) -> dict[str, str]:
        """As ``of`` reads them."""
        pems = {"tlsCa": self.ca, "tlsCert": self.cert, "tlsKey": self.key}
        given = {name: pem.decode() for name, pem in pems.items() if pem is not None}
        named = {name: text for name, text in (("token", self.token), ("tlsName", self.name)) if text}
        scheme = OVER_TLS if self.tls else PLAIN
        return {"uri": scheme + self.address, "retryFor": f"{self.retry_for}s", **given, **named}


def configured_connection(settings: Settings) -> DaemonConnection | None:
    """How the pipeline reaches the log daemon's topics; None where it reads their folder.

    Raises OSError for a token or certificate that cannot be read, ConfigError for a certificate that cannot be used.
    """
    from penstock.config.daemon_access import Access

    pipeline, access = settings.pipeline, Access(settings)
    if not pipeline.uri:
        return None
    ca, key, cert = access.certificates
    token = pipeline.token or access.token or ""
    return DaemonConnection(pipeline.uri, token, ca is not None, ca, cert, key, access.peer)


def _address(given: str) -> str:
    address = given.removeprefix(OVER_TLS).removeprefix(PLAIN)
    if not _ADDRESS.fullmatch(address):
        raise BadConnection(f"uri: {given!r} is not host:port")
    return address


def _pem(options: Mapping[str, str], name: str) -> bytes | None:
    given = options.get(name.lower(), "")
    if not given or given.lstrip().startswith(_PEM):
        return given.encode() or None
    try:
        return Path(given).read_bytes()
    except (OSError, ValueError) as error:
        raise BadConnection(f"{name}: {given[:200]!r} cannot be read: {getattr(error, 'strerror', error)}") from None


def _seconds(options: Mapping[str, str]) -> float:
    given = options.get("retryfor", "")
    from penstock.config import parse_time

    try:
        return float(str(parse_time(given))) if given else RETRY_FOR_S
    except ValueError as error:
        raise BadConnection(f"retryFor: {error}") from None
