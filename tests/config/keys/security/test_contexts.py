"""Certificates that servers and Penstock's own clients trust, shown by handshakes in memory."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest

from penstock.config.keys.security.contexts import (
    Unusable,
    client_context,
    first_certificate,
    peer_name,
    server_context,
)
from tests.server import certificates
from tests.server.certificates import Pair


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Certificates: ``server`` with a public authority in its file, ``stranger`` of the same authority, ``ours`` and
    ``ca``.
    """
    folder = tmp_path_factory.mktemp("certificates")
    created = {name: certificates.make(folder, name) for name in ("public", "ca")}
    created |= {name: certificates.make(folder, name, issuer=created["public"]) for name in ("server", "stranger")}
    created["ours"] = certificates.make(folder, "ours", issuer=created["ca"])
    with created["server"].cert.open("ab") as chain:
        chain.write(created["public"].cert.read_bytes())
    return created


def shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Raise SSLError when one side refuses the other."""
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(outward, inward), server.wrap_bio(inward, outward, server_side=True)]
    for _ in range(5):
        for side in sides:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()


def showing(pairs: dict[str, Pair], name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(pairs["public"].cert))
    context.check_hostname = False
    context.load_cert_chain(pairs[name].cert, pairs[name].key)
    return context


def test_server_trusts_its_certificate_but_not_its_authority(pairs: dict[str, Pair]) -> None:
    server = server_context(pairs["server"].cert, pairs["server"].key, pairs["ca"].cert)
    shaken(server, showing(pairs, "server"))
    shaken(server, showing(pairs, "ours"))
    with pytest.raises(ssl.SSLError):
        shaken(server, showing(pairs, "stranger"))


def test_client_trusts_the_servers_certificate_but_not_its_authority(pairs: dict[str, Pair]) -> None:
    client = client_context(pairs["server"].cert, None)
    shaken(server_context(pairs["server"].cert, pairs["server"].key, None), client)
    with pytest.raises(ssl.SSLError):
        shaken(server_context(pairs["stranger"].cert, pairs["stranger"].key, None), client)


def test_name_is_that_of_the_first_certificate(pairs: dict[str, Pair]) -> None:
    assert peer_name(pairs["server"].cert, pairs["server"].key, pairs["ca"].cert) == "server"


def test_first_certificate_is_cut_out_of_its_file(pairs: dict[str, Pair]) -> None:
    alone = pairs["public"].cert.read_bytes()
    chain = b"issued to us\n" + alone + pairs["ours"].cert.read_bytes()
    assert first_certificate(chain) == alone
    with pytest.raises(Unusable, match="tls_cert: holds no certificates"):
        first_certificate(b"nothing of that kind")


@pytest.mark.survives("supervisor", "wrong clock")
@pytest.mark.parametrize(("days", "reason"), [(-9, "certificate has expired"), (9, "certificate is not yet valid")])
def test_certificate_of_another_time_is_refused_with_the_time_of_the_clock(
    tmp_path: Path, days: int, reason: str
) -> None:
    pair = certificates.make(tmp_path, "server", valid_in_days=days)
    with pytest.raises(Unusable, match=rf"tls_cert: cannot be used for a server: {reason} \(the clock says 20.* UTC\)"):
        peer_name(pair.cert, pair.key, None)
