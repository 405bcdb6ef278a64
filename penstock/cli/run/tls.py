"""``penstock tls init``: an authority and a server certificate for trying TLS."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.common import console, fail
from penstock.cli.options import Commands
from penstock.files.file_system import create_once

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

VALID_DAYS = 365
MODE = 0o600
FILES = ("ca.crt", "ca.key", "server.crt", "server.key")
LINES = """\
[[listener]]
name = "https"
protocol = "http"
port = 4318
tls_cert = "{folder}/server.crt"
tls_key = "{folder}/server.key"
"""
JSON = '{"page": "/"}'
tls = Commands(no_args_is_help=True, help="Create certificates to try TLS.")


@tls.callback()
def _group() -> None:
    """Keep ``init`` a command of the group."""


@tls.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the files.")] = Path("tls"),
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Name or address of the server in its certificate; may be repeated."),
    ] = None,
) -> None:
    """Make an authority and a server certificate, valid for a year, and print how to use them.

    For trials only: in production use the certificates of your organization. Existing files are never overwritten.
    """
    if existing := [file for file in FILES if (folder / file).exists()]:
        fail(f"{folder / existing[0]} exists and is not overwritten; name another folder", 2)
    names = name or ["localhost", "127.0.0.1", "::1"]
    contents = make_certificates(names)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in FILES:
        create_once(folder / file, contents[file], MODE)
    absolute = folder.absolute()
    console.print(f"made {', '.join(FILES)} in {absolute}, for {', '.join(names)}\n", markup=False, soft_wrap=True)
    console.print("a listener with TLS, in penstock.toml:\n", markup=False)
    print(LINES.format(folder=absolute))
    console.print("a request that trusts the authority:\n", markup=False)
    host = f"[{names[0]}]" if ":" in names[0] else names[0]
    print(f"curl --cacert {absolute}/ca.crt --data '{JSON}' https://{host}:4318/")


def make_certificates(names: list[str]) -> dict[str, bytes]:
    """Return the content of ``FILES``; the server's certificate is for ``names``."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name = _name("Penstock trial authority")
    authority = _certificate(authority_name, authority_name, authority_key, authority_key, is_authority=True)
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    server = _certificate(_name(names[0][:64]), authority_name, server_key, authority_key, alternatives)
    return dict(zip(FILES, (_pem(authority), _pem(authority_key), _pem(server), _pem(server_key)), strict=True))


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    issuer_key: EllipticCurvePrivateKey,
    alternatives: x509.SubjectAlternativeName | None = None,
    *,
    is_authority: bool = False,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A day ago: the clocks of clients may be behind.
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        # Python 3.13 and later refuse an authority without the right to sign.
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=is_authority,
                crl_sign=is_authority,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(part: x509.Certificate | EllipticCurvePrivateKey) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    if isinstance(part, x509.Certificate):
        return part.public_bytes(serialization.Encoding.PEM)
    return part.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
