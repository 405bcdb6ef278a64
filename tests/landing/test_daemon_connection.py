"""How Spark reaches the log daemon."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.daemon_connection import OPTION_NAMES, BadConnection, DaemonConnection

NAMES = [name.lower() for name in OPTION_NAMES]


def test_an_address_is_enough() -> None:
    found = DaemonConnection.from_options({"uri": "127.0.0.1:8846"})
    assert (found.address, found.tls, found.endpoint.metadata, found.endpoint.tls) == (
        "127.0.0.1:8846",
        False,
        (),
        None,
    )


def test_certificates_are_read_where_the_files_are_and_go_along(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("-----BEGIN of it")
    found = DaemonConnection.from_options(
        {"uri": "grpc+tls://[::1]:1", "tlsca": str(file), "tlsname": "log", "retryfor": "2m"}
    )
    assert (found.address, found.ca, found.name, found.retry_for) == ("[::1]:1", b"-----BEGIN of it", "log", 120.0)
    again = DaemonConnection.from_options({name.lower(): text for name, text in found.options().items()})
    assert again == found


def test_nothing_secret_is_shown() -> None:
    key = "-----BEGIN a key"
    found = DaemonConnection.from_options({"uri": "h:1", "token": "hush", "tlscert": key, "tlskey": key})
    assert "hush" not in repr(found)
    assert "BEGIN" not in repr(found)
    assert found.endpoint.metadata == (("authorization", "Bearer hush"),)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"uri": "host"}, "uri: 'host' is not host:port"),
        ({"uri": "https://h:1"}, "uri: 'https://h:1'"),
        ({"uri": "h:1", "tlskey": "-----BEGIN"}, "tlsCert and tlsKey need each other"),
        ({"uri": "h:1", "tlsca": "/no/such/file"}, "tlsCa: '/no/such/file' cannot be read"),
        ({"uri": "h:1", "retryfor": "soon"}, "retryFor: 'soon' is not a time"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadConnection) as error:
        DaemonConnection.from_options(given)
    assert said in str(error.value)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=20)))
def test_no_text_raises_anything_but_bad_connection(given: dict[str, str]) -> None:
    with contextlib.suppress(BadConnection):
        found = DaemonConnection.from_options(given)
        assert DaemonConnection.from_options({name.lower(): text for name, text in found.options().items()}) == found
