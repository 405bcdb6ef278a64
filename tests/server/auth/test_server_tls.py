"""Certificates and client authorities that are replaced while the daemon runs."""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import SecurityConfig, TokenConfig
from penstock.config.daemon_access import TOKEN_FILE, Access
from penstock.server.kafka.schema.messages import Api
from tests.server import certificates
from tests.server.auth.test_security import settings_of
from tests.server.certificates import Pair
from tests.server.kafka.schema.test_messages import request
from tests.server.kafka.test_limits import framed
from tests.server.running import INTERNAL_TOKEN, Running

PROTOCOLS = ("http", "grpc", "flight", "kafka")
HTTP_REQUEST = b"GET /topics HTTP/1.1\r\nhost: a\r\n\r\n"
KAFKA_REQUEST = framed(request(Api.API_VERSIONS, 0))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    folder = tmp_path_factory.mktemp("certificates")
    old, new = certificates.make(folder, "old-authority"), certificates.make(folder, "new-authority")
    return {
        "old authority": old,
        "new authority": new,
        "old client": certificates.make(folder, "old-client", issuer=old),
        "new client": certificates.make(folder, "new-client", issuer=new),
        "old server": certificates.make(folder, "old-server"),
        "new server": certificates.make(folder, "new-server"),
    }


@pytest.fixture
def security(tmp_path: Path, pairs: dict[str, Pair]) -> SecurityConfig:
    token = TokenConfig(token="the secret of the reader", read=("*",))
    config = SecurityConfig(
        tls_cert=tmp_path / "cert.pem",
        tls_key=tmp_path / "key.pem",
        client_ca=tmp_path / "ca.pem",
        tokens={"reader": token},
    )
    install(config, pairs, "old")
    return config


@pytest.fixture
def running(tmp_path: Path, security: SecurityConfig) -> Iterator[Running]:
    server = Running(tmp_path / "topics", security, kafka=True)
    yield server
    server.stop()


def install(config: SecurityConfig, pairs: dict[str, Pair], age: str) -> None:
    """Replace the configured files as certbot does: a new file under the old name."""
    assert config.tls_cert
    assert config.tls_key
    assert config.client_ca
    server, authority = pairs[f"{age} server"], pairs[f"{age} authority"]
    for source, target in (
        (server.cert, config.tls_cert),
        (server.key, config.tls_key),
        (authority.cert, config.client_ca),
    ):
        written = target.with_suffix(".new")
        shutil.copy(source, written)
        written.replace(target)


def is_admitted(running: Running, protocol: str, client: Pair, server: Pair) -> bool:
    """Return whether a client with this certificate and trust in ``server`` gets an answer."""
    context = ssl.create_default_context(cafile=str(server.cert))
    context.check_hostname = False
    context.load_cert_chain(client.cert, client.key)
    context.set_alpn_protocols(["h2"])
    host, _, port = getattr(running.bound, protocol).rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), 5) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            # In TLS 1.3 the server refuses a certificate after the client's side of the handshake is done: only an
            # answer shows that it has not. HTTP/2 begins with the server's settings, the others answer a request.
            connection.settimeout(30)
            connection.sendall(KAFKA_REQUEST if protocol == "kafka" else HTTP_REQUEST)
            return bool(connection.recv(1))
    except OSError:
        return False


def test_renewed_files_apply_to_every_protocol(
    running: Running, security: SecurityConfig, pairs: dict[str, Pair]
) -> None:
    def admitted(client: str, server: str) -> list[str]:
        return [name for name in PROTOCOLS if is_admitted(running, name, pairs[client], pairs[server])]

    assert admitted("old client", "old server") == list(PROTOCOLS)
    assert admitted("new client", "old server") == []
    install(security, pairs, "new")
    assert admitted("new client", "new server") == list(PROTOCOLS)
    assert admitted("old client", "new server") == []
    assert admitted("new client", "old server") == []


def test_mismatched_files_change_nothing(running: Running, security: SecurityConfig, pairs: dict[str, Pair]) -> None:
    assert security.tls_key
    shutil.copy(pairs["new server"].key, security.tls_key)
    for name in PROTOCOLS:
        assert is_admitted(running, name, pairs["old client"], pairs["old server"])


def test_own_processes_follow_a_renewal(
    tmp_path: Path, running: Running, security: SecurityConfig, pairs: dict[str, Pair]
) -> None:
    (tmp_path / TOKEN_FILE).write_text(INTERNAL_TOKEN)
    (tmp_path / TOKEN_FILE).chmod(0o600)
    (tmp_path / TOKEN_FILE).chmod(0o600)
    access = Access(settings_of(tmp_path, running, security))
    with access.client() as before:
        assert before.get("/topics").status_code == 200
    install(security, pairs, "new")
    assert access.request("/topics")[0] == 200
    with access.client() as after:
        assert after.get("/topics").status_code == 200
