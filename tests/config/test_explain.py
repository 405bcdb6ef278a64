"""Every key with its value, default, meaning and origin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.command_line import build
from penstock.config import ConfigError
from penstock.config.explain import explain


def by_name(*arguments: object, **options: object) -> dict[str, tuple[str, str]]:
    return {key.name: (key.value, key.origin) for key in explain(*arguments, **options)}  # type: ignore[arg-type]


def test_every_key_has_a_description() -> None:
    assert [key.name for key in explain(environment={}) if not key.meaning] == []


def test_each_value_has_its_source(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        '[log]\ngrpc = "127.0.0.1:1"\n[log.topic_defaults]\nrotate_after = "90m"\n'
        "[topic.a]\nsegment_size_limit = 1000\n"
        '[defaults.udp]\nso_rcvbuf = "1MiB"\n[[listener]]\nname = "in"\nprotocol = "udp"\nport = 7\n'
    )
    keys = by_name(file, ["listener.in.kill=true"], {"PENSTOCK_LISTENER__IN__DEFRAG__MAX_SIZE": "2MiB"})
    assert keys["log.grpc"] == ("127.0.0.1:1", str(file))
    assert keys["log.http"] == ("127.0.0.1:8844", "default")
    assert keys["topic.a.rotate_after"] == ("90m", "defaults")
    assert keys["topic.a.segment_size_limit"] == ("1000", str(file))
    assert keys["listener.in.so_rcvbuf"] == ("1MiB", "defaults")
    assert keys["listener.in.kill"] == ("true", "-o listener.in.kill")
    assert keys["listener.in.defrag.max_size"] == ("2MiB", "PENSTOCK_LISTENER__IN__DEFRAG__MAX_SIZE")
    assert keys["listener.in.defrag.expire_time"] == ("10s", "default")


def test_formatted_value_can_be_read_back(tmp_path: Path) -> None:
    keys = by_name(environment={})
    options = [
        f"{name}={value}" for name, (value, _) in keys.items() if name.startswith(("log.", "buffer.")) and value != "*"
    ]
    again = by_name(None, options, environment={})
    assert {name: value for name, (value, _) in again.items()} == {name: value for name, (value, _) in keys.items()}


def test_bad_configuration_is_not_explained() -> None:
    with pytest.raises(ConfigError, match="htpp: unknown"):
        explain(overrides=["log.htpp=1"], environment={})


def test_commands_check_and_explain() -> None:
    run = CliRunner()
    good = run.invoke(build(["config"]), ["config", "check", "-o", "data_dir=/x"])
    assert (good.exit_code, "the configuration is valid" in good.output) == (0, True)
    assert run.invoke(build(["config"]), ["config", "check", "-o", "data_dri=/x"]).exit_code == 2
    small = run.invoke(build(["config"]), ["config", "check", "-o", "buffer.term_length=64KiB"])
    assert (small.exit_code, "buffer.term_length: frames of 8192 bytes" in small.output) == (2, True)
    message = run.invoke(build(["config"]), ["config", "explain", "log.http", "--json", "-o", "log.http=127.0.0.1:9"])
    assert [(key["value"], key["origin"]) for key in json.loads(message.output)] == [("127.0.0.1:9", "-o log.http")]
    shown = run.invoke(build(["config"]), ["config", "explain", "--changed", "-o", "log.http=127.0.0.1:9"]).output
    assert "127.0.0.1:9" in shown
    assert "grpc" not in shown


def test_secrets_are_masked() -> None:
    kafka = '{type="kafka", default_topic="t", producer={"bootstrap.servers"="b:1", "sasl.password"="hush"}}'
    token = '{token="0123456789abcdef", read=["a"]}'
    keys = explain(overrides=[f"listener.events-udp.handlers=[{kafka}]", f"security.tokens.me={token}"], environment={})
    values = {key.name: key.value for key in keys}
    assert values["listener.events-udp.handlers.0.producer.sasl.password"] == "********"
    assert values["listener.events-udp.handlers.0.producer.bootstrap.servers"] == "b:1"
    assert values["security.tokens.me.token"] == "********"
    assert values["transactions.max_open_per_token"] == "100"
    assert values["security.tokens.me.read"] == "a"
