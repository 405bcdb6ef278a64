"""A running ``penstock serve`` reloads its configuration without loss and without effect on other listeners."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from penstock.files.change_log import ChangeLog
from penstock.landing.requests.deletions import RETENTION, load_deletions
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.typed_delta import TypedDelta
from penstock.proof.posts.ledger_client import LedgerClient
from penstock.supervise.instances import NotRunning
from penstock.supervise.reload import Outcome, request_reload, request_restart
from penstock.testing.pipe import Pipe, free_ports, wait_until
from penstock.testing.processes import alive
from penstock.upkeep import maintenance
from penstock.upkeep.maintenance import Follow, Maintenance, Upkeep
from tests.spark.spark_helpers import HandWritten, landed_event
from tests.upkeep.clocks import believed

CONFIG = """
data_dir = "{data_dir}"
[log]
http = "{http}"
grpc = "{grpc}"
flight = "{flight}"
{log}
[buffer]
term_length = "{term_length}"
slots = 64
[defaults.udp]
codec = "raw"
so_rcvbuf = "200KiB"
defrag.max_size = "16KiB"
[defaults.tcp]
max_line = "32KiB"
"""
LISTENER = """
[[listener]]
name = "{name}"
protocol = "{protocol}"
port = {port}
{more}
"""
TO_LOG = '[[listener.handlers]]\ntype = "log"\ntopic = "{topic}"\n'
DISCARD = '[[listener.handlers]]\ntype = "discard"\n'


class Configured:
    """A pipe whose configuration is a file."""

    def __init__(self, folder: Path) -> None:
        self.pipe = Pipe(folder)
        self.pipe.overrides = []
        self.pipe.config = folder / "penstock.toml"

    def write(self, *listeners: str, log: str = "", **changed: str) -> None:
        keys = {key: getattr(self.pipe, key) for key in ("data_dir", "http", "grpc", "flight")}
        keys["term_length"] = "2MiB"
        assert self.pipe.config
        self.pipe.config.write_text(CONFIG.format(**{**keys, **changed}, log=log) + "".join(listeners))

    def reload(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock.cli.main", "reload", *self.pipe.options, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def reloaded(self) -> Outcome:
        return request_reload(self.pipe.data_dir, timeout_s=60)


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[Configured]:
    instance = Configured(tmp_path)
    yield instance
    instance.pipe.stop()


def listener(name: str, more: str = "", port: int = 0, protocol: str = "udp", handlers: str = "") -> str:
    return LISTENER.format(
        name=name, protocol=protocol, port=port, more=more + "\n" + TO_LOG.format(topic=name) + handlers
    )


@pytest.mark.survives("connections", "changed configuration")
def test_listeners_are_added_removed_and_changed_without_loss(configured: Configured) -> None:
    pipe, ports = configured.pipe, free_ports(2)
    configured.write(
        listener("same", handlers=DISCARD),
        listener("lines", protocol="tcp"),
        listener("changes"),
        listener("moves", port=ports[0]),
        listener("goes", handlers=DISCARD),
    )
    pipe.start()
    before, goes = pipe.endpoints(), pipe.address("goes")
    with socket.create_connection(pipe.address("lines")) as connection:
        connection.sendall(b"one\n")
        pipe.datagrams(*[b"before"] * 20, listener="moves")
        sender = threading.Thread(
            target=pipe.datagrams, args=[b"meanwhile"] * 400, kwargs={"listener": "changes", "pause": 0.005}
        )
        sender.start()
        with pipe.paused("receiver goes"):
            pipe.datagrams(*[b"waits in the kernel"] * 100, listener="goes")
            configured.write(
                listener("same", handlers=DISCARD),
                listener("lines", protocol="tcp"),
                listener("changes", more="annotate_source = true", handlers=DISCARD),
                listener("moves", port=ports[1]),
                listener("comes", port=goes[1]),
                log='max_topics = 2000\ntopic_defaults.stale_after = "2d"',
                http="127.0.0.1:1",
            )
            os.kill(before["supervisor"], signal.SIGHUP)
            accepted = 100 + send_until_refused(goes)
        wait_until(lambda: "comes" in pipe.endpoints()["listeners"], what="the reload is done")
        connection.sendall(b"two\n")
        sender.join()
    pipe.datagrams(*[b"after"] * 30, listener="moves")
    pipe.datagrams(*[b"new"] * 40, listener="comes")
    after = pipe.endpoints()
    stay = ["receiver same", "forwarder same discard", "receiver lines", "log daemon"]
    assert {name: after["pids"][name] for name in stay} == {name: before["pids"][name] for name in stay}
    assert after["listeners"]["changes"] == before["listeners"]["changes"]
    assert after["pids"]["receiver changes"] != before["pids"]["receiver changes"]
    assert not {"receiver goes", "forwarder goes discard"} & after["pids"].keys()
    expected = {"lines": 2, "changes": 400, "moves": 50, "goes": accepted, "comes": 40}
    wait_until(
        lambda: all(end(pipe, name) == rows for name, rows in expected.items()), what="all messages are in the log"
    )
    assert pipe.balance()["unaccounted"] == 0
    reported = [line.partition(" ")[2] for line in pipe.output.read_text().splitlines()]
    assert [line for line in reported if "the configuration is reloaded" in line] == [
        "supervisor: the configuration is reloaded: listener 'comes' is added, listener 'goes' is removed, listener "
        "'changes' is changed, listener 'moves' is changed, log.max_topics, log.topic_defaults.stale_after"
    ]
    assert "log.http: takes effect with `penstock restart`: the daemon" in pipe.output.read_text()
    assert pipe.get("/topics/moves")["settings"]["stale_after"] == 2 * 86400
    pipe.kill("log daemon")  # its successor has the new settings, and knows the new listener
    pipe.datagrams(b"newer", listener="comes")
    wait_until(lambda: end(pipe, "comes") == 41, what="the new listener's messages come through")
    assert pipe.get("/topics/moves")["settings"]["stale_after"] == 2 * 86400


def test_keys_of_other_commands_name_the_command_to_start_again(configured: Configured) -> None:
    configured.write(listener("a"))
    configured.pipe.start()
    configured.write(listener("a"), "[pipeline]\nbatch_rows = 5000\n[console]\nhttp = '127.0.0.1:1'\n")
    reload = configured.reload()
    assert (reload.returncode, reload.stdout.splitlines()[1:]) == (
        0,
        [
            "pipeline.batch_rows: takes effect with the next start of `penstock pipeline run`: Spark's query takes its "
            "trigger and limits at its start",
            "console.http: takes effect with the next start of `penstock console`: the console is a process of its own "
            "that reads them once",
        ],
    )


def relay_metrics(pipe: Pipe) -> dict[str, float]:
    """Return the metrics of the only relay; 0 for one without a sample."""
    text = httpx.get(f"http://{pipe.http}/metrics").text
    samples = re.findall(r'^penstock_relay_(\w+)\{relay="up"[^}]*\} (\S+)$', text, re.MULTILINE)
    return Counter({name: float(number) for name, number in samples})


@pytest.mark.survives("relay", "changed configuration")
def test_relays_are_added_changed_and_removed(configured: Configured) -> None:
    pipe = configured.pipe
    relay = '[[relay]]\nname = "up"\ntopic = "one"\nto = "127.0.0.1:1"\nhost = "web1"\n'
    configured.write(listener("one"))
    pipe.start()
    daemon = pipe.pid("log daemon")
    configured.write(listener("one"), relay)
    assert configured.reloaded().applied == ["relay"]
    added = pipe.pid("relay up")
    pipe.datagrams(b"waits", listener="one")
    wait_until(lambda: relay_metrics(pipe)["retries_total"] > 0, what="the relay's failed attempts are metrics")
    assert relay_metrics(pipe)["connected"] == relay_metrics(pipe)["entries_total"] == 0
    wait_until(lambda: relay_metrics(pipe)["lag_entries"] == 1, what="the entry that waits is a metric")
    configured.write(listener("one"), relay.replace("web1", "web2"))
    assert configured.reloaded().applied == ["relay"]
    assert pipe.pid("relay up") != added
    assert not alive(added)
    configured.write(listener("one"))
    changed = pipe.pid("relay up")
    assert configured.reloaded().applied == ["relay"]
    assert "relay up" not in pipe.endpoints()["pids"]
    assert not alive(changed)
    assert pipe.pid("log daemon") == daemon
    assert "ended" not in pipe.output.read_text()


def test_invalid_configuration_is_named_and_changes_nothing(configured: Configured) -> None:
    pipe = configured.pipe
    configured.write(listener("one"))
    with pytest.raises(NotRunning, match="no penstock runs on"):
        configured.reloaded()
    pipe.start()
    before = pipe.endpoints()
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        configured.write(
            listener("one", handlers=DISCARD), listener("two", protocol="tcp", port=occupied.getsockname()[1])
        )
        assert configured.reloaded().error.startswith("listener 'two': cannot listen on tcp 127.0.0.1:")
    configured.write(listener("one", more="prot = 1"))
    outcome = configured.reload()
    assert outcome.returncode == 2
    named = r"penstock: /.*/penstock\.toml:[0-9]+: listener\.one\.prot: unknown key \(did you mean 'port'\?\)\n"
    assert re.fullmatch(named, outcome.stderr)
    os.kill(before["supervisor"], signal.SIGHUP)
    wait_until(lambda: ": listener.one.prot: unknown key" in pipe.output.read_text(), what="the key is named")
    pipe.datagrams(*[b"as before"] * 10, listener="one")
    wait_until(lambda: end(pipe, "one") == 10, what="messages come through")
    assert pipe.endpoints() == before
    assert pipe.config
    pipe.config.unlink()
    assert "penstock.toml: cannot be read" in configured.reloaded().error
    configured.write(listener("one"))
    assert configured.reloaded().applied == []
    configured.write(listener("one"), log="max_bytes = 1000000000")
    outcome = configured.reload()
    assert (outcome.returncode, outcome.stdout) == (0, "the configuration is reloaded: log.max_bytes\n")
    assert pipe.endpoints() == before


def test_repeated_address_changes_leave_no_descriptors(configured: Configured) -> None:
    pipe, ports = configured.pipe, free_ports(4)

    def move(udp: int, tcp: int) -> None:
        configured.write(listener("moves", port=udp, handlers=DISCARD), listener("lines", port=tcp, protocol="tcp"))
        assert len(configured.reloaded().applied) == 2

    configured.write(listener("moves", handlers=DISCARD), listener("lines", protocol="tcp"))
    pipe.start()
    move(ports[0], ports[2])
    pipe.datagrams(b"first", listener="moves")
    wait_until(lambda: end(pipe, "moves") == 1, what="all is in motion")
    before = eventfds(pipe)
    for number in range(1, 5):
        move(ports[number % 2], ports[2 + number % 2])
    pipe.datagrams(b"last", listener="moves")
    pipe.lines(b"one line\n", listener="lines")
    wait_until(lambda: (end(pipe, "moves"), end(pipe, "lines")) == (2, 1), what="messages come through")
    assert eventfds(pipe) == before


def eventfds(pipe: Pipe) -> dict[str, int]:
    """Return the number of eventfds and sockets of the supervisor, and of eventfds of the daemon."""
    opened = {"log daemon": pipe.pid("log daemon"), "supervisor": pipe.endpoints()["supervisor"]}
    targets_by_process = {name: targets(pid) for name, pid in opened.items()}
    kinds = {"log daemon": ("anon_inode:[eventfd",), "supervisor": ("anon_inode:[eventfd", "socket:")}
    return {name: sum(target.startswith(kinds[name]) for target in files) for name, files in targets_by_process.items()}


def targets(pid: int) -> list[str]:
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            links.append(str(entry.readlink()))
    return links


def send_until_refused(address: tuple[str, int]) -> int:
    """Return the number of further datagrams that an address accepts."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(address)
        for sent in range(300):
            try:
                sock.send(b"one more")
                sock.settimeout(0.1)
                sock.recv(1)
            except TimeoutError:
                continue
            except ConnectionRefusedError:
                return sent
    raise AssertionError("the listener that goes still takes datagrams")


def end(pipe: Pipe, topic: str) -> int:
    ends = [entry["end"] for entry in pipe.get("/balance")["topics"] if entry["topic"] == topic]
    return int(ends[0]) if ends else 0


def test_reload_asks_before_it_closes_a_listener_with_recent_messages(configured: Configured) -> None:
    pipe = configured.pipe
    configured.write(listener("keeps"), listener("goes"), listener("silent"))
    pipe.start()
    pipe.datagrams(*[b"x"] * 7, listener="goes")
    wait_until(lambda: pipe.balance()["listeners"], what="the messages are counted")
    assert [(book["name"], book["counts"]["accepted"]) for book in pipe.balance()["listeners"]] == [("goes", 7)]
    configured.write(listener("keeps"), http="127.0.0.1:1")
    refused = configured.reload()
    host, port = pipe.address("goes")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"would close listener 'goes' ({host}:{port}, 7 messages within the last hour); keep" in refused.stderr
    assert "silent" not in refused.stderr
    assert set(pipe.endpoints()["listeners"]) == {"keeps", "goes", "silent"}
    assert configured.reload("--yes").returncode == 0
    assert set(pipe.endpoints()["listeners"]) == {"keeps"}
    (change,) = ChangeLog(pipe.data_dir).newest()
    assert (change["what"], change["from"].startswith("command line on ")) == ("reload", True)


def test_alarms_and_settings_of_the_pipeline_are_reloaded(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, alarm = configured.pipe, tmp_path / "alarm"
    configured.write(listener("in"))
    pipe.start()
    monkeypatch.setattr(maintenance, "FOLLOW_INTERVAL_S", 0.0)
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    table.commit({"t": 1}, [landed_event(0, "u0")])
    follow = Follow(LedgerClient(pipe.http).followed_settings, is_binding=True)
    running = Maintenance(table.layout, Upkeep(), believed(table.layout, 2 * 86_400), follow=follow)
    typed: list[Sequence[TypedTable]] = []
    running.attach(typed.append)
    running.step()
    assert load_deletions(table.layout) == []
    alarms = f"""[alarms]\ncommand = "sh -c 'cat > {alarm}'"\nevery = "200ms"\n"""
    configured.write(
        listener("in"),
        log=f"""{alarms}[pipeline]\nretention.event = "1h"\n"""
        """typed.click.columns.path = "string"\n""",
    )
    changed = "alarms.command, alarms.every, pipeline.retention.event, pipeline.typed.click"
    assert sorted(configured.reloaded().lines[0].split(": ")[1].split(", ")) == changed.split(", ")
    running.step()
    assert [deletion.why for deletion in load_deletions(table.layout)] == [RETENTION]
    assert typed == [(TypedTable("click", "click", (Column("path", "string", "path"),)),)]

    def is_told_of_drops() -> bool:
        # Repeated: growth counts from the first evaluation, which may be later than the first drops.
        with pipe.paused("receiver in"):
            pipe.datagrams(*[b"x" * 1000] * 1000, listener="in")
        return alarm.exists() and "PenstockKernelDrops" in alarm.read_text()

    wait_until(is_told_of_drops, 60, what="the alarm")


def test_reload_refuses_other_type_of_an_existing_typed_column(configured: Configured, tmp_path: Path) -> None:
    columns = """[pipeline]\ntables = "{}"\nretention.event = "{}"\ntyped.click.columns.path = "{}"\n"""
    pipe, tables = configured.pipe, tmp_path / "tables"
    configured.write(listener("in"), log=columns.format(tables, "1h", "string"))
    pipe.start()
    table = TypedTable("click", "click", (Column("path", "string", "path"),))
    TypedDelta.configured(Layout.for_tables(tables), table).begin()
    configured.write(listener("in"), log=columns.format(tables, "2h", "int"))
    for outcome in (configured.reloaded(), request_restart(pipe.data_dir, timeout_s=60)):
        [reason] = outcome.error.splitlines()
        assert reason.startswith("pipeline.typed: ")
        assert "path of type string" in reason
        assert reason.endswith("`penstock tables refill click`")
    # The daemon, and a pipeline that starts again, have the settings from before.
    assert LedgerClient(pipe.http).followed_settings().typed["click"].columns["path"].type == "string"
    configured.write(listener("in"), log=columns.format(tables, "2h", "string") + 'typed.click.columns.ms = "int"\n')
    assert configured.reloaded().applied == ["pipeline.retention.event", "pipeline.typed.click.columns.ms"]


@pytest.mark.survives("supervisor", "changed configuration")
def test_restart_applies_what_a_reload_cannot_and_refuses_what_would_not_start(configured: Configured) -> None:
    pipe = configured.pipe
    configured.write(listener("stays", handlers=DISCARD), listener("goes"))
    pipe.start()
    before = pipe.endpoints()
    pipe.datagrams(*[b"before"] * 20, listener="stays")
    configured.write(listener("stays", more="prot = 1"))
    refused = request_restart(pipe.data_dir, timeout_s=60)
    assert ": listener.stays.prot: unknown key" in refused.lines[0]
    assert refused.lines[-1] == "nothing is restarted; the previous processes continue"
    configured.write(listener("stays"), data_dir=f"{pipe.data_dir}-2")
    assert request_restart(pipe.data_dir, timeout_s=60).error.startswith("data_dir: a restart keeps")
    assert pipe.endpoints() == before
    configured.write(listener("stays", handlers=DISCARD), listener("comes"), term_length="4MiB")
    pipe.datagrams(*[b"waits or not"] * 20, listener="stays")
    assert request_restart(pipe.data_dir, timeout_s=60).applied == ["2 sockets were kept open"]
    after = pipe.endpoints()
    assert after["listeners"].keys() == {"stays", "comes"}
    assert after["listeners"]["stays"] == before["listeners"]["stays"]
    pipe.datagrams(*[b"after"] * 10, listener="stays")
    wait_until(lambda: end(pipe, "stays") == 50, what="messages come through")
    assert (pipe.data_dir / "buffers" / "stays.logbuffer").stat().st_size > 12 << 20
    assert not any(alive(pid) for pid in before["pids"].values())
