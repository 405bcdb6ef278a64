"""TLS of the three servers, from one certificate, key and client authority."""

from __future__ import annotations

import ssl

import grpc

from penstock.config import SecurityConfig
from penstock.config.keys.tls import first_certificate, server_context


class ServerTls:
    """What each server needs; nothing where the configuration has no certificate. Raises ConfigError when it is bad."""

    def __init__(self, security: SecurityConfig) -> None:
        self._security = security
        security.check_files()
        self._cert = self._key = self._roots = b""
        if security.tls_cert is not None and security.tls_key is not None:
            self._cert, self._key = security.tls_cert.read_bytes(), security.tls_key.read_bytes()
        if security.client_ca is not None:
            # The product's own processes show the servers' certificate.
            self._roots = security.client_ca.read_bytes() + b"\n" + first_certificate(self._cert)

    def for_http(self) -> ssl.SSLContext | None:
        """The context of the HTTP server."""
        security = self._security
        if security.tls_cert is None or security.tls_key is None:
            return None
        return server_context(security.tls_cert, security.tls_key, security.client_ca)

    def for_rpc(self) -> grpc.ServerCredentials | None:
        """The credentials of the gRPC server."""
        if not self._cert:
            return None
        return grpc.ssl_server_credentials([(self._key, self._cert)], self._roots or None, bool(self._roots))
