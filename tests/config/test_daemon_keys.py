"""The keys that locate the daemon equal the settings of the full tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ConfigError, Settings, load
from penstock.config.daemon_keys import OTHER_GROUPS, daemon_keys

TEXTS = [
    "",
    'data_dir = "here"\n[log]\nhttp = "127.0.0.1:1"\ngrpc = "[::1]:2"\nmax_topics = 3\n',
    '[security]\ntls_cert = "c"\ntls_key = "k"\nclient_ca = "a"\n[security.tokens.me]\ntoken = "0123456789abcdef"\n',
    '[[listener]]\nname = "x"\nprotocol = "udp"\n[pipeline]\nsource = "penstock"\n',
]
GIVEN = [
    ([], {}),
    (["log.http=127.0.0.1:7", "data_dir=elsewhere"], {}),
    ([], {"PENSTOCK_LOG__GRPC": "127.0.0.1:8", "PENSTOCK_DATA_DIR": "there"}),
    (["pipeline.tables=elsewhere"], {}),
    (["pipeline.tables=file:///elsewhere"], {}),
    (["pipeline.tables=s3://bucket/tables"], {}),
    ([], {"PENSTOCK_PIPELINE__TABLES": "there", "PENSTOCK_PIPELINE__TARGET_LAG": "2s"}),
    (["log.max_topics=1"], {"PENSTOCK_SHUTDOWN_TIME": "1s"}),
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("overrides", "environment"), GIVEN)
def test_daemon_keys_equal_the_settings(
    text: str, overrides: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(text)
    options, settings = daemon_keys(file, overrides, environment), load(file, overrides, environment)
    assert options.data_dir == settings.data_dir
    assert (options.log.http, options.log.grpc) == (settings.log.http, settings.log.grpc)
    for name in ("tls_cert", "tls_key", "client_ca"):
        assert getattr(options.security, name) == getattr(settings.security, name)
    assert bool(options.security.tokens) == bool(settings.security.tokens)
    assert options.tables_place == settings.tables
    assert options.load_all() == settings


@pytest.mark.parametrize(
    "override",
    [
        "log.htpp=127.0.0.1:1",
        "log.http=nowhere",
        "log.http=5",
        "data_dir=[]",
        "data_dir=",
        "security.tls_cert=x",
        "security=5",
    ],
)
def test_errors_equal_the_errors_of_load(override: str) -> None:
    with pytest.raises(ConfigError) as expected:
        load(None, [override], {})
    with pytest.raises(ConfigError) as caught:
        daemon_keys(None, [override], {})
    assert str(caught.value) == str(expected.value)


def test_variables_of_other_groups_do_not_load_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.config.daemon_keys._load", lambda *_: pytest.fail("the tree is loaded"))
    for group in OTHER_GROUPS:
        name = f"PENSTOCK_{group}__events_udp__port".upper()
        keys = daemon_keys(None, [], {name: "9", "PENSTOCK_LOG__HTTP": "127.0.0.1:7"})
        assert (keys.log.http, keys.has_unchecked_keys) == ("127.0.0.1:7", True)


def test_groups_whose_variables_are_not_validated_are_all_others() -> None:
    assert {*OTHER_GROUPS, "data_dir", "log", "security"} == {*Settings.model_fields}


@pytest.mark.parametrize("name", ["LOG__HTPP", "LOGG__HTTP", "SECURITY__TLS_CRT", "DATADIR"])
def test_mistyped_variable_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown key"):
        daemon_keys(None, [], {f"PENSTOCK_{name}": "127.0.0.1:7"})


def test_invalid_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("[log]\nhttp = nowhere\n")
    with pytest.raises(ConfigError, match=r"p\.toml:2: "):
        daemon_keys(tmp_path / "p.toml", [], {})
