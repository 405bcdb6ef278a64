"""All commands and programs of docs/log.md run in order against a real daemon."""

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


def test_commands_run_in_order(one_pipe: Pipe) -> None:
    commands = [line for block in blocks("sh") for line in block.splitlines() if line]
    assert len(commands) >= 20
    outputs = {command: one_pipe.run("bash", "-c", here(one_pipe, command), seconds=60) for command in commands}
    silent = [command for command, text in outputs.items() if not text and "produce" not in command]
    assert silent == []
    assert outputs["penstock consume numbers --from latest -n 3"].count("\n") == 3
    assert outputs["penstock consume numbers --cursor mine --format payload"].split() == [
        str(n) for n in range(601, 1001)
    ]
    assert outputs["penstock consume notes --filter 'NOT k:author AND v:\"[a-z0-9 -]+\"'"].endswith("hello\n")


def test_programs_run(one_pipe: Pipe) -> None:
    programs = [here(one_pipe, program) for program in blocks("python")]
    first, second = (one_pipe.run(sys.executable, "-c", program, seconds=60) for program in programs)
    assert "{'clicks': [5002], 'invoices': [0]}" in first.splitlines()
    assert len(second.splitlines()) == 100


def test_error_of_the_example_is_the_real_text(one_pipe: Pipe) -> None:
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
