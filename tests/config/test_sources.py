"""Content of files and of the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ConfigError, Settings, load, masked, notices
from tests.fuzzed import DEEP

LINES = [
    "[[listener]]",
    'name = "a"',
    'protocol = "udp"',
    "port = 0",
    "[defaults.udp]",
    "listener = 1",
    "[listener]",
    "[topic.a]",
    "[log.topic_defaults]",
    "stale_after = 1",
    "topic_defaults = 3",
    "log = []",
    "defaults = 7",
    "topic = [1]",
    "[[listener.handlers]]",
    'type = "kafka"',
    'handlers = "x"',
]
TEXTS = (
    st.binary(max_size=100)
    | st.just(b"a = " + DEEP)
    | st.lists(st.sampled_from(LINES), max_size=8).map(lambda lines: "\n".join(lines).encode())
)


@given(TEXTS)
def test_arbitrary_file_raises_only_config_errors(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    path = tmp_path_factory.mktemp("etc") / "penstock.toml"
    path.write_bytes(text)
    try:
        assert isinstance(load(path, environment={}), Settings)
    except ConfigError as error:
        assert str(error)  # noqa: PT017 some texts are good


@given(st.sampled_from(["", "LISTENER__EVENTS_UDP__PORT", "LOG", "LISTENER", "DEFAULTS__UDP"]), st.text(max_size=30))
def test_arbitrary_variable_raises_only_config_errors(key: str, text: str) -> None:
    try:
        assert isinstance(load(environment={f"PENSTOCK_{key}": text}), Settings)
    except ConfigError as error:
        assert str(error)  # noqa: PT017 some texts are good


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("listener=7", "listener: write each one as"),
        ("listener=[1]", "listener: write each one as"),
        ("defaults=7", "defaults: write it as"),
        ("defaults.udp=7", "defaults"),
    ],
)
def test_group_of_a_wrong_type_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(overrides=[override], environment={})


SLOGD = "[log.topic_defaults]\nindex_after_bytes = 4096\n[topic.events]\nindex_after_bytes = 1\nrotate_after = '1h'\n"


def test_keys_of_slogd_are_ignored_and_named(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(SLOGD)
    assert load(file, environment={}).topic["events"].rotate_after == 3600
    line = notices(load(file, environment={}), file, environment={})[0]
    assert "log.topic_defaults.index_after_bytes (" in line
    assert "topic.events.index_after_bytes (" in line
    assert "\n" not in line


def test_effective_keys_are_not_named() -> None:
    (line,) = notices(Settings(), overrides=["topic.events.rotate_after=1h"], environment={})
    assert "without effect" not in line


def test_default_listeners_are_named_at_the_start_unless_one_is_configured(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text("[log]\nhttp = '127.0.0.1:1'\n")
    names = "events-udp (127.0.0.1:23456), events-tcp (127.0.0.1:23456), syslog-udp (127.0.0.1:5514)"
    (line,) = notices(load(file, environment={}), file, environment={})
    assert line.startswith(f"{file} has no [[listener]]: the default listeners are used: {names}")
    file.write_text("[[listener]]\nname = 'web'\nprotocol = 'http'\nport = 4318\n")
    assert notices(load(file, environment={}), file, environment={}) == []


@pytest.mark.parametrize(
    "secret",
    [
        "[security.tokens.shop]\ntoken = 'sixteen characters and more'\nwrite = ['shop-*']\n",
        "[[listener]]\nname = 'web'\nprotocol = 'http'\nport = 4318\ntokens = ['sixteen characters and more']\n",
    ],
)
def test_readable_file_with_secrets_is_named_at_the_start(tmp_path: Path, secret: str) -> None:
    file = tmp_path / "p.toml"
    file.write_text(secret)
    file.chmod(0o644)
    line = notices(load(file, environment={}), file, environment={})[-1]
    assert line == f"{file} holds secrets and has mode 0644, so that others have access to it: chmod 600 {file}"
    file.chmod(0o600)
    assert not any("secrets" in line for line in notices(load(file, environment={}), file, environment={}))


def test_name_of_a_key_file_is_shown_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    tls = "tls_cert = 'server.crt'\ntls_key = 'server.key'\n"
    file.write_text(f"[[listener]]\nname = 'web'\nprotocol = 'http'\nport = 4318\n{tls}")
    file.chmod(0o644)
    settings = load(file, environment={})
    assert notices(settings, file, environment={}) == []
    assert masked(settings)["listener"][0]["tls_key"] == "server.key"


def test_ignored_key_at_another_place_is_an_error() -> None:
    with pytest.raises(ConfigError, match="index_after_bytes: unknown key"):
        load(overrides=["log.index_after_bytes=1"], environment={})


@pytest.mark.parametrize("invalid", ["topic=1", "log=1", "log.topic_defaults=1", "topic.events=1"])
def test_wrong_type_of_a_group_is_an_error(invalid: str) -> None:
    with pytest.raises(ConfigError, match=invalid.partition("=")[0]):
        load(overrides=[invalid], environment={})
