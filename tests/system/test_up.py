"""The steps of a first-time user: the demo, a continuous run, and all commands of the README."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.landing.table_paths import Layout
from penstock.landing.typed.columns import Column, TypedTable
from penstock.landing.typed.typed_delta import TypedDelta
from penstock.process.kernel import descendants
from penstock.supervise.reload import request_restart
from penstock.testing.pipe import LISTENERS, Pipe, free_ports, wait_until
from penstock.testing.processes import alive
from tests.cli import command_line
from tests.spark.spark_helpers import HandWritten, landed_event
from tests.system.landing import command_of

README = Path(__file__).parents[2] / "README.md"
PTRACE_ATTACH, WALL = 16, 0x40000000
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]


def run(*arguments: str, seconds: float = 170) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PENSTOCK, *arguments], capture_output=True, text=True, timeout=seconds, check=False)


@pytest.mark.spark
@pytest.mark.timeout(200)
def test_demo_accounts_for_all_messages_within_three_minutes() -> None:
    result = run("up", "--demo")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "unaccounted: 0"
    for words in ("3 messages lost of", "1 with a bad checksum", "1 incomplete expired", "1 overlong", "quarantined"):
        assert words in result.stdout
    assert "duplicates" in result.stdout


def test_demo_without_spark_says_so_and_ends_in_the_log(tmp_path: Path) -> None:
    completed = command_line.run("up", "--demo", folder=tmp_path, without=["pyspark"], seconds=170)
    assert completed.status == 0, completed.text
    assert "the demo runs without tables: this needs Spark: pip install 'penstock-pipe[spark]'" in completed.errors
    assert completed.output.splitlines()[-1] == "unaccounted: 0"
    assert "in the log only 99.9 %" in completed.output


def landed_rows(port: int) -> list[tuple[int]]:
    address = f"host=127.0.0.1 port={port} dbname=penstock user=ann"
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(address) as connection:
        return connection.execute("select count(*) from landed").fetchall()
    return []


def sql_server(up: int) -> list[int]:
    return [pid for pid in descendants(up) if "penstock.sql.servers" in command_of(pid)]


def check_restarts_are_refused(pipe: Pipe, text: str) -> None:
    """Check that a restart with settings that ``serve`` or the pipeline would refuse replaces no process of ``up``."""
    assert pipe.process
    assert pipe.config
    tables = f'pipeline.tables = "{pipe.data_dir}/tables"\npipeline.typed.click.columns.path = "{{}}"\n'
    table = TypedTable("click", "click", (Column("path", "string", "path"),))
    TypedDelta.configured(Layout.for_tables(pipe.data_dir / "tables"), table).begin()
    before = sql_server(pipe.process.pid)
    taken = socket.create_server(("127.0.0.1", 0))
    ports = {**dict.fromkeys(LISTENERS, 0), "more-tcp": taken.getsockname()[1]}
    listeners = "".join(
        f'[[listener]]\nname = "{name}"\nprotocol = "{name[-3:]}"\nport = {port}\nmax_line = "16KiB"\n'
        for name, port in ports.items()
    )
    for more, reason in (
        (listeners, "cannot listen on tcp"),
        (tables.format("int"), "pipeline.typed: "),
        (f'security.tls_cert = "{pipe.data_dir}/no"\nsecurity.tls_key = "{pipe.data_dir}/no"\n', "security.tls_cert"),
    ):
        pipe.config.write_text(text + more)
        outcome = request_restart(pipe.data_dir, timeout_s=120)
        assert (reason in outcome.error, outcome.restart) == (True, True), outcome
    taken.close()
    assert sql_server(pipe.process.pid) == before
    pipe.config.write_text(text)


def test_up_runs_until_it_is_interrupted_and_stops_all_processes(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    pipe.config = tmp_path / "penstock.toml"
    sql_port, console_port = free_ports(2)
    sql = f'sql.postgres = "127.0.0.1:{sql_port}"\nconsole.http = "127.0.0.1:{console_port}"\n'
    pipe.config.write_text(f"{sql}log.max_topics = 7\n")
    with pipe.output.open("ab") as output:
        pipe.process = subprocess.Popen([*PENSTOCK, "up", "--no-spark", *pipe.options], stdout=output, stderr=output)
    wait_until(lambda: "Ctrl-C" in pipe.output.read_text(), 60)
    pipe.wait_ready()
    pipe.datagrams(b"yipee!")
    wait_until(lambda: pipe.counts("events-udp")["accepted"] == 1)
    wait_until(lambda: landed_rows(sql_port) == [(1,)], what="the SQL server answers")
    pipe.config.write_text(f"{sql}log.max_topics = 8\npipeline.target_lag = 9\n")
    pipe.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "the configuration is reloaded: log.max_topics" in pipe.output.read_text())
    step = "pipeline.target_lag: takes effect with the next start of `penstock pipeline run`"
    wait_until(lambda: step in pipe.output.read_text(), what="the step for a pipeline that runs by itself")
    check_restarts_are_refused(pipe, pipe.config.read_text())
    supervisor = pipe.endpoints()["supervisor"]
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: pipe.endpoints().get("supervisor") not in (None, supervisor), what="serve is started again")
    pipe.wait_ready()
    keys = {key["name"]: key["value"] for key in pipe.get("/config")["keys"]}
    assert keys["log.max_topics"] == "8", "it has the settings of the reload"
    wait_until(
        lambda: any("serve was killed by SIGKILL, back" in event["text"] for event in pipe.get("/events")["events"])
    )
    pids = [*pipe.endpoints()["pids"].values(), pipe.endpoints()["supervisor"]]
    pipe.process.send_signal(signal.SIGINT)
    assert pipe.process.wait(30) == 0
    assert not any(alive(pid) for pid in pids)
    assert "Traceback" not in pipe.output.read_text()


INTERRUPTED_CHILDREN = """
import os, signal, sys
from pathlib import Path
if "penstock.cli.main" not in sys.orig_argv:
    os.kill(os.getpid(), signal.SIGINT)
    with Path(__file__).with_name("interrupted").open("a") as file:
        print(*sys.orig_argv, file=file)
"""
"""A ``sitecustomize``: Ctrl-C arrives at the first instruction of each Python but the command's own."""
ALL_CHILDREN = """
[buffer]
term_length = "4MiB"
[[listener]]
name = "forwarded"
protocol = "udp"
port = 0
codec = "raw"
so_rcvbuf = "200KiB"
defrag.max_size = "16KiB"
[[listener.handlers]]
type = "log"
topic = "events"
[[listener.handlers]]
type = "discard"
[[relay]]
name = "central"
topic = ["events"]
to = "127.0.0.1:1"
"""


def test_interrupt_at_the_first_instruction_of_a_child_leaves_it_to_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_CHILDREN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    console, sql = free_ports(2)
    pipe = Pipe(tmp_path, f"console.http=127.0.0.1:{console}", f"sql.postgres=127.0.0.1:{sql}")
    pipe.configure(ALL_CHILDREN)
    pipe.command = ["up", "--no-spark"]
    pipe.start()
    assert pipe.process
    children = {"cli.run.serve", "console.main", "sql.servers", "sinks.forwarder", "client.relay.relay"}
    interrupted = tmp_path / "interrupted"
    wait_until(lambda: all(f"-m penstock.{name} " in interrupted.read_text() for name in children))
    deaths = [event["text"] for event in pipe.get("/events")["events"] if "ended" in event["text"]]
    pipe.process.send_signal(signal.SIGINT)
    assert pipe.process.wait(60) == 0
    logs = pipe.output.read_text() + "".join(log.read_text() for log in pipe.data_dir.glob("*.log"))
    assert deaths == []
    assert "Traceback" not in logs
    assert "restarting" not in logs


def accepts(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def hang(pid: int) -> None:
    """Halt a process as a debugger does: neither SIGTERM nor SIGCONT continues it, and SIGKILL ends it."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    assert ptrace(PTRACE_ATTACH, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(pid, WALL)


def test_end_by_interrupt_is_no_kill_although_the_console_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # within a test NiceGUI wants a port of its own test tools
    (port,) = free_ports(1)
    pipe = Pipe(tmp_path, f"console.http=127.0.0.1:{port}", "shutdown_time=3s")
    pipe.command = ["up", "--no-spark"]
    for _ in range(2):
        pipe.start()
        # Until it listens, SIGTERM ends it at once.
        wait_until(lambda: accepts(port))
        assert pipe.process
        (console,) = (pid for pid in descendants(pipe.process.pid) if "penstock.console.main" in command_of(pid))
        hang(console)
        pipe.process.send_signal(signal.SIGINT)
        # Its parent sees the end of a halted process behind the one that halted it.
        os.waitpid(console, WALL)
        assert pipe.process.wait(60) == 0
    output = pipe.output.read_text()
    assert output.count("console did not end within 3 s and was killed") == 2
    assert "stopping: console (" in output, "what takes longer than two seconds is named without a terminal, too"
    pipe.command = ["serve"]
    pipe.start()
    starts = [event["text"] for event in pipe.get("/events")["events"] if "started" in event["text"]]
    pipe.stop()
    assert starts == ["penstock started"] * 3


def test_port_in_use_stops_the_start_with_one_line(one_pipe: Pipe, tmp_path: Path) -> None:
    host, port = one_pipe.address("events-tcp")
    result = run("serve", "-o", f"data_dir={tmp_path / 'other'}", "-o", f"listener.events-tcp.port={port}", seconds=30)
    assert result.returncode == 1
    (line,) = result.stderr.strip().splitlines()
    assert f"listener 'events-tcp': cannot listen on tcp {host}:{port}: Address already in use by process" in line


@pytest.mark.parametrize("command", [["serve"], ["up", "--no-spark"]], ids=" ".join)
def test_data_directory_in_use_stops_the_start_with_one_line(one_pipe: Pipe, command: list[str]) -> None:
    result = run(*command, *one_pipe.options, seconds=30)
    pid = one_pipe.process.pid
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert f"data_dir: another penstock, process {pid}, uses {one_pipe.data_dir}; `penstock reload`" in result.stderr


@pytest.mark.parametrize("command", ["serve", "up", "send", "produce", "consume", "topics", "balance", "inspect"])
def test_each_command_has_a_help_text(command: str) -> None:
    result = run(command, "--help", seconds=60)
    assert result.returncode == 0
    assert "Usage" in result.stdout


@pytest.mark.parametrize(
    "command",
    [
        ["serve"],
        ["up"],
        ["send"],
        ["produce", "x"],
        ["consume", "x"],
        ["topics"],
        ["balance"],
        ["inspect", "x"],
        ["pipeline", "run"],
        ["pipeline", "query", "x"],
    ],
    ids=" ".join,
)
def test_unknown_key_stops_each_command_and_is_named(command: list[str]) -> None:
    result = run(*command, "-o", "log.htpp=127.0.0.1:1", seconds=60)
    assert result.returncode == 2
    assert "log.htpp: unknown key (did you mean 'http'?)" in result.stderr


def readme_commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


def test_commands_of_the_readme_run(one_pipe: Pipe) -> None:
    host, port = one_pipe.address("events-udp")
    listener = {"PENSTOCK_LISTENER__EVENTS_UDP__PORT": str(port), "PENSTOCK_LISTENER__EVENTS_UDP__HOST": host}
    commands = readme_commands()
    assert len(commands) >= 6
    for command in commands:
        one_pipe.run("bash", "-c", command, seconds=60, **listener)
        time.sleep(0.3)  # as a person would
    assert one_pipe.counts("events-udp")["accepted"] == 2
    assert one_pipe.get("/topics") == {"topic": [{"name": "events"}, {"name": "notes"}]}


def test_program_in_the_readme_returns_a_dataframe_of_the_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    tables = HandWritten(Layout.for_tables(tmp_path / "penstock-data" / "tables"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with pytest.raises(FileNotFoundError, match="penstock-data/tables; the pipeline makes it when it starts"):
        exec(program, names)
    Path("penstock-data/tables").mkdir(parents=True)
    exec(program, names)
    assert names["events"].empty, "README: it is empty before rows have landed"
    tables.commit({}, [landed_event(number, f"u{number}") for number in range(3)])
    exec(program, names)
    assert list(names["events"]["uuid"]) == ["u0", "u1", "u2"]


def test_keys_in_the_readme_exist(tmp_path: Path) -> None:
    from penstock.config import load

    (example,) = re.findall(r"```toml\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "penstock.toml").write_text(example)
    assert load(tmp_path / "penstock.toml", environment={}).listener[0].name == "events"
