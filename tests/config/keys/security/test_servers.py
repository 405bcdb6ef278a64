"""TLS, tokens and permitted addresses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ConfigError, SecurityConfig, is_loopback, load, masked
from tests.fuzzed import RAW

TOKEN = "security.tokens.writer.token=0123456789abcdef"
OPEN = "log.http=0.0.0.0:8844"


def test_default_addresses_are_loopback() -> None:
    log = load(environment={}).log
    assert all(is_loopback(address) for address in (log.grpc, log.http))


@pytest.mark.parametrize("address", ["0.0.0.0:1", "192.0.2.1:1", "[::]:1", "log.example:1"])
@pytest.mark.parametrize("key", ["log.http", "log.grpc", "log.flight"])
def test_other_address_requires_tls_and_tokens(key: str, address: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: .* is not loopback: set security.tls_cert and tls_key and tokens"):
        load(None, [f"{key}={address}"], {})
    load(None, [f"{key}={address}", "security.insecure=true"], {})


def test_missing_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"set security.tls_cert and tls_key, or security.insecure"):
        load(None, [OPEN, TOKEN], {})
    tls = ["security.tls_cert=a.pem", "security.tls_key=b.pem"]
    with pytest.raises(ConfigError, match=r"set security\.tokens, or security\.insecure"):
        load(None, [OPEN, *tls], {})
    load(None, [OPEN, *tls, TOKEN], {})


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"])
def test_loopback_requires_nothing(address: str) -> None:
    load(None, [f"log.http={address}"], {})


def test_console_is_limited_to_loopback() -> None:
    away = "console.http=0.0.0.0:8840"
    tls, users = ["console.tls_cert=a.pem", "console.tls_key=b.pem"], ["console.users=users"]
    for overrides, missing in (
        ([], "console.tls_cert and tls_key and console.users"),
        (tls, "console.users"),
        (users, "console.tls_cert and tls_key"),
    ):
        with pytest.raises(ConfigError, match=rf"console\.http: 0\.0\.0\.0:8840 is not loopback: set {missing}, put a"):
            load(None, [away, *overrides], {})
    for overrides in (["security.insecure=true"], [*tls, *users], [*tls, TOKEN]):
        assert load(None, [away, *overrides], {}).console.http == "0.0.0.0:8840"


def test_flight_is_off_unless_it_is_set() -> None:
    assert load(environment={}).log.flight == ""
    assert load(None, ["log.flight=127.0.0.1:8846"], {}).log.flight == "127.0.0.1:8846"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (["security.tls_cert=a"], "security: tls_cert and tls_key need each other"),
        (["security.tls_key=a"], "security: tls_cert and tls_key need each other"),
        (["security.client_ca=a"], "security: client_ca needs tls_cert"),
        (["console.tls_cert=a"], "console: tls_cert and tls_key need each other"),
        (["console.tls_key=a"], "console: tls_cert and tls_key need each other"),
        (["security.tokens.w.token=short"], "security.tokens.w.token: a token has at least 16 characters"),
        (["security.tokens.w.token=sha256:12"], "security.tokens.w.token: sha256: is followed by 64 hex digits"),
        (["security.tokens.w.read=['*']"], "security.tokens.w.token: is missing"),
        ([TOKEN, "security.tokens.writer.write=['A']"], "security.tokens.writer.write: 'A' is neither a topic"),
        ([TOKEN, "security.tokens.writer.writes=['*']"], "unknown key (did you mean 'write'?)"),
        ([TOKEN, TOKEN.replace("writer", "second")], "security: tokens: two names have the same token"),
    ],
)
def test_incomplete_group_is_an_error(override: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(None, override, {})
    assert expected in str(raised.value)


def test_token_is_masked() -> None:
    assert "0123456789abcdef" not in str(masked(load(None, [TOKEN], {})))


PEM = st.binary(max_size=60).map(lambda data: b"-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n" % data)


@given(RAW | PEM)
def test_arbitrary_certificates_are_refused_with_the_key(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    cert = tmp_path_factory.mktemp("etc") / "cert.pem"
    cert.write_bytes(data)
    with pytest.raises(ConfigError, match=r"^security\.tls_(cert|key): "):
        SecurityConfig(tls_cert=cert, tls_key=cert).check_files()
