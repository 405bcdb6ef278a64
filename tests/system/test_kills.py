"""Processes are killed while messages flow: the balance closes at zero and each message is in the tables once."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock.handover.buffer import newest_frame_metadata
from penstock.landing.table_paths import Layout
from penstock.landing.topics.from_folder import FolderStore
from penstock.process.kernel import descendants
from penstock.sql.query import Query
from penstock.sql.tables import Tables
from penstock.supervise.reload import request_restart
from penstock.testing.pipe import Pipe, wait_until
from penstock.testing.processes import alive, cpu
from penstock.upkeep.backup import read_backup
from tests.system.landing import command_of, landed_rows

RATE = 500
START_S = 2.5
"""CPU time of a start until the daemon responds, with full log buffers: 1.1 s supervisor, 0.9 s log daemon, 0.3 s the
messages that wait.
"""
UDP = "events-udp"


class Flow(threading.Thread):
    """A sender of events at a steady pace; one in fifty is sent twice, one in a hundred is invalid."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._done, self._numbers = threading.Event(), count()
        self.sent: list[str] = []
        """The uuid of each datagram; empty for a broken one."""

    def run(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            while not self._done.wait(10 / RATE):
                for _ in range(10):
                    for datagram in self._next():
                        sock.sendto(datagram, self._address)

    def _next(self) -> Iterator[bytes]:
        number, name = next(self._numbers), str(uuid.uuid4())
        if number % 100 == 99:
            self.sent.append("")
            yield b'{"type": "broken", %d' % number
        event = {"type": f"t{number % 5}", "uuid": name, "timestamp": number, "data": {"number": number}}
        for _ in range(2 if number % 50 == 49 else 1):
            self.sent.append(name)
            yield json.dumps(event).encode()

    def stop(self) -> None:
        self._done.set()
        self.join()


class Asker(threading.Thread):
    """A client that queries all events repeatedly: each number from 0 to the newest appears once, and none
    disappears.
    """

    def __init__(self, pipe: Pipe) -> None:
        super().__init__(daemon=True)
        self._tables = Tables(Layout.for_tables(pipe.data_dir / "tables"), FolderStore(pipe.data_dir / "topics"))
        self._done = threading.Event()
        self.answers = self.landed = self.newest = 0
        self.wrong: list[Any] = []

    def run(self) -> None:
        newest = -1
        while not self._done.is_set() and not self.wrong:
            try:
                rows, numbers, newest_now, landed = self._query()
                if not rows == numbers == newest_now + 1 >= newest + 1:
                    self.wrong.append((rows, numbers, newest_now, newest))
            except Exception as error:  # noqa: BLE001  the test says what it was
                self.wrong.append(error)
                return
            newest, self.landed = newest_now, max(self.landed, landed)
            self.answers, self.newest = self.answers + 1, newest
            self._done.wait(0.5)  # a pause of 0.1 s took more CPU than the processes that are killed

    def _query(self) -> tuple[int, int, int, int]:
        number = "(data->>'number')::int"
        text = f"select count(*), count(distinct {number}), coalesce(max({number}), -1), count(landed_at) from events"
        with Query(self._tables, text) as query:
            (row,) = query.answer().to_pylist()
        rows, numbers, newest, landed = row.values()
        return rows, numbers, newest, landed

    def stop(self) -> None:
        self._done.set()
        self.join(60)


@contextmanager
def running_up(folder: Path) -> Iterator[Pipe]:
    """A ``penstock up`` with the pipeline and without a console."""
    folder.mkdir(exist_ok=True)
    pipe = Pipe(folder)
    pipe.command = ["up", "--no-console"]
    try:
        pipe.start()
        yield pipe
    finally:
        pipe.stop()


def run_command(pipe: Pipe, *arguments: str) -> str:
    command = [sys.executable, "-m", "penstock.cli.main", *arguments, *pipe.options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def kill_pipeline(pipe: Pipe) -> None:
    """Kill the pipeline of ``up``, which starts it again."""
    assert pipe.process
    pid = next(pid for pid in descendants(pipe.process.pid) if "penstock.cli.tables.pipeline" in command_of(pid))
    jvms = [pid for pid in descendants(pid) if "java" in command_of(pid)]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in jvms), 30, "the JVM ends with the pipeline")


def kill_at_random(pipe: Pipe, asker: Asker, backup: Path, dice: random.Random, rounds: int) -> None:
    """Kill each process in random order and at random moments, and restart and back up all of them once."""
    victims = [f"receiver {UDP}", "log daemon"] * rounds + ["pipeline"] * (rounds - 2) + ["restart", "backup"]
    dice.shuffle(victims)
    for victim in victims:
        time.sleep(dice.uniform(0.5, 4))
        if victim == "pipeline":
            kill_pipeline(pipe)
            time.sleep(dice.uniform(0, 8))
        elif victim == "restart":
            outcome = request_restart(pipe.data_dir, timeout_s=170)
            assert outcome.applied == ["4 sockets were kept open"]
        elif victim == "backup":
            wait_until(lambda: asker.landed, 240, "the pipeline is at work")
            run_command(pipe, "backup", str(backup))
        else:
            pipe.kill(victim)


def check_everything(pipe: Pipe, sent: Sequence[str]) -> None:
    """Check that each of these datagrams was counted, and is in the tables once."""
    wait_until(lambda: _all_landed(pipe, len(sent)), 240, "all has landed")
    balance = pipe.settled(60)
    assert balance["unaccounted"] == 0
    counts, fates = pipe.counts(UDP), pipe.fates("events")
    assert (counts["taken"], counts["kernel_dropped"]) == (len(sent), 0)
    uuids = set(sent) - {""}
    broken = sent.count("")
    duplicates = len(sent) - broken - len(uuids)
    assert fates == Counter({"landed.event": len(uuids), "duplicate": duplicates, "quarantined.bad_json": broken})
    assert rebuilt(pipe)["differs"] == []
    rows = landed_rows(pipe.data_dir / "tables")
    assert max(Counter(row["offset"] for row in rows).values()) == 1
    assert sorted(row["uuid"] for row in rows if row["kind"] == "event") == sorted(uuids)


def rebuilt(pipe: Pipe) -> dict[str, Any]:
    """Return the balance rebuilt from files by the command."""
    document: dict[str, Any] = json.loads(run_command(pipe, "balance", "--rebuild", "--json"))
    assert document["unaccounted"] == 0
    return document


def _all_landed(pipe: Pipe, messages: int) -> bool:
    balance = pipe.balance()
    (topic,) = (topic for topic in balance["topics"] if topic["topic"] == "events")
    return bool(topic["logged"] == messages and topic["read_by_pipeline"] and not balance["pending"])


def run(folder: Path, seed: int, rounds: int) -> None:
    """Run ``penstock up`` through kills, a restart and a backup, then another one on the restored backup."""
    backup = folder / "backup"
    with running_up(folder / "original") as pipe:
        flow = Flow(pipe.address(UDP))
        flow.start()
        asker = Asker(pipe)
        asker.start()
        kill_at_random(pipe, asker, backup, random.Random(seed), rounds)
        time.sleep(2)
        flow.stop()
        check_everything(pipe, flow.sent)
        asker.stop()
        assert asker.wrong == []
        assert asker.answers > 10
        assert asker.landed > 0
        run_command(pipe, "backup", str(backup), "--restore", str(folder / "restored" / "data"))
    (listener,) = (entry for entry in read_backup(backup).balance["listeners"] if entry["name"] == UDP)
    with running_up(folder / "restored") as restored:
        check_everything(restored, flow.sent[: listener["counts"]["taken"]])


@pytest.mark.survives("landing from the log", "SIGKILL")
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_each_message_is_in_the_tables_once_after_kills_restart_and_restore(tmp_path: Path) -> None:
    run(tmp_path, seed=int.from_bytes(os.urandom(4), "big"), rounds=2)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_each_message_is_in_the_tables_once_after_many_kills(tmp_path: Path) -> None:
    run(tmp_path, seed=int.from_bytes(os.urandom(4), "big"), rounds=15)


def lines_received(pipe: Pipe) -> int:
    """Return how many lines the TCP receiver has put into its log buffer."""
    newest = newest_frame_metadata(pipe.data_dir / "buffers", "events-tcp")
    return newest.total if newest else 0


@pytest.mark.survives("supervisor", "SIGKILL")
@pytest.mark.timeout(400)
def test_kill_of_all_processes_loses_no_received_message_and_delays_no_start(pipes: Callable[..., Pipe]) -> None:
    pipe = pipes()
    for life in range(3):
        pipe.datagrams(*(b"%d %d" % (life, number) for number in range(200)))
        wait_until(lambda life=life: pipe.counts(UDP)["accepted"] >= 200 * life + 1)
        with pipe.paused("log daemon"):  # what the senders send now waits in the log buffer
            for _ in range(16):
                pipe.lines(b"waits\n" * 500)
            wait_until(lambda life=life: lines_received(pipe) >= 8000 * (life + 1), what="the lines are received")
            pipe.kill_all()
        pipe.start()
        assert pipe.process
        # CPU time, not time by the clock: tests and other processes share the machine.
        assert sum(map(cpu, (pipe.process.pid, pipe.pid("log daemon")))) < 10 * START_S
    balance = pipe.settled()
    assert balance["unaccounted"] == 0
    assert pipe.counts("events-tcp")["accepted"] == 3 * 8000
    counts = pipe.counts(UDP)
    assert counts["accepted"] == counts["taken"] - counts["command"]
    assert 203 <= counts["accepted"] <= 600


@pytest.mark.survives("connections", "SIGKILL")
@pytest.mark.timeout(200)
def test_kill_of_receiver_and_daemon_under_load_loses_nothing(pipe: Pipe) -> None:
    dice = random.Random(os.urandom(4))
    flow = Flow(pipe.address(UDP))
    flow.start()
    for _ in range(8):
        time.sleep(dice.uniform(0.05, 1.0))
        pipe.kill(dice.choice([f"receiver {UDP}", "log daemon"]))
    flow.stop()
    wait_until(lambda: pipe.answers() and pipe.counts(UDP)["accepted"] >= len(flow.sent), 60)
    assert pipe.settled()["unaccounted"] == 0
    counts = pipe.counts(UDP)
    assert (counts["taken"], counts["kernel_dropped"]) == (len(flow.sent), 0)
    logs = [row for row in _payloads(pipe) if b"uuid" in row]
    assert len(logs) == len(flow.sent) - flow.sent.count("")


def _payloads(pipe: Pipe) -> list[bytes]:
    from penstock.log import TopicReader

    reader = TopicReader(pipe.data_dir / "topics" / "events")
    return [payload for stored in reader.read(0) for payload in stored.batch.column("payload").to_pylist()]


def test_stopped_pipe_leaves_no_process(pipe: Pipe) -> None:
    pids = list(pipe.endpoints()["pids"].values())
    pipe.stop()
    assert not any(alive(pid) for pid in pids)


@pytest.mark.survives("supervisor", "SIGKILL")
def test_children_end_with_a_killed_supervisor(pipe: Pipe) -> None:
    pids = list(pipe.endpoints()["pids"].values())
    assert pipe.process
    os.kill(pipe.process.pid, signal.SIGKILL)
    pipe.process.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids))
