"""The written configuration file has every key, and each of its lines can be used as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.config import ConfigError, load
from penstock.config.explain import explain
from penstock.config.template import listener_block, template, with_listener

LINES = template().split("\n")
KEYS = [number for number, line in enumerate(LINES) if re.match(r"#\w+ = ", line)]
FIRST_EXAMPLE = LINES.index("# Examples of further listeners.")
WITH_OTHERS = {"tls_cert", "tls_key", "client_ca", "salt_file", "users"}
"""Keys without a default: the file has an example."""


def load_text(folder: Path, text: str) -> object:
    file = folder / "penstock.toml"
    file.write_text(text)
    return load(file, environment={})


def test_template_has_the_default_settings(tmp_path: Path) -> None:
    assert load_text(tmp_path, template()) == load(environment={}, overrides=[])


def test_template_says_which_lines_are_keys_and_names_the_other_handlers() -> None:
    text = template()
    assert "A line that begins with # and a name is a key with its default" in LINES[0]
    for words in ("Keys without a default", "kafka, console, discard", "expire = drop old", "written and received = "):
        assert words in text
    assert "KiB" not in text, "sizes are in the unit in which a reader thinks"


def test_each_key_of_the_template_can_be_uncommented(tmp_path: Path) -> None:
    defaults = load(environment={})
    for number in KEYS:
        name = LINES[number][1:].partition(" ")[0]
        if number < FIRST_EXAMPLE and name not in WITH_OTHERS:
            changed = [*LINES[:number], LINES[number][1:], *LINES[number + 1 :]]
            assert load_text(tmp_path, "\n".join(changed)) == defaults, LINES[number]


def test_all_examples_of_the_template_are_valid_together(tmp_path: Path) -> None:
    examples = [line[1:] if re.match(r"#[\w\[\"]", line) else line for line in LINES[FIRST_EXAMPLE:]]
    for file in ("server.pem", "server.key"):
        (tmp_path / file).touch()
    text = "\n".join([*LINES[:FIRST_EXAMPLE], *examples]).replace('"tls/', f'"{tmp_path}/')
    settings = load_text(tmp_path, text)
    names = {listener.name for listener in settings.listener}  # type: ignore[attr-defined]
    assert names >= {"web", "otlp", "syslog-tls", "forward", "gelf", "events-udp"}


def test_template_has_every_key() -> None:
    keys = {LINES[number][1:].partition(" ")[0] for number in KEYS}
    in_blocks = {
        "name",
        "protocol",
        "port",
        "codec",
        "type",
        "topic",
        "tokens",
        "typed",
        "overflow",
        "master",
        "relay",
        "export",
    }
    names = {key.name.rpartition(".")[2] for key in explain(environment={})}
    assert names - in_blocks <= keys


@pytest.mark.parametrize("before", ["", "# mine\n[log]\nhttp = '127.0.0.1:1' # here", template()])
def test_added_listener_keeps_the_others_and_all_lines(before: str, tmp_path: Path) -> None:
    text = with_listener(before, listener_block("web", "http", 4318, "", "", "web"))
    assert text.startswith(before)
    names = [listener.name for listener in load_text(tmp_path, text).listener]  # type: ignore[attr-defined]
    assert names == ["events-udp", "events-tcp", "syslog-udp", "syslog-tcp", "web"]


def test_added_listener_joins_the_configured_one_without_defaults(tmp_path: Path) -> None:
    before = listener_block("only", "udp", 9, "", "raw", "t")
    text = with_listener(before, listener_block("web", "http", 4318, "127.0.0.1", "", "web"))
    names = [listener.name for listener in load_text(tmp_path, text).listener]  # type: ignore[attr-defined]
    assert names == ["only", "web"]
    with pytest.raises(ConfigError, match="two listeners have the name 'web'"):
        load_text(tmp_path, with_listener(text, listener_block("web", "http", 4319, "", "", "web")))
