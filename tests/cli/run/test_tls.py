"""``penstock tls init``: its files, and a client that trusts its authority."""

from __future__ import annotations

import os
import re
import ssl
import tomllib
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from penstock.cli.command_line import build
from penstock.cli.run.tls import FILES
from penstock.testing.pipe import Pipe, free_ports


def init(*arguments: str) -> tuple[int, str]:
    answer = CliRunner().invoke(build(["tls"]), ["tls", "init", *arguments])
    return answer.exit_code, answer.output


def test_client_that_trusts_the_authority_reaches_the_printed_listener(tmp_path: Path) -> None:
    folder, (port,) = tmp_path / "tls", free_ports(1)
    status, output = init(str(folder))
    assert status == 0, output
    assert {name: (folder / name).stat().st_mode & 0o777 for name in FILES} == dict.fromkeys(FILES, 0o600)
    lines = re.search(r"^\[\[listener\]\].*?\n\n", output, re.DOTALL | re.MULTILINE)
    assert lines
    assert tomllib.loads(lines[0])["listener"][0]["tls_cert"] == f"{folder}/server.crt"
    pipe = Pipe(tmp_path)
    pipe.configure(lines[0].replace("4318", str(port)))
    pipe.start()
    try:
        command = re.search(r"curl --cacert (\S+) --data '(.*)' https://(\S+):4318(\S+)", output)
        assert command
        trust = ssl.create_default_context(cafile=command[1])
        for host in (command[3], "127.0.0.1"):
            answer = httpx.post(f"https://{host}:{port}{command[4]}", content=command[2], verify=trust)
            assert answer.is_success, answer.text
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.post(f"https://localhost:{port}{command[4]}", content=command[2])
    finally:
        pipe.stop()


@pytest.mark.parametrize("existing", FILES)
def test_existing_file_is_not_overwritten(existing: str, tmp_path: Path) -> None:
    (tmp_path / existing).write_text("mine")
    status, output = init(str(tmp_path), "--name", "penstock.example.org")
    assert (status, f"{tmp_path / existing} exists and is not overwritten" in output.replace("\n", "")) == (2, True)
    assert os.listdir(tmp_path) == [existing]
    assert (tmp_path / existing).read_text() == "mine"
