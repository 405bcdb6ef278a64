"""``penstock pipeline query``: a failed query prints Spark's reason and nothing else."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from penstock.cli.tables.pipeline import _balance_of_daemon
from penstock.cli.tables.spark_session import tables_session
from penstock.config import Settings
from penstock.config.keys.pipeline import PipelineConfig
from penstock.errors import PenstockError
from penstock.process.kernel import descendants
from penstock.spark import session
from penstock.spark.query.landing_query import Landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.testing.pipe import alive, wait_until
from tests.cli.command_line import run
from tests.small_disk import small_file_system
from tests.spark.spark_helpers import HandWritten, append, event, landed_event, landed_message

QUERY = [sys.executable, "-m", "penstock.cli.main", "pipeline", "query"]


def on_a_terminal(*arguments: str, folder: Path) -> str:
    """Return the output of a command on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*QUERY, *arguments], stdout=theirs, stderr=theirs, stdin=theirs, cwd=folder)
    os.close(theirs)
    written = b""
    try:
        while piece := os.read(ours, 4096):
            written += piece
    except OSError:  # Linux says so when the other side is closed
        pass
    finally:
        os.close(ours)
        assert process.wait(120) == 1
    return written.decode()


def test_tables_that_cannot_be_read_are_an_error_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "events_click" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("damaged")
    monkeypatch.setattr(session, "build_session", lambda *_, **__: pytest.fail("Spark starts"))
    with pytest.raises(PenstockError), tables_session(Settings(pipeline=PipelineConfig(tables=tmp_path))):
        pass


@pytest.mark.spark
def test_status_imports_no_engine_that_it_does_not_need(topics: Path, table: HandWritten, tmp_path: Path) -> None:
    append(topics, "t", [event(1), b"x", event(1)], [b"waits"])
    table.commit({"t": 3}, [landed_event(0, "u1"), landed_message(1)])
    assert ProofWorker(Landing(topics, table.layout.tables), None).step()
    folders = f"data_dir = '{topics.parent}'\npipeline.tables = '{table.layout.tables}'\npipeline.topics = ['t']\n"
    (tmp_path / "penstock.toml").write_text(folders)
    shown = run("pipeline", "status", folder=tmp_path)
    assert (shown.status, "last batch 0" in shown.output) == (0, True), shown.text
    assert shown.output.splitlines()[-1].split()[:5] == ["t", "4", "3", "3", "1"]
    unneeded = {"pyspark", "deltalake", "duckdb", "pyarrow.dataset", "grpc", "pandas", "confluent_kafka", "httpx"}
    assert not unneeded & shown.modules


def test_status_without_an_answer_of_kafka_shows_why_and_fails(tmp_path: Path) -> None:
    """A script that sums the lag must not read zero."""
    (tmp_path / "penstock-data").mkdir()
    options = ("-o", "pipeline.source=kafka", "-o", "pipeline.kafka.bootstrap.servers=127.0.0.1:1")
    shown = run("pipeline", "status", "--json", *options, folder=tmp_path)
    assert shown.status == 1
    document = json.loads(shown.output)
    assert (document["running"], document["topics"]) == (False, [])
    assert document["problem"].startswith("Kafka at 127.0.0.1:1 does not answer")


def test_syntax_error_of_query_is_one_error_line(tmp_path: Path) -> None:
    (tmp_path / "penstock-data").mkdir()
    printed, _, after = on_a_terminal("selec x", folder=tmp_path).partition(
        "[PARSE_SYNTAX_ERROR] Syntax error at or near"
    )
    assert printed.endswith("penstock: ")
    assert "\x1b[2K" not in after, "the line is wiped away"
    assert after.count("\n") == 1
    assert not re.search("WARN|incubator", printed + after)


@pytest.mark.spark
def test_interrupt_ends_a_running_query_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "penstock-data").mkdir()
    query = "select sum(id % 7) from range(1000000000000)"
    with subprocess.Popen([*QUERY, query], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:

        def is_running() -> bool:
            folders = [Path(f"/proc/{child}/task") for child in descendants(process.pid)]
            threads = [name.read_text() for folder in folders for name in folder.glob("*/comm")]
            return any(thread.startswith("Executor task") for thread in threads)

        try:
            wait_until(is_running, 120, "a task runs")
            children = descendants(process.pid)
            process.send_signal(signal.SIGINT)
            _, printed = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, printed.strip()) == (130, "")
    wait_until(lambda: not any(map(alive, children)), what="the JVM ends")


@pytest.mark.spark
def test_variables_that_keep_spark_from_starting_are_named(tmp_path: Path) -> None:
    (tmp_path / "penstock-data").mkdir()
    completed = run("pipeline", "query", "select 1", folder=tmp_path, SPARK_HOME="/nonexistent")
    assert completed.status == 1
    (line,) = completed.errors.splitlines()
    assert line.startswith("penstock: Spark does not start: ")
    assert line.endswith("; unset what only another Spark needs: SPARK_HOME")


@pytest.mark.spark
def test_query_reads_local_tables_where_hadoop_names_a_cluster(table: HandWritten, tmp_path: Path) -> None:
    table.commit({"t": 1}, [landed_message(0)])
    name_node = "<property><name>fs.defaultFS</name><value>hdfs://missing.invalid:8020</value></property>"
    (tmp_path / "core-site.xml").write_text(f"<configuration>{name_node}</configuration>")
    settings = ("-o", f"data_dir={tmp_path}", "-o", f"pipeline.tables={table.layout.tables}")
    query = ("pipeline", "query", "select count(*) as n, 2 as n, null as x from messages", "--json", *settings)
    completed = run(*query, folder=tmp_path, HADOOP_CONF_DIR=str(tmp_path), seconds=120)
    assert (completed.status, completed.output, completed.errors) == (0, '{"n":1,"n":2}\n', "")


@pytest.mark.spark
def test_failed_jvm_start_prints_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "penstock-data").mkdir()
    completed = run("pipeline", "query", "select 1", "-o", "pipeline.spark.driver.memory=lots", folder=tmp_path)
    assert completed.status == 1
    assert "penstock: Invalid maximum heap size: -Xmxlots" in completed.errors.splitlines()
    assert all(line.startswith("penstock: ") for line in completed.errors.splitlines())


def test_balance_of_an_earlier_daemon_names_no_states_of_processes() -> None:
    class Earlier(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"buckets": []}')

    with HTTPServer(("127.0.0.1", 0), Earlier) as server:
        server.timeout = 60
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert _balance_of_daemon(Settings(log={"http": f"127.0.0.1:{server.server_port}"})) == {"buckets": []}
        thread.join()


@pytest.mark.survives("landing from the log", "full disk")
def test_pipeline_of_up_waits_for_space_instead_of_ending(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "tables", "4m,nr_inodes=1") as full:
        settings = Settings.model_validate({"data_dir": tmp_path / "data", "pipeline": {"tables": str(full)}})
        command = [sys.executable, "-m", "penstock.cli.tables.pipeline", str(os.getpid()), "0"]
        output = tmp_path / "output"
        with output.open("wb") as file:
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=file, text=True)
        assert child.stdin
        child.stdin.write(settings.model_dump_json())
        child.stdin.close()
        wait_until(lambda: "waits for space" in output.read_text() or child.poll() is not None, what="it waits")
        assert child.poll() is None, output.read_text()
        child.terminate()
        assert child.wait(60) == 1
