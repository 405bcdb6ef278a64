"""Access of Penstock's own processes and commands to the log daemon: addresses, certificate, token.

If ``[security]`` has tokens, they use an internal one in the data directory, which only its owner can read.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from penstock.config.keys.security.contexts import checked_name, client_context, first_certificate
from penstock.config.keys.security.renewed_tls import RenewedContext
from penstock.config.units import split_address
from penstock.files.errors import DamagedFile, UnsafeFile
from penstock.files.regular_files import check_regular
from penstock.files.secret_files import read_secret

if TYPE_CHECKING:
    import httpx

    from penstock.config import Settings
    from penstock.config.daemon_keys import DaemonKeys

TOKEN_FILE = "token"  # noqa: S105 - the name of a file
"""Name of the file in the data directory, mode 0600."""
_LOGGER = logging.getLogger(__name__)


def internal_token(data_dir: Path, *, replace: bool = False) -> str:
    """Return the internal token of a data directory; the first call creates it.

    With ``replace``, for a start, a token that is damaged or that others could read or plant is replaced by a new one,
    and a line in the log says so. Raises OSError, DamagedFile and UnsafeFile.
    """
    path = data_dir / TOKEN_FILE
    if path.exists():
        # Nothing is removed that is not a file: what it holds is not known.
        check_regular(path.stat(), path)
    try:
        return read_token(path)
    except FileNotFoundError:
        pass
    except (DamagedFile, UnsafeFile) as error:
        if not replace:
            raise type(error)(f"{error}; the next start of Penstock makes a new token") from None
        _LOGGER.warning("%s; a new token is made", error)
        path.unlink()
    import secrets

    from penstock.files.file_system import create_once  # here, because it is only needed once

    data_dir.mkdir(parents=True, exist_ok=True)
    # Several processes may start at once: the first one's token wins, and all read it back.
    create_once(path, secrets.token_hex(32).encode(), 0o600)
    return read_token(path)


def read_token(path: Path) -> str:
    """Return the token in a file without surrounding blanks. Raises OSError, DamagedFile and UnsafeFile."""
    token = read_secret(path).strip()
    # A header cannot carry other bytes; an empty token would let everybody in.
    if not token or not all(0x20 <= byte < 0x7F for byte in token):
        raise DamagedFile(f"{path} is damaged or not a token")
    return token.decode()


@dataclass(frozen=True)
class Access:
    """Access to the daemon of one configuration from this machine."""

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
        """The bearer token, or None. Raises OSError when it cannot be read."""
        return internal_token(self.settings.data_dir) if self.settings.security.tokens else None

    @property
    def headers(self) -> dict[str, str]:
        """Headers of HTTP requests, metadata of gRPC and Flight calls."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    @cached_property
    def verify(self) -> ssl.SSLContext | bool:
        """``verify`` of httpx.

        False without TLS: the address is then ``http``, and each client would read all authorities, which takes 20 ms.
        """
        security = self.settings.security
        if security.tls_cert is None:
            return False
        cert, key = security.tls_cert, security.tls_key if security.client_ca else None
        # The daemon reloads renewed certificates: a long-running process with the old ones would no longer trust it.
        return RenewedContext(lambda: client_context(cert, key), (cert, key))

    @cached_property
    def peer(self) -> str:
        """The name in the servers' certificate; empty without TLS. Raises ConfigError."""
        security = self.settings.security
        if security.tls_cert is None or security.tls_key is None:
            return ""
        return checked_name(security.tls_cert, security.tls_key, security.client_ca)

    @property
    def certificates(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """PEM texts: the trusted certificate, and the private key and certificate of a client (if the daemon requires
        one).
        """
        security = self.settings.security
        if security.tls_cert is None or security.tls_key is None:
            return None, None, None
        cert = security.tls_cert.read_bytes()
        server_cert = first_certificate(cert)
        return (server_cert, security.tls_key.read_bytes(), cert) if security.client_ca else (server_cert, None, None)

    def request(
        self,
        path: str,
        method: str = "GET",
        parameters: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        document: Mapping[str, Any] | None = None,
    ) -> tuple[int, bytes]:
        """Return status and body of one response; ``document`` is sent as JSON.

        With the standard library only: commands start faster without httpx.

        Raises OSError if there is no response or the token cannot be read.
        """
        headers, host, port = self.headers, *split_address(reachable(self.settings.log.http))
        context = self.verify
        connection = (
            HTTPSConnection(host, port, timeout=timeout, context=context)
            if isinstance(context, ssl.SSLContext)
            else HTTPConnection(host, port, timeout=timeout)
        )
        try:
            address = f"{path}?{urlencode(parameters)}" if parameters else path
            connection.request(method, address, None if document is None else json.dumps(document), headers)
            response = connection.getresponse()
            return response.status, response.read()
        except HTTPException as error:
            raise ConnectionError(f"the server is not a log daemon: {error!r}") from None
        finally:
            connection.close()

    def client(self, timeout: float = 30.0) -> httpx.Client:
        """Return a client of the HTTP API. Raises OSError when the token cannot be read."""
        import httpx  # here, because it is slow to import

        return httpx.Client(
            # trust_env is off: a proxy of the environment must not see the internal token.
            base_url=self.http_url,
            headers=self.headers,
            verify=self.verify,
            timeout=timeout,
            trust_env=False,
        )


def reachable(address: str) -> str:
    """Return the address to connect to for a listening address: loopback for a wildcard address."""
    host, port = split_address(address)
    # A client cannot connect to a wildcard address on all systems.
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{loopback}]:{port}" if ":" in loopback else f"{loopback}:{port}"
