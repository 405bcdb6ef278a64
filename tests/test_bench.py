"""Results of measurements are stored with their machine, and compared."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import ClassVar

import pytest

import bench.__main__
from bench import compare, peers, readme, request_load
from bench.peers import appends, datagrams, kafka, lines, rsyslog
from bench.peers.nats import Nats
from bench.peers.peer import Peer
from bench.results import load, machine, save
from penstock.java.runtime import NoJava
from penstock.wire.request_protocols import REQUEST_PROTOCOLS
from penstock.wire.requests import Received, Request, find_protocol


def test_result_is_stored_with_its_machine_and_load(tmp_path: Path) -> None:
    where = machine()
    document = load(save({"udp_per_s": 5}, where, tmp_path / "results"))
    assert (document["figures"], document["machine"]) == ({"udp_per_s": 5}, where)
    assert where["cores"] > 0
    assert "UDP_SEGMENT" in document["load"]["sender"]


def test_results_are_compared_by_figure_or_reported_as_not_comparable() -> None:
    a = {"figures": {"x": 100, "gone": 1}, "machine": {"cores": 2, "load_before": 0.1}, "load": {}}
    b = {"figures": {"x": 150, "new": "?"}, "machine": {"cores": 4, "load_before": 9.0}, "load": {}}
    assert compare.rows(a, b) == [("x", "100", "150", "1.50"), ("gone", "1", "", ""), ("new", "", "?", "")]
    assert compare.differences(a, b) == ["machine: cores is 2 and 4"]


def test_unknown_peer_is_refused_before_the_measurement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["bench", "log", "--with", "kafka,nobody"])
    monkeypatch.setattr(peers, "MISSING", peers.MISSING | {"kafka": lambda: ""})
    with pytest.raises(SystemExit, match="no peer 'nobody': there are collector, rsyslog, slogd, nats, kafka"):
        bench.__main__.main()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("peer", "program", "variable"),
    [
        ("slogd", "slogd", "BENCH_SLOGD"),
        ("rsyslog", "rsyslogd", "BENCH_RSYSLOGD"),
        ("collector", "otelcol-contrib", "BENCH_OTELCOL_CONTRIB"),
        ("nats", "nats-server", "BENCH_NATS_SERVER"),
    ],
)
def test_missing_peer_is_named_unless_a_variable_has_its_path(
    peer: str, program: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with pytest.raises(SystemExit, match=f"{program} is not on the PATH; {variable} may name it"):
        peers.named(peer)
    monkeypatch.setenv(variable, sys.executable)
    assert peers.named(peer) == [peer]


def test_missing_dependency_of_a_peer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_NATS_SERVER", sys.executable)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install nats-py"):
        peers.named("nats")
    with pytest.raises(SystemExit, match=r"pip install 'penstock-pipe\[kafka\]'"):
        peers.named("kafka")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(kafka, "find_java", no_java)
    with pytest.raises(SystemExit, match="no Java"):
        peers.named("kafka")


def no_java() -> None:
    raise NoJava("no Java 17 or later on this machine")


def test_nats_has_the_figures_of_penstock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_NATS_SERVER", script(tmp_path, LISTENS))
    monkeypatch.setattr(appends, "go_client", lambda: None)
    ask = appends.told
    monkeypatch.setattr(
        appends, "told", lambda client, *words: measured(*words) if client == "nats_load" else ask(client, *words)
    )
    figures = peers.measure(["nats"], rounds=1, seconds=0.1)
    ours = {name.removeprefix("penstock_") for name in figures if name.startswith("penstock_")}
    assert set(figures) == {f"{peer}_{name}" for peer in ("penstock", "nats", "nats_unsynced") for name in ours}
    assert ours >= FIGURES
    assert figures["penstock_append_64_callers_1_entries_refused"] == 0
    assert figures["nats_append_1_callers_1000_entries_per_s"] == 4_000


def test_peer_that_exits_immediately_is_reported_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_NATS_SERVER", script(tmp_path, "raise SystemExit('no room')"))
    with pytest.raises(SystemExit, match="nats ended at once: no room"):
        peers.in_turn([Nats], 1, measured)


def script(folder: Path, text: str) -> str:
    path = folder / "program"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return str(path)


FIGURES = {
    "append_1_callers_1_entries_per_s",
    "append_64_callers_1_entries_cpu_ms_a_request",
    "append_1_callers_1000_entries_client_cores",
    "read_pages_per_s",
    "read_stream_client_cores",
    "pss_idle_mib",
    "pss_loaded_mib",
    "pss_anon_idle_mib",
    "pss_anon_loaded_mib",
}
LISTENS = """
import re, socket, sys, time
config = open(sys.argv[sys.argv.index("-c") + 1]).read()
assert "sync_interval: always" in config or "nats_unsynced" in config
listener = socket.create_server(("127.0.0.1", int(re.search(r"127.0.0.1:(\\d+)", config)[1])))
time.sleep(60)
"""


def measured(operation: str, *rest: object) -> dict[str, float]:
    if operation == "append":
        return {"requests": 8, "failed": 0, "seconds": 2.0, "cores": 0.5}
    return {"pages_per_s": 1, "pages_client_cores": 1, "stream_per_s": 1, "stream_client_cores": 1}


class IdlePeer(Peer):
    """A peer that does nothing; its process is this one."""

    pid = os.getpid()

    def ready(self) -> bool:
        return True

    def stop(self) -> None:
        pass


def test_each_round_starts_with_the_last_peer_of_the_previous_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "IDLE_SECONDS", 0)
    kinds = [type("One", (IdlePeer,), {"name": "one"}), type("Other", (IdlePeer,), {"name": "other"})]
    order: list[str] = []

    def work(peer: Peer) -> dict[str, float]:
        order.append(peer.name)
        return {"turn": len(order)}

    figures = peers.in_turn(kinds, 3, work, "udp_")
    assert order == ["one", "other", "other", "one", "one", "other"]
    assert (figures["one_turn"], figures["other_turn"]) == (4, 3)
    assert figures["one_pss_udp_idle_mib"] > figures["one_pss_anon_udp_loaded_mib"] > 1


def test_datagrams_dropped_by_the_kernel_at_a_port_are_counted() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        assert datagrams.dropped(port) == 0
        for _ in range(50):
            sock.sendto(b"x" * 1000, sock.getsockname())
        assert 0 < (datagrams.dropped(port) or 0) < 50
    assert datagrams.dropped(port) is None


STATISTICS = """\
Nov 26 19:17:51: { "name": "main Q", "origin": "core.queue", "size": 9, "discarded.full": 1, "discarded.nf": 0 }
Nov 26 19:17:52: { "name": "imudp(w0)", "origin": "imudp", "msgs.received": 20032 }
Nov 26 19:17:52: { "name": "main Q", "origin": "core.queue", "size": 5, "discarded.full": 3, "discarded.nf": 4 }
Nov 26 19:17:52: { "name": "other", "origin": "core.queue", "size": 2, "discarded.full": 0, "discarded.nf": 1 }
Nov 26 19:17:53: { "name": "other", "origin": "core.queue", "si"""


def test_lines_that_a_peer_does_not_write_are_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Losing(IdlePeer):
        name = "losing"
        tcp = ("127.0.0.1", 1)
        lines: ClassVar[list[int]] = [7, 7 + 2000, 7, 7 + 1999]

        def stored(self, expected: int = 0) -> int:
            return self.lines.pop(0)

    monkeypatch.setattr(lines, "told", lambda *words: {"sent": 2000})
    peer = Losing.__new__(Losing)
    assert set(lines.parsed(peer, 1.0)) == {"tcp_parsed_cpu_us", "tcp_parsed_per_s"}
    with pytest.raises(AssertionError, match="losing wrote 1999 of 2000 lines"):
        lines.parsed(peer, 1.0)


def test_queues_of_rsyslog_are_read_from_its_newest_statistics() -> None:
    assert rsyslog.queues(STATISTICS.splitlines()) == (7, 8)
    assert rsyslog.queues([]) == (0, 0)


@pytest.mark.parametrize(("discards", "lossless"), [([0, 0, 0, 0], True), ([0, 1, 1, 1], False)])
def test_rate_at_which_a_queue_discards_is_not_lossless(
    monkeypatch: pytest.MonkeyPatch, discards: list[int], lossless: bool
) -> None:
    class Discarding(IdlePeer):
        udp = ("127.0.0.1", 1)

        def discarded(self) -> int:
            return discards.pop(0)

    monkeypatch.setattr(datagrams, "RATES", [100, 200])
    monkeypatch.setattr(datagrams, "_sent", lambda *load: {"sent": 100, "seconds": 100 / load[3] * (load[3] / 100)})
    figures = datagrams.lossless("syslog", "udp_", 1.0)(Discarding.__new__(Discarding))
    assert (figures["udp_lossless_per_s"] > 0) is lossless
    assert figures["udp_lossless_sender_is_limit"] is lossless


def test_rates_between_the_last_lossless_and_the_first_lossy_one_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    class Limited(IdlePeer):
        udp = ("127.0.0.1", 1)

        def discarded(self) -> int:
            return sum(rate > 600 for rate in tried)

    def sent(*load: int) -> dict[str, float]:
        tried.append(load[3])
        return {"sent": load[3], "seconds": 1.0}

    monkeypatch.setattr(datagrams, "RATES", list(range(100, 2000, 100)))
    monkeypatch.setattr(datagrams, "_sent", sent)
    figures = datagrams.lossless("syslog", "udp_", 1.0)(Limited.__new__(Limited))
    assert figures["udp_lossless_per_s"] == 600
    assert tried == [100, 400, 700, 500, 600]


@pytest.mark.parametrize("protocol", request_load.PROTOCOLS)
def test_requests_of_the_load_are_accepted(protocol: str) -> None:
    path, media_type, make = request_load.HTTP["otlp" if protocol == "otlp_grpc" else protocol]
    request = Request("POST", path, make(3), {}, {"content-type": media_type})
    receiver = find_protocol([create() for create in REQUEST_PROTOCOLS], "POST", path)
    assert receiver is not None
    received = receiver.receive(request)
    assert isinstance(received, Received)
    assert (received.body.num_rows, received.refused) == (3, {})


def test_table_of_a_result_has_its_load_and_only_measured_figures(tmp_path: Path) -> None:
    figures = {"tcp_lines_per_s": 1_980_000, "tcp_receiver_cpu_us_per_line": 0.45}
    head, _, *lines = readme.table(load(save(figures, machine(), tmp_path))).splitlines()
    assert "UDP_SEGMENT" in head
    assert "16MiB" in head
    assert lines[2:] == ["| TCP lines | 1,980,000/s, 0.45 us of CPU each |"]


def test_peers_in_the_documentation_are_those_of_the_kept_results() -> None:
    docs = Path(__file__).parent.parent / "docs"
    kept = readme.together([load(path) for path in sorted((docs / "results").glob("*.json"))])
    table = "".join(readme.table(kept).partition("| work |")[1:])
    assert len(table.splitlines()) == 2 + len(readme.PEER_ROWS)
    assert table in (docs / "figures.md").read_text()
