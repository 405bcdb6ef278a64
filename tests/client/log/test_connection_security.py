"""The client and the commands with TLS and tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.log import entries as commands
from penstock.cli.log.topic_list import topics
from penstock.cli.options import Commands
from penstock.client import AsyncLog, Log, NotAllowed, Tls, Unavailable
from penstock.config import SecurityConfig
from tests.server.certificates import Pair, make
from tests.server.running import Running

WRITER, READER = "a token of the writer", "a token of the reader"
app = Commands()
for command in (commands.produce, commands.consume, topics):
    app.command()(command)


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
