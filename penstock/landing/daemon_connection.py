"""Connection of Spark to the log daemon: address, token and certificates, as options of the data source."""

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
"""Default of ``retryFor``: time for which the daemon may be unreachable."""
PLAIN, OVER_TLS = "grpc://", "grpc+tls://"
OPTION_NAMES = ("uri", "token", "tlsCa", "tlsCert", "tlsKey", "tlsName", "retryFor")
"""Names of the options: ``uri`` is ``host:port``, with an optional ``grpc://`` or ``grpc+tls://`` before it.

``tlsCa``, ``tlsCert`` and ``tlsKey`` are PEM files of this machine, or PEM itself; ``retryFor`` such as ``30s``.
"""
_PEM = "-----BEGIN"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]@]+):[0-9]{1,5}")


class BadConnection(PenstockError, ValueError):
    """An option that cannot be used; the text names it, and shows nothing secret."""


@dataclass(frozen=True, slots=True)
class DaemonConnection:
    """A server of the log daemon, with credentials; ``retry_for``: seconds for which it may be unreachable.

    Certificates and keys are PEM, not files, so that they can be sent to machines without these files.
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
        """Parse options, whose names are in lower case. Raises BadConnection."""
        uri = options.get("uri", "").strip()
        ca, cert, key = (_pem(options, name) for name in ("tlsCa", "tlsCert", "tlsKey"))
        if (cert is None) != (key is None):
            raise BadConnection("tlsCert and tlsKey need each other")
        return cls(
            address=_address(uri),
            token=options.get("token", ""),
            # Certificates imply TLS, also for a plain host:port.
            tls=uri.startswith(OVER_TLS) or ca is not None or cert is not None,
            ca=ca,
            cert=cert,
            key=key,
            name=options.get("tlsname", ""),
            retry_for=_seconds(options),
        )

    @property
    def endpoint(self) -> Endpoint:
        """The connection as the client of the log expects it."""
        from penstock.client import Tls
        from penstock.client.log.connection import Endpoint

        tls = Tls(self.ca, self.cert, self.key, self.name) if self.tls else None
        return Endpoint(self.address, self.token or None, tls, self.address)

    def options(self) -> dict[str, str]:
        """Return the options that ``from_options`` parses."""
        pems = {"tlsCa": self.ca, "tlsCert": self.cert, "tlsKey": self.key}
        certificates = {name: pem.decode() for name, pem in pems.items() if pem is not None}
        credentials = {name: text for name, text in (("token", self.token), ("tlsName", self.name)) if text}
        scheme = OVER_TLS if self.tls else PLAIN
        return {"uri": scheme + self.address, "retryFor": f"{self.retry_for}s", **certificates, **credentials}


def configured_connection(settings: Settings) -> DaemonConnection | None:
    """Return the configured connection to the log daemon; None if the pipeline reads the topics' folder.

    Raises OSError for an unreadable token or certificate, ConfigError for an unusable certificate.
    """
    from penstock.config.daemon_access import Access

    pipeline, access = settings.pipeline, Access(settings)
    if not pipeline.uri:
        return None
    ca, key, cert = access.certificates
    token = pipeline.token or access.token or ""
    return DaemonConnection(pipeline.uri, token, ca is not None, ca, cert, key, access.peer)


def _address(uri: str) -> str:
    address = uri.removeprefix(OVER_TLS).removeprefix(PLAIN)
    if not _ADDRESS.fullmatch(address):
        raise BadConnection(f"uri: {uri!r} is not host:port")
    return address


def _pem(options: Mapping[str, str], name: str) -> bytes | None:
    option = options.get(name.lower(), "")
    if not option or option.lstrip().startswith(_PEM):
        return option.encode() or None
    try:
        return Path(option).read_bytes()
    except (OSError, ValueError) as error:
        # Limit: the option may be a whole file that was pasted without its first line.
        raise BadConnection(f"{name}: {option[:200]!r} cannot be read: {getattr(error, 'strerror', error)}") from None


def _seconds(options: Mapping[str, str]) -> float:
    option = options.get("retryfor", "")
    from penstock.config import parse_time

    try:
        return float(str(parse_time(option))) if option else RETRY_FOR_S
    except ValueError as error:
        raise BadConnection(f"retryFor: {error}") from None
