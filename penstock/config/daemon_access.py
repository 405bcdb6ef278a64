"""How Penstock's own processes and commands reach the log daemon: addresses, certificate, token.

Where ``[security]`` has tokens, they use one that lies in the data directory, readable by its owner alone.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock.config.keys.tls import checked_name, client_context, first_certificate
from penstock.config.units import split_address
from penstock.files.errors import DamagedFile

if TYPE_CHECKING:
    import httpx

    from penstock.config import Settings
    from penstock.config.daemon_keys import DaemonKeys

TOKEN_FILE = "token"  # noqa: S105 - the name of a file
"""In the data directory, mode 0600."""


def internal_token(data_dir: Path) -> str:
    """The token of this data directory; made when it is first asked for. Raises OSError and DamagedFile."""
    path = data_dir / TOKEN_FILE
    with contextlib.suppress(FileNotFoundError):
        return read_token(path)
    import secrets

    from penstock.files.file_system import create_once  # brings Arrow

    data_dir.mkdir(parents=True, exist_ok=True)
    create_once(path, secrets.token_hex(32).encode(), 0o600)
    return read_token(path)


def read_token(path: Path) -> str:
    """The token in a file, without what is blank around it. Raises OSError and DamagedFile."""
    token = path.read_bytes().strip()
    if not token or not all(0x20 <= byte < 0x7F for byte in token):
        raise DamagedFile(f"{path} is damaged, or no token; a data directory's may be removed: a start makes another")
    return token.decode()


@dataclass(frozen=True)
class Access:
    """The daemon of one configuration, seen from this machine."""

    settings: Settings | DaemonKeys

    @cached_property
    def http_url(self) -> str:
        """Base URL of the HTTP API."""
        scheme = "https" if self.settings.security.tls_cert else "http"
        return f"{scheme}://{reachable(self.settings.log.http)}"

    @cached_property
    def rpc_address(self) -> str:
        """Address of the gRPC API."""
        return reachable(self.settings.log.grpc)

    @cached_property
    def token(self) -> str | None:
        """The bearer token to show. Raises OSError when it may not be read."""
        return internal_token(self.settings.data_dir) if self.settings.security.tokens else None

    @property
    def headers(self) -> dict[str, str]:
        """Headers of HTTP requests, metadata of gRPC and Flight calls."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    @cached_property
    def verify(self) -> ssl.SSLContext | bool:
        """``verify`` of httpx."""
        security = self.settings.security
        if security.tls_cert is None:
            return True
        return client_context(security.tls_cert, security.tls_key if security.client_ca else None)

    @cached_property
    def peer(self) -> str:
        """The name that the servers' certificate holds for; "" without TLS. Raises ConfigError."""
        security = self.settings.security
        if security.tls_cert is None or security.tls_key is None:
            return ""
        return checked_name(security.tls_cert, security.tls_key, security.client_ca)

    @property
    def certificates(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """PEM: what to trust, and the private key and certificate to show (where client certificates are asked for)."""
        security = self.settings.security
        if security.tls_cert is None or security.tls_key is None:
            return None, None, None
        cert = security.tls_cert.read_bytes()
        own = first_certificate(cert)
        return (own, security.tls_key.read_bytes(), cert) if security.client_ca else (own, None, None)

    def ask(
        self, path: str, method: str = "GET", parameters: Mapping[str, str] | None = None, timeout: float = 30.0
    ) -> tuple[int, bytes]:
        """Status and body of one answer, by the standard library alone: for commands, which start anew each time.

        Raises OSError where there is none, or the token may not be read.
        """
        headers, host, port = self.headers, *split_address(reachable(self.settings.log.http))
        context = self.verify
        connection = (
            HTTPSConnection(host, port, timeout=timeout, context=context)
            if isinstance(context, ssl.SSLContext)
            else HTTPConnection(host, port, timeout=timeout)
        )
        try:
            connection.request(method, f"{path}?{urlencode(parameters)}" if parameters else path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except HTTPException as error:
            raise ConnectionError(f"what answers is no log daemon: {error!r}") from None
        finally:
            connection.close()

    def client(self, timeout: float = 30.0) -> httpx.Client:
        """A client of the HTTP API. Raises OSError when the token may not be read."""
        import httpx  # slow to import

        return httpx.Client(
            base_url=self.http_url, headers=self.headers, verify=self.verify, timeout=timeout, trust_env=False
        )


def reachable(address: str) -> str:
    """The address to connect to for one that is listened on: loopback where that is any."""
    host, port = split_address(address)
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{loopback}]:{port}" if ":" in loopback else f"{loopback}:{port}"
