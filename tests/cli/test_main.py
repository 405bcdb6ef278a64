"""The command ``penstock``: it lists its commands without importing them, and short ones start at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from penstock import __version__
from penstock.cli.main import COMMANDS, SUMMARIES, build
from tests.server.running import Running
from tests.spark.spark_daemon import daemon

SLOW = {"pydantic", "httpx", "numpy", "pyarrow", "grpc", "google", "fastapi", "rich.panel", "asyncio"}
"""What takes longer to import than a short command may take."""
SCRIPT = """
import atexit, sys
atexit.register(lambda: print("MODULES", *sys.modules, file=sys.stderr))
sys.argv[0] = "penstock"
from penstock.cli.main import main
main()
"""


def run(*arguments: str, folder: Path, **variables: str) -> tuple[int, str, set[str]]:
    """Exit status, output and errors of a command in a process of its own, and the modules it imported."""
    told = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")} | variables
    command = [sys.executable, "-c", SCRIPT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=told)
    said, _, modules = done.stderr.rpartition("MODULES ")
    return done.returncode, done.stdout + said, set(modules.split())


def slow(modules: set[str]) -> set[str]:
    return SLOW & (modules | {name.partition(".")[0] for name in modules})


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--help"], 0, "Commands:"),
        (["-h"], 0, "  balance   Print the balance."),
        ([], 2, "Commands:"),
        (["--version"], 0, __version__),
        (["version"], 0, __version__),
        (["--bogus"], 2, "No such option: --bogus"),
        (["bogus"], 2, "No such command 'bogus'"),
        (["balance", "--help"], 0, "--since"),
        (["balance", "--bogus"], 2, "No such option: --bogus"),
        (["topics", "--help"], 0, "--rate"),
        (["topics", "-o", "log.http=127.0.0.1:1"], 2, "no log daemon answers at 127.0.0.1:1 (Connection refused); is"),
        (["balance", "-o", "log.http=127.0.0.1:1"], 2, "no log daemon answers at 127.0.0.1:1 (Connection refused); is"),
        (["clock", "-o", "log.http=127.0.0.1:1"], 2, "no log daemon answers at 127.0.0.1:1 (Connection refused); is"),
    ],
    ids=str,
)
def test_short_commands_import_nothing_that_is_slow(
    arguments: Sequence[str], status: int, says: str, tmp_path: Path
) -> None:
    ended, said, modules = run(*arguments, folder=tmp_path)
    assert (ended, says in said) == (status, True), said
    assert slow(modules) == set()


def test_asking_a_daemon_imports_nothing_that_is_slow(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        running.log.topic("events", create=True)
        (tmp_path / "penstock.toml").write_text(f'[log]\nhttp = "{running.http}"\n[buffer]\nslots = 16\n')
        for command in ("topics", "balance"):
            status, said, modules = run(command, folder=tmp_path)
            assert (status, "segments" in said or "unaccounted: 0" in said) == (0, True), said
            assert slow(modules) == set()


def test_a_variable_and_an_option_say_where_the_daemon_is(running: Running, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('log.http = "127.0.0.1:1"')
    one = run("topics", folder=tmp_path, PENSTOCK_LOG__HTTP=running.bound.http)
    assert one[0] == 0, one[1]
    assert run("topics", "-o", f"log.http={running.bound.http}", folder=tmp_path)[0] == 0


def test_a_file_that_led_astray_is_named_when_nobody_answers(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[log]\nhttp = "127.0.0.1:1"\n[loq]\nhttp = "127.0.0.1:2"\n')
    ended, said, _ = run("topics", folder=tmp_path)
    assert (ended, said) == (2, "penstock: penstock.toml:3: loq: unknown key (did you mean 'log'?)\n")


def test_every_command_is_listed_as_its_own_help_begins() -> None:
    group = typer.main.get_command(build(None))
    assert isinstance(group, typer.core.TyperGroup)
    assert set(SUMMARIES) == set(COMMANDS) == set(group.commands) - {"version"}
    for name, summary in SUMMARIES.items():
        own = " ".join(str(group.commands[name].help).split())
        assert own.startswith(summary.rstrip(".")), f"{name}: {own}"
