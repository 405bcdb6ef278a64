"""Every command and every program of docs/log.md runs, one after the other, against a real daemon."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from penstock.testing.pipe import Pipe

PAGE = Path(__file__).parents[2] / "docs" / "log.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def here(pipe: Pipe, text: str) -> str:
    return text.replace("127.0.0.1:8845", pipe.grpc).replace("127.0.0.1:8844", pipe.http)


def test_the_commands_work_in_their_order(one_pipe: Pipe) -> None:
    commands = [line for block in blocks("sh") for line in block.splitlines() if line]
    assert len(commands) >= 20
    said = {command: one_pipe.run("bash", "-c", here(one_pipe, command), seconds=60) for command in commands}
    silent = [command for command, text in said.items() if not text and "produce" not in command]
    assert silent == []
    assert said["penstock consume numbers --from latest -n 3"].count("\n") == 3
    assert said["penstock consume numbers --cursor mine --format payload"].split() == [str(n) for n in range(601, 1001)]
    assert said["penstock consume notes --filter 'NOT k:author AND v:\"[a-z0-9 -]+\"'"].endswith("hello\n")


def test_the_programs_work(one_pipe: Pipe) -> None:
    programs = [here(one_pipe, program) for program in blocks("python")]
    one, two = (one_pipe.run(sys.executable, "-c", program, seconds=60) for program in programs)
    assert "{'clicks': [5002], 'invoices': [0]}" in one.splitlines()
    assert len(two.splitlines()) == 100


def test_the_example_of_an_error_is_what_is_said(one_pipe: Pipe) -> None:
    (one_pipe.output.parent / "x").write_text("x\n")
    one_pipe.run("bash", "-c", "penstock produce notes < x", seconds=60)
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock.cli.main",
            "consume",
            "notes",
            "--rpc",
            one_pipe.grpc,
            "--filter",
            "k:userid v:v[0-9+",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert all(f"    {line}" in PAGE.read_text().splitlines() for line in result.stderr.splitlines())
    assert result.stderr.count("\n") == 3
