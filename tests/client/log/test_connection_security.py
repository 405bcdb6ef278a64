"""The client and the commands with TLS and tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.common import CONFIG_HINT, TOKEN_HINT, query_daemon
from penstock.cli.log import entries as commands
from penstock.cli.log import topics as topic_commands
from penstock.cli.log.tail import tail
from penstock.cli.log.topic_files import log
from penstock.cli.log.topic_list import topics
from penstock.cli.options import Commands, load_settings
from penstock.client import AsyncLog, Log, NotAllowed, Tls, Unavailable
from penstock.config import SecurityConfig
from tests.server.certificates import Pair, make
from tests.server.running import Running

WRITER, READER = "a token of the writer", "a token of the reader"
app = Commands()
for command in (commands.produce, commands.consume, topics, topic_commands.cleanup, tail):
    app.command()(command)
app.add_typer(topic_commands.topic, name="topic")
app.add_typer(log, name="log")
CONNECTING = (
    ("produce", "t"),
    ("consume", "t"),
    ("topics",),
    ("topic", "create", "new"),
    ("topic", "configure", "t", "retain_bytes=1GiB"),
    ("topic", "show", "t"),
    ("topic", "delete", "t", "--yes"),
    ("topic", "forget-cursor", "t", "reader"),
    ("cleanup",),
    ("log", "verify"),
    ("log", "compact"),
    ("tail", __file__, "--once"),
)
"""Commands with --token-file, each as one call."""


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return make(tmp_path, "penstock.test")


@pytest.fixture
def secured(tmp_path: Path, pair: Pair) -> Iterator[Running]:
    tokens = {"writer": {"token": WRITER, "write": ["*"], "read": ["*"]}, "reader": {"token": READER, "read": ["*"]}}
    settings = {"tls_cert": pair.cert, "tls_key": pair.key, "client_ca": pair.cert, "tokens": tokens}
    server = Running(tmp_path / "topics", SecurityConfig.model_validate(settings))
    yield server
    server.stop()


def test_client_with_certificate_and_token_is_accepted(secured: Running, pair: Pair) -> None:
    tls = Tls(pair.cert, pair.cert, pair.key)
    with Log(secured.bound.grpc, token=WRITER, tls=tls, flight=secured.bound.flight) as log:
        log.append("t", [b"0", b"1"])
        assert next(log.follow("t", "earliest")).payload == b"0"
        assert log.table("t", columns=["payload"]).column("payload").to_pylist() == [b"0", b"1"]
    named = Tls(pair.cert.read_bytes(), pair.cert.read_bytes(), pair.key.read_bytes(), "penstock.test")
    with Log(secured.bound.grpc, token=READER, tls=named, flight=secured.bound.flight) as log:
        assert len(log.read("t")) == 2
        with pytest.raises(NotAllowed, match="may not be written"):
            log.append("t", [b"x"])

    async def run() -> None:
        async with AsyncLog(secured.bound.grpc, token=READER, tls=tls) as log:
            assert len(await log.read("t")) == 2
            assert (await anext(log.follow("t", "earliest"))).payload == b"0"

    asyncio.run(asyncio.wait_for(run(), 60))


def test_missing_credentials_are_named(secured: Running, pair: Pair, tmp_path: Path) -> None:
    tls = Tls(pair.cert, pair.cert, pair.key)
    with Log(secured.bound.grpc, tls=tls) as log, pytest.raises(NotAllowed, match="token is needed"):
        log.topics()
    with Log(secured.bound.grpc, tls=tls, token="something else") as log, pytest.raises(NotAllowed, match="not known"):
        log.topics()
    (tmp_path / "other").mkdir()
    other_pair = make(tmp_path / "other", "penstock.test")
    for wrong in (None, Tls(other_pair.cert, pair.cert, pair.key)):
        with Log(secured.bound.grpc, token=WRITER, tls=wrong, retry_for=0) as log, pytest.raises(Unavailable):
            log.topics()


def test_commands_take_what_the_configuration_has_or_what_they_are_given(
    secured: Running, pair: Pair, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(WRITER + "\n")
    (tmp_path / "token").chmod(0o600)
    config = tmp_path / "penstock.toml"
    config.write_text(
        f'data_dir = "{tmp_path}"\n[security]\ntls_cert = "{pair.cert}"\ntls_key = "{pair.key}"\n'
        f'client_ca = "{pair.cert}"\ntokens.writer.token = "{WRITER}"\n'
    )

    def run(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, [*arguments, "--rpc", secured.bound.grpc], input=b"x\n")
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    token = ("--config", str(config), "--token-file", str(tmp_path / "token"))
    run("produce", "t", *token)
    assert run("consume", "t", "--format", "payload", *token) == "x\n"
    assert run("topics", *token).splitlines()[1].split()[0] == "t"
    assert "token.missing" in run("topics", "--token-file", str(tmp_path / "token.missing"), code=2)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Running]:
    tokens = {"tokens": {"reader": {"token": READER, "read": ["*"]}}}
    server = Running(tmp_path / "guarded" / "topics", SecurityConfig.model_validate(tokens))
    yield server
    server.stop()


@pytest.mark.parametrize("arguments", CONNECTING, ids=" ".join)
def test_command_without_an_accepted_token_names_the_option(
    guarded: Running, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    wrong_token = tmp_path / "wrong"
    wrong_token.write_text("of another daemon")
    wrong_token.chmod(0o600)
    calls = (((), "A bearer token is needed"), (("--token-file", str(wrong_token)), "The token is not known"))
    for options, reason in calls:
        address = ("--rpc", guarded.bound.grpc, "-o", f"data_dir={tmp_path}")
        refused = CliRunner().invoke(app, [*arguments, *address, *options], input=b"x\n")
        assert refused.exit_code == 1, refused.output
        assert refused.stderr.splitlines()[-1].endswith(f"{reason}; {TOKEN_HINT}")


def test_topics_over_http_without_a_token_names_the_option(guarded: Running, tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["topics", "-o", f"log.http={guarded.bound.http}", "-o", f"data_dir={tmp_path}"])
    assert (refused.exit_code, TOKEN_HINT in refused.stderr) == (2, True), refused.output


def test_command_without_the_option_names_the_configuration(
    guarded: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = load_settings(None, [f"log.http={guarded.bound.http}", f"data_dir={tmp_path}"])
    with pytest.raises(SystemExit):
        query_daemon(keys, "/balance")
    assert CONFIG_HINT in capsys.readouterr().err
