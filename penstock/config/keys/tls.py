"""TLS contexts of ``[security]``, and whether its files fit each other: tried by a handshake in memory.

The product's own processes trust the servers' certificate itself and, where client certificates are asked for,
show the same one: so they need no authority of their own. Of a file with a chain that is the first certificate alone:
the authorities behind it vouch for many others.
"""

from __future__ import annotations

import contextlib
import re
import ssl
from pathlib import Path
from typing import Any

from penstock.config.units import ConfigError
from penstock.errors import PenstockError

_CERTIFICATE = re.compile(rb"-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----.*?-----END \1-----\n?", re.DOTALL)


class Unusable(PenstockError, ValueError):
    """Certificate, key and authorities do not work together; the text says which and why."""


def server_context(cert: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """What the servers use. Raises Unusable."""
    context = sender_context(cert, key, client_ca)
    if client_ca is not None:
        _trust_itself(context, cert)
    return context


def sender_context(cert: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """What a listener uses whose senders speak TLS. Raises Unusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_pair(context, cert, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _trust(context, client_ca, "client_ca")
    return context


def client_context(cert: Path, key: Path | None) -> ssl.SSLContext:
    """What the product's own clients use: they trust ``cert`` alone, and show it with ``key``. Raises Unusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the certificate itself is what is trusted, whatever name it has
    _trust_itself(context, cert)
    if key is not None:
        _load_pair(context, cert, key)
    return context


def checked_name(cert: Path, key: Path, client_ca: Path | None) -> str:
    """As ``peer_name``. Raises ConfigError, which names the key of the configuration."""
    try:
        return peer_name(cert, key, client_ca)
    except Unusable as error:
        raise ConfigError(f"security.{error}") from None


def peer_name(cert: Path, key: Path, client_ca: Path | None) -> str:
    """A name that the certificate holds for, after a handshake between both sides. Raises Unusable."""
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(cert, key, client_ca).wrap_bio(inward, outward, server_side=True)
    client = client_context(cert, key if client_ca is not None else None).wrap_bio(outward, inward)
    try:
        for _ in range(5):
            for side in (client, server):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLError as error:
        why = "as a client's too, which client_ca asks for" if client_ca is not None else "as a server's"
        raise Unusable(f"tls_cert: cannot be used {why}: {error.reason or error}") from None
    return _name(dict(client.getpeercert() or {}))


def _name(certificate: dict[str, Any]) -> str:
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    if not names:
        pairs = [pair for part in certificate.get("subject", ()) for pair in part]
        names = [value for kind, value in pairs if kind == "commonName"]
    if not names:
        raise Unusable("tls_cert: holds for no name")
    return str(names[0]).replace("*", "penstock", 1)


def _load_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    for name, path in (("tls_cert", cert), ("tls_key", key)):
        _check_readable(name, path)
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise Unusable(f"tls_cert: cannot be used with tls_key: {error}") from None


def _trust(context: ssl.SSLContext, path: Path, name: str) -> None:
    _check_readable(name, path)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise Unusable(f"{name}: holds no certificates: {error}") from None


def _trust_itself(context: ssl.SSLContext, cert: Path) -> None:
    _check_readable("tls_cert", cert)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    own = first_certificate(cert.read_bytes())
    try:
        context.load_verify_locations(cadata=own.decode("ascii", "replace"))
    except ssl.SSLError as error:
        raise Unusable(f"tls_cert: holds no certificates: {error}") from None


def first_certificate(pem: bytes) -> bytes:
    """The first certificate of ``tls_cert``, which is the servers' own; others are of authorities. Raises Unusable."""
    if (found := _CERTIFICATE.search(pem)) is None:
        raise Unusable("tls_cert: holds no certificates")
    return found[0]


def _check_readable(name: str, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise Unusable(f"{name}: {path} cannot be read: {error.strerror}") from None


def _no_password() -> str:
    raise ValueError("the key is locked with a password")
