"""Where the daemon is, read without the tree of keys, is where the tree of keys says it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ConfigError, load
from penstock.config.daemon_keys import daemon_keys

TEXTS = [
    "",
    'data_dir = "here"\n[log]\nhttp = "127.0.0.1:1"\ngrpc = "[::1]:2"\nmax_topics = 3\n',
    '[security]\ntls_cert = "c"\ntls_key = "k"\nclient_ca = "a"\n[security.tokens.me]\ntoken = "0123456789abcdef"\n',
    '[[listener]]\nname = "x"\nprotocol = "udp"\n[pipeline]\nformat = "delta"\n',
]
GIVEN = [
    ([], {}),
    (["log.http=127.0.0.1:7", "data_dir=elsewhere"], {}),
    ([], {"PENSTOCK_LOG__GRPC": "127.0.0.1:8", "PENSTOCK_DATA_DIR": "there"}),
    (["log.max_topics=1"], {"PENSTOCK_SHUTDOWN_TIME": "1s"}),
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("overrides", "environment"), GIVEN)
def test_the_keys_are_those_of_the_settings(
    text: str, overrides: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(text)
    found, settings = daemon_keys(file, overrides, environment), load(file, overrides, environment)
    assert found.data_dir == settings.data_dir
    assert (found.log.http, found.log.grpc) == (settings.log.http, settings.log.grpc)
    for name in ("tls_cert", "tls_key", "client_ca"):
        assert getattr(found.security, name) == getattr(settings.security, name)
    assert bool(found.security.tokens) == bool(settings.security.tokens)
    assert found.whole() == settings


@pytest.mark.parametrize(
    "override",
    ["log.htpp=127.0.0.1:1", "log.http=nowhere", "log.http=5", "data_dir=[]", "security.tls_cert=x", "security=5"],
)
def test_what_is_wrong_is_said_as_ever(override: str) -> None:
    with pytest.raises(ConfigError) as expected:
        load(None, [override], {})
    with pytest.raises(ConfigError) as said:
        daemon_keys(None, [override], {})
    assert str(said.value) == str(expected.value)


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("[log]\nhttp = nowhere\n")
    with pytest.raises(ConfigError, match=r"p\.toml:2: "):
        daemon_keys(tmp_path / "p.toml", [], {})
