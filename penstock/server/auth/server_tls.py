"""TLS of all servers of the daemon, from one certificate, key and client authority; renewed files are used at once."""

from __future__ import annotations

import ssl

import grpc

from penstock.config import SecurityConfig
from penstock.config.keys.security.contexts import first_certificate, server_context
from penstock.config.keys.security.renewed_tls import Pem, RenewedContext, renewed_server_credentials


class ServerTls:
    """TLS settings of each server; None if no certificate is configured. Raises ConfigError for bad files."""

    def __init__(self, security: SecurityConfig) -> None:
        self._security = security
        security.check_files()
        self._paths = (security.tls_cert, security.tls_key, security.client_ca)

    def for_http(self) -> ssl.SSLContext | None:
        """Return the context of HTTP and of Kafka's protocol."""
        cert, key, client_ca = self._paths
        if cert is None or key is None:
            return None
        return RenewedContext(lambda: server_context(cert, key, client_ca), self._paths)

    def for_rpc(self) -> grpc.ServerCredentials | None:
        """Return the credentials of gRPC and Flight."""
        cert, key, client_ca = self._paths
        if cert is None or key is None:
            return None

        def load() -> Pem:
            # Checked first: gRPC itself accepts a key that does not match the certificate, then fails every handshake.
            server_context(cert, key, client_ca)
            chain = cert.read_bytes()
            # The servers' certificate is an authority too: Penstock's own processes identify themselves with it.
            authorities = None if client_ca is None else client_ca.read_bytes() + b"\n" + first_certificate(chain)
            return key.read_bytes(), chain, authorities

        return renewed_server_credentials(load, self._paths)
