"""Recorded input of a real plog server gives the same messages, replies and statistics in ``penstock serve``.
``plog_vectors`` lists intended differences with their reasons.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.cli.listener.listeners import CommandConnection, Protocol
from penstock.testing.pipe import Pipe, wait_until
from tests.wire.plog_vectors import LAST_LINE_COUNTS, TCP, UDP, expected_stat, sparse

# The recording waited for nothing to expire where it set no times; here nothing may, while many cases run.
LISTENERS = """
[buffer]
term_length = "8MiB"
slots = 256
[defaults.udp]
port = 0
handlers = [{type = "log"}, {type = "console", format = "json"}]
[defaults.udp.defrag]
max_size = "256KiB"
expire_time = "1h"
[defaults.udp.defrag.detect_holes]
expire_time = "1h"
[defaults.tcp]
port = 0
max_line = "64KiB"
handlers = [{type = "log"}, {type = "console", format = "json"}]
[[listener]]
name = "capture-udp"
protocol = "udp"
kill = true
[[listener]]
name = "capture_small-udp"
protocol = "udp"
[listener.defrag]
max_size = "4KiB"
expire_time = "400ms"
[[listener]]
name = "capture_holes-udp"
protocol = "udp"
[listener.defrag.detect_holes]
ports = 4
ids_per_port = 5
maximum_hole = 3
expire_time = "400ms"
[[listener]]
name = "capture-tcp"
protocol = "tcp"
[[listener]]
name = "capture_small-tcp"
protocol = "tcp"
max_line = 64
"""
SETTLE = 0.6
"""Seconds after which a listener that expires after 400 ms has forgotten the case before."""
TRIES = 4
Message = tuple[str, tuple[str, ...]]


class Recorded(Pipe):
    """A pipe with the listeners of the recording; the console handler's lines are the handed-on messages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.configure(LISTENERS)
        self._sender_ports: set[int] = set()

    def new_sender(self, listener: str) -> socket.socket:
        """Return a socket whose port no case before had: plog and Penstock find holes by the sender's port."""
        with ExitStack() as rejected:
            while True:
                sender = socket.socket(type=socket.SOCK_DGRAM)
                sender.connect(self.address(listener))
                sender.settimeout(20)
                port = sender.getsockname()[1]
                if port not in self._sender_ports:
                    self._sender_ports.add(port)
                    return sender
                rejected.enter_context(sender)  # open until another port is found, so that the kernel gives another

    def handed_on(self, listener: str) -> list[Message]:
        """Return payloads (hexadecimal) and tags of all messages of a listener so far."""
        lines = self.output.read_text(errors="replace").splitlines()
        messages = [json.loads(line) for line in lines if line.startswith('{"listener"') and line.endswith("}")]
        return [
            (base64.b64decode(each["payload_b64"]).hex(), tuple(each["tags"]))
            for each in messages
            if each["listener"] == listener
        ]

    def stat(self, listener: str) -> dict[str, Any]:
        """Return the answer of STAT, requested from a separate port after all earlier messages."""
        answer: dict[str, Any] = json.loads(self.request(listener, "STAT"))
        return answer

    def request(self, listener: str, verb: str) -> bytes:
        protocol: Protocol = "tcp" if listener.endswith("tcp") else "udp"
        with closing(CommandConnection(*self.address(listener), protocol, timeout=20)) as asking:
            return asking.request(verb)


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    pipe = Recorded(tmp_path_factory.mktemp("plog"))
    pipe.start()
    yield pipe
    pipe.stop()


@contextmanager
def marked(pipe: Recorded, listener: str) -> Iterator[list[Message]]:
    """Yield a list that gets the messages handed on between two marks."""
    messages: list[Message] = []
    marks = [f"mark {os.urandom(8).hex()}".encode() for _ in range(2)]
    _send_mark(pipe, listener, marks[0])
    yield messages
    _send_mark(pipe, listener, marks[1])
    last = (marks[1].hex(), ())
    wait_until(lambda: last in pipe.handed_on(listener), what=f"{listener} hands its messages on, see {pipe.output}")
    everything = pipe.handed_on(listener)
    messages += everything[everything.index((marks[0].hex(), ())) + 1 : everything.index(last)]


def _send_mark(pipe: Recorded, listener: str, mark: bytes) -> None:
    if listener.endswith("udp"):
        pipe.datagrams(mark, listener=listener)
    else:
        pipe.request(listener, "PING")
        pipe.lines(mark + b"\n", listener=listener)
    pipe.stat(listener)


def grown(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the growth of each number of STAT."""

    def minus(later: Any, earlier: Any) -> Any:
        if isinstance(later, dict):
            return {key: minus(later[key], earlier[key]) for key in later}
        if isinstance(later, list):
            return [minus(a, b) for a, b in zip(later, earlier, strict=True)]
        return later - earlier

    left_out = ("version", "handlers")
    return {key: minus(after[key], before[key]) for key in after if key not in left_out}


def played(pipe: Recorded, case: dict[str, Any]) -> tuple[Counter[Message], dict[str, Any], list[list[Any]]]:
    """Return messages handed on, growth of STAT, and replies of a case sent by UDP."""
    listener, replies = f"{case['config']}-udp", []
    with ExitStack() as stack, marked(pipe, listener) as messages:
        before = pipe.stat(listener)
        socks: dict[int, socket.socket] = {}
        for step in case["datagrams"]:
            if len(step) == 1:
                time.sleep(step[0] / 1000)
                continue
            port, data = step
            if port not in socks:
                socks[port] = stack.enter_context(pipe.new_sender(listener))
            socks[port].send(bytes.fromhex(data))
        after = pipe.stat(listener)
        for port, reply in case["replies"]:
            replies.append([port, socks[port].recv(65_535).hex() if reply else None])
    stat = grown(before, after)
    stat["v0_commands"] -= 1  # the STAT before
    return Counter(messages), stat, replies


@pytest.mark.parametrize("case", [c for c in UDP if c["stat"]], ids=lambda case: case["name"])
def test_udp_is_processed_answered_and_counted_like_in_plog(pipe: Recorded, case: dict[str, Any]) -> None:
    expected = expected_stat(case)
    for remaining_tries in reversed(range(TRIES)):
        if case["config"] != "capture":
            time.sleep(SETTLE)
        handed_on, stat, replies = played(pipe, case)
        ours = {key: sparse(stat[key]) for key in expected}
        # On a machine that stands still for 400 ms something may expire too early or late: again then.
        if ours == expected or not remaining_tries or case["config"] == "capture":
            break
    assert handed_on == Counter((payload, tuple(tags)) for payload, tags in case["handled"])
    assert ours == expected
    assert replies == case["replies"]


@pytest.mark.parametrize("case", TCP, ids=lambda case: case["name"])
def test_tcp_lines_are_handed_on_like_in_plog(pipe: Recorded, case: dict[str, Any]) -> None:
    listener = f"{case['config']}-tcp"
    with marked(pipe, listener) as messages:
        before = pipe.stat(listener)
        with socket.create_connection(pipe.address(listener), timeout=20) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for chunk in case["chunks"]:
                sock.sendall(bytes.fromhex(chunk))
                time.sleep(0.01)
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(100) == b""
        after = pipe.stat(listener)
    expected = LAST_LINE_COUNTS.get(case["name"], [payload for payload, _ in case["handled"]])
    assert [payload for payload, _ in messages] == expected
    # plog counts nothing of TCP; Penstock counts lines as it does datagrams.
    assert grown(before, after)["udp_simple_messages"] == len(expected)


def test_kill_ends_the_receiver_immediately_and_it_is_restarted(pipe: Recorded) -> None:
    """plog takes ten seconds, and does not restart."""
    (case,) = (c for c in UDP if not c["stat"])
    before = pipe.stat("capture-udp")
    assert before["uptime"] > 0
    pid = pipe.pid("receiver capture-udp")
    pipe.datagrams(*(bytes.fromhex(data) for _, data in case["datagrams"]), listener="capture-udp")
    wait_until(lambda: pipe.endpoints()["pids"]["receiver capture-udp"] not in (None, pid), 9, "another receiver runs")
    after = pipe.stat("capture-udp")
    assert after["uptime"] < before["uptime"]
    assert after["v0_commands"] == 0


def test_kill_is_ignored_if_not_allowed(pipe: Recorded) -> None:
    before = pipe.stat("capture_small-udp")
    pipe.datagrams(b"\0\0KILL", listener="capture_small-udp")
    assert pipe.stat("capture_small-udp")["uptime"] >= before["uptime"]


def of_receiver(statistics: object) -> object:
    """Return statistics without what the log daemon adds: the time of silence, and the process of a forwarder."""
    if isinstance(statistics, list):
        return [of_receiver(entry) for entry in statistics]
    if isinstance(statistics, dict):
        return {key: of_receiver(entry) for key, entry in statistics.items() if key not in ("silent_s", "pid")}
    return statistics


def test_http_has_the_same_statistics_by_listener_and_in_total(pipe: Recorded) -> None:
    """STAT commands are excluded: each request adds one."""
    statistics: dict[str, Any] = {}

    def has_same_statistics() -> bool:
        # Fragments of the tests before may expire between the two requests: the receivers are asked each time.
        statistics.update((name, pipe.stat(name)) for name in pipe.endpoints()["listeners"])
        still = statistics["capture-udp"].keys() - {"uptime", "v0_commands", "kernel_dropped"}
        listeners = pipe.get("/stat")["listeners"]
        return all(
            of_receiver(listeners[name][key]) == of_receiver(stat[key])
            for name, stat in statistics.items()
            for key in still
        )

    wait_until(has_same_statistics, 20, "the receivers leave their statistics")
    answer = pipe.get("/stat")
    for key in ("udp_simple_messages", "v0_multipart_messages", "unknown_command"):
        assert answer["sum"][key] == sum(stat[key] for stat in answer["listeners"].values())
    assert answer["sum"]["v0_fragments"] == [
        sum(row) for row in zip(*(stat["v0_fragments"] for stat in answer["listeners"].values()), strict=True)
    ]
    assert [handler["name"] for handler in statistics["capture-udp"]["handlers"]] == ["log", "console"]


def test_metrics_have_the_same_statistics(pipe: Recorded) -> None:
    text = httpx.get(f"http://{pipe.http}/metrics", timeout=30).raise_for_status().text
    first = pipe.get("/stat")["listeners"]["capture_holes-udp"]["v0_fragments"][0]
    assert f'penstock_plog_v0_fragments_total{{listener="capture_holes-udp",index="0"}} {first}\n' in text
    assert first > 0


def test_books_close(pipe: Recorded) -> None:
    balance = pipe.settled(60)
    assert balance["unaccounted"] == 0
    assert all(listener["books"] == [] for listener in balance["listeners"])
