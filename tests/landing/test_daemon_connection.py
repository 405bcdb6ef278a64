"""Options of the connection to the log daemon."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.daemon_connection import OPTION_NAMES, BadConnection, DaemonConnection

NAMES = [name.lower() for name in OPTION_NAMES]


def test_address_is_the_only_required_option() -> None:
    connection = DaemonConnection.from_options({"uri": "127.0.0.1:8846"})
    assert (connection.address, connection.tls, connection.endpoint.metadata, connection.endpoint.tls) == (
        "127.0.0.1:8846",
        False,
        (),
        None,
    )


def test_certificates_are_read_into_the_connection(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("-----BEGIN of it")
    connection = DaemonConnection.from_options(
        {"uri": "grpc+tls://[::1]:1", "tlsca": str(file), "tlsname": "log", "retryfor": "2m"}
    )
    assert (connection.address, connection.ca, connection.name, connection.retry_for) == (
        "[::1]:1",
        b"-----BEGIN of it",
        "log",
        120.0,
    )
    parsed = DaemonConnection.from_options({name.lower(): text for name, text in connection.options().items()})
    assert parsed == connection


def test_repr_hides_secrets() -> None:
    key = "-----BEGIN a key"
    connection = DaemonConnection.from_options({"uri": "h:1", "token": "hush", "tlscert": key, "tlskey": key})
    assert "hush" not in repr(connection)
    assert "BEGIN" not in repr(connection)
    assert connection.endpoint.metadata == (("authorization", "Bearer hush"),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"uri": "host"}, "uri: 'host' is not host:port"),
        ({"uri": "https://h:1"}, "uri: 'https://h:1'"),
        ({"uri": "h:1", "tlskey": "-----BEGIN"}, "tlsCert and tlsKey need each other"),
        ({"uri": "h:1", "tlsca": "/no/such/file"}, "tlsCa: '/no/such/file' cannot be read"),
        ({"uri": "h:1", "retryfor": "soon"}, "retryFor: 'soon' is not a time"),
    ],
)
def test_error_names_unusable_option(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadConnection) as error:
        DaemonConnection.from_options(options)
    assert message in str(error.value)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=20)))
def test_no_text_raises_anything_but_bad_connection(options: dict[str, str]) -> None:
    with contextlib.suppress(BadConnection):
        connection = DaemonConnection.from_options(options)
        assert (
            DaemonConnection.from_options({name.lower(): text for name, text in connection.options().items()})
            == connection
        )
