"""TLS contexts of ``[security]``, and a check of its files by a handshake in memory.

Penstock's processes trust the servers' certificate directly and, if client certificates are required, present the same
one, so they need no authority. Of a chain in a file this is only the first certificate: the authorities behind it sign
many others.
"""

from __future__ import annotations

import contextlib
import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.config.units import ConfigError
from penstock.errors import PenstockError
from penstock.files.errors import UnsafeFile
from penstock.files.regular_files import read_regular
from penstock.files.secret_files import read_secret

_CERTIFICATE = re.compile(rb"-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----.*?-----END \1-----\n?", re.DOTALL)


class Unusable(PenstockError, ValueError):
    """Certificate, key and authorities do not work together; the text names the file and the cause."""


def server_context(cert: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Return the context of the servers. Raises Unusable."""
    context = sender_context(cert, key, client_ca)
    if client_ca is not None:
        _trust_certificate(context, cert)
    return context


def sender_context(cert: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Return the context of a listener with TLS. Raises Unusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_pair(context, cert, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _trust_authorities(context, client_ca, "client_ca")
    return context


def client_context(cert: Path, key: Path | None) -> ssl.SSLContext:
    """Return the context of Penstock's own clients: it trusts ``cert`` only and presents it with ``key``. Raises
    Unusable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the certificate itself is trusted, under any name
    _trust_certificate(context, cert)
    if key is not None:
        _load_pair(context, cert, key)
    return context


def checked_name(cert: Path, key: Path, client_ca: Path | None) -> str:
    """Return ``peer_name``. Raises ConfigError, which names the key of the configuration."""
    try:
        return peer_name(cert, key, client_ca)
    except Unusable as error:
        raise ConfigError(f"security.{error}") from None


def peer_name(cert: Path, key: Path, client_ca: Path | None) -> str:
    """Return a name in the certificate, after a handshake between both sides in memory. Raises Unusable."""
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(cert, key, client_ca).wrap_bio(inward, outward, server_side=True)
    client = client_context(cert, key if client_ca is not None else None).wrap_bio(outward, inward)
    try:
        # Limit: a handshake of TLS 1.2 or 1.3 with client certificates takes at most four round trips.
        for _ in range(5):
            for side in (client, server):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLError as error:
        role = "for clients too, which client_ca requires" if client_ca is not None else "for a server"
        reason = error.reason or error
        if isinstance(error, ssl.SSLCertVerificationError):
            # Expired and not yet valid ones among them: a machine may start with a wrong clock.
            reason = f"{error.verify_message} (the clock says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC)"
        raise Unusable(f"tls_cert: cannot be used {role}: {reason}") from None
    return _name_in_certificate(dict(client.getpeercert() or {}))


def _name_in_certificate(certificate: dict[str, Any]) -> str:
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    if not names:
        pairs = [pair for part in certificate.get("subject", ()) for pair in part]
        names = [value for kind, value in pairs if kind == "commonName"]
    if not names:
        raise Unusable("tls_cert: contains no name")
    return str(names[0]).replace("*", "penstock", 1)


def _load_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    for name, read, path in (("tls_cert", read_regular, cert), ("tls_key", read_secret, key)):
        _check_readable(name, path, read)
    try:
        # Without a callback OpenSSL would prompt on the terminal and block the start.
        context.load_cert_chain(cert, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise Unusable(f"tls_cert: cannot be used with tls_key: {cert} and {key}: {error}") from None


def _trust_authorities(context: ssl.SSLContext, path: Path, name: str) -> None:
    _check_readable(name, path)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise Unusable(f"{name}: holds no certificates: {error}") from None


def _trust_certificate(context: ssl.SSLContext, cert: Path) -> None:
    _check_readable("tls_cert", cert)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # Workaround: without the flag above OpenSSL requires a self-signed root behind the trusted certificate.
    certificate = first_certificate(cert.read_bytes())
    try:
        context.load_verify_locations(cadata=certificate.decode("ascii", "replace"))
    except ssl.SSLError as error:
        raise Unusable(f"tls_cert: holds no certificates: {error}") from None


def first_certificate(pem: bytes) -> bytes:
    """Return the first certificate of ``tls_cert``, the servers' own; the others are authorities. Raises Unusable."""
    if (match := _CERTIFICATE.search(pem)) is None:
        raise Unusable("tls_cert: holds no certificates")
    return match[0]


def _check_readable(name: str, path: Path, read: Callable[[Path], bytes] = read_regular) -> None:
    try:
        read(path)
    except UnsafeFile as error:
        raise Unusable(f"{name}: {error}") from None
    except OSError as error:
        raise Unusable(f"{name}: {path} cannot be read: {error.strerror}") from None


def _no_password() -> str:
    raise ValueError("the key is protected by a password")
