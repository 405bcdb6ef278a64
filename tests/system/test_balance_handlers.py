"""The oracle for handlers: whatever one of them does, its route closes, and the others lose nothing."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.pipe import Pipe, until
from penstock.wire.plog.cutting import fragment

UDP, TCP = "events-udp", "events-tcp"
SITE = Path(__file__).parent.parent / "sinks" / "site"
LINE = b"x" * 990


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the wayward handler looks for what to do."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]))
    tell(tmp_path, "good")
    return tmp_path


def tell(folder: Path, mode: str) -> None:
    draft = folder / "draft"
    draft.write_text(mode)
    draft.rename(folder / "mode")


def wayward(folder: Path, **more: Any) -> str:
    """The override for a listener with three handlers, of which one is wayward."""
    own = {"type": "wayward", "folder": str(folder), **more}
    handlers = [{"type": "log", "topic": "events"}, {"type": "console", "format": "json"}, own]
    return f"listener.events-tcp.handlers={toml(handlers)}"


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def route(balance: dict[str, Any], handler: str, listener: str = TCP) -> dict[str, Any]:
    (found,) = (r for r in balance["routes"] if (r["source"], r["handler"]) == (listener, handler))
    assert isinstance(found, dict)
    return found


def handler_of(statistics: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (handler for handler in statistics["handlers"] if handler["name"] == name)
    assert isinstance(found, dict)
    return found


def lines(first: int, count: int) -> bytes:
    return b"".join(b"%06d" % number + LINE + b"\n" for number in range(first, first + count))


def send_paced(pipe: Pipe, first: int, end: int) -> None:
    """Lines by the thousand, each when the log and the console have all but the last few: neither is ever overrun."""
    with socket.create_connection(pipe.address(TCP)) as sock:
        for number in range(first, end, 1000):
            until(lambda number=number: number < 2000 or behind(pipe, number) < 2000, 60)
            sock.sendall(lines(number, min(1000, end - number)))


def behind(pipe: Pipe, sent: int) -> int:
    balance = pipe.balance()
    return sent - min(route(balance, handler)["delivered"] for handler in ("log", "console"))


def stands_still(pipe: Pipe) -> int:
    """How many lines were accepted, once there are more than a thousand and no more come."""
    seen: list[int] = []

    def still() -> bool:
        seen.append(pipe.counts(TCP)["accepted"])
        return len(seen) > 12 and seen[-1] > 1000 and len(set(seen[-12:])) == 1

    until(still)
    return seen[-1]


def printed(pipe: Pipe, listener: str = TCP) -> list[bytes]:
    """The payloads that the console handler wrote."""
    text = pipe.output.read_text()
    entries = [json.loads(line) for line in text.splitlines() if line.startswith('{"listener"')]
    return [base64.b64decode(entry["payload_b64"]) for entry in entries if entry["listener"] == listener]


def check_others(pipe: Pipe, balance: dict[str, Any], sent: int) -> None:
    """The log and the console have all of it, in order."""
    for handler in ("log", "console"):
        found = route(balance, handler)
        assert (found["accepted"], found["delivered"], found["unaccounted"]) == (sent, sent, 0), handler
    assert [payload[:6] for payload in printed(pipe)] == [b"%06d" % number for number in range(sent)]


def test_each_handler_has_a_route_and_all_messages(pipes: Callable[..., Pipe], folder: Path) -> None:
    pipe = pipes(wayward(folder))
    pipe.lines(lines(0, 50))
    until(lambda: pipe.counts(TCP)["accepted"] == 50)
    balance = pipe.settled()
    check_others(pipe, balance, 50)
    own = route(balance, "wayward")
    assert (own["accepted"], own["delivered"], balance["unaccounted"]) == (50, 50, 0)
    until(lambda: handler_of(pipe.statistics(TCP), "wayward").get("bytes") == 50 * 997)
    pipe.stop()
    assert (folder / "closed").exists()


def test_messages_that_a_handler_raises_for_have_failed(pipes: Callable[..., Pipe], folder: Path) -> None:
    pipe = pipes(wayward(folder))
    tell(folder, "raise")
    pipe.lines(lines(0, 20))
    until(lambda: route(pipe.balance(), "wayward")["handler_failed"] == 20)
    tell(folder, "good")
    pipe.lines(lines(20, 5))
    until(lambda: pipe.counts(TCP)["accepted"] == 25)
    balance = pipe.settled()
    check_others(pipe, balance, 25)
    own = route(balance, "wayward")
    assert (own["delivered"], own["handler_failed"], balance["unaccounted"]) == (5, 20, 0)
    assert "ValueError: it does not like them" in pipe.output.read_text()


@pytest.mark.parametrize(("mode", "said"), [("hang", "took longer than 1 s"), ("exit", "ended over a batch")])
def test_a_batch_that_its_handler_never_survives_has_failed(
    pipes: Callable[..., Pipe], folder: Path, mode: str, said: str
) -> None:
    pipe = pipes(wayward(folder, timeout=1))
    tell(folder, mode)
    pipe.lines(lines(0, 20))
    until(lambda: route(pipe.balance(), "wayward")["handler_failed"] == 20, 60)
    tell(folder, "good")
    pipe.lines(lines(20, 5))
    until(lambda: pipe.counts(TCP)["accepted"] == 25)
    balance = pipe.settled()
    check_others(pipe, balance, 25)
    own = route(balance, "wayward")
    assert (own["delivered"], own["handler_failed"], balance["unaccounted"]) == (5, 20, 0)
    assert said in pipe.output.read_text()


def test_a_handler_that_is_killed_again_and_again_counts_each_message_once(
    pipes: Callable[..., Pipe], folder: Path
) -> None:
    pipe = pipes(wayward(folder))
    with socket.create_connection(pipe.address(TCP)) as sock:
        for first in range(0, 600, 20):
            sock.sendall(lines(first, 20))
            if first % 120 == 60:
                pipe.kill(f"forwarder {TCP} wayward")
            assert pipe.balance()["unaccounted"] == 0
    until(lambda: pipe.counts(TCP)["accepted"] == 600)
    balance = pipe.settled(60)
    check_others(pipe, balance, 600)
    own = route(balance, "wayward")
    assert (own["accepted"], own["delivered"] + own["handler_failed"], balance["unaccounted"]) == (600, 600, 0)
    taken = (folder / "taken").read_bytes().split()
    assert len(set(taken)) >= own["delivered"]


@pytest.fixture(params=["hangs", "is stopped"])
def stuck(request: pytest.FixtureRequest, pipes: Callable[..., Pipe], folder: Path) -> Iterator[Pipe]:
    """A pipe whose wayward handler does nothing any more."""
    pipe = pipes(wayward(folder, timeout=600))
    pipe.lines(lines(0, 1))
    until(lambda: pipe.counts(TCP)["accepted"] == 1)
    pipe.settled()
    if request.param == "is stopped":
        with pipe.paused(f"forwarder {TCP} wayward"):
            yield pipe
    else:
        tell(folder, "hang")
        yield pipe
        tell(folder, "good")


def test_a_slow_handler_is_dropped_by_policy_and_costs_the_others_nothing(stuck: Pipe, folder: Path) -> None:
    send_paced(stuck, 1, 8001)
    until(lambda: stuck.counts(TCP)["accepted"] == 8001, 60)
    until(lambda: route(stuck.balance(), "console")["delivered"] == 8001, 60)
    until(lambda: route(stuck.balance(), "log")["delivered"] == 8001, 60)
    balance = stuck.balance()
    own = route(balance, "wayward")
    assert own["policy_drop"] > 3000
    assert own["in_buffer"] > 0
    assert balance["unaccounted"] == 0
    check_others(stuck, balance, 8001)
    tell(folder, "good")
    stuck.signal(f"forwarder {TCP} wayward", signal.SIGCONT)
    own = route(stuck.settled(60), "wayward")
    assert (own["accepted"], own["delivered"] + own["policy_drop"], own["unaccounted"]) == (8001, 8001, 0)
    assert (folder / "taken").read_bytes().endswith(lines(8000, 1))


def test_a_handler_that_blocks_stops_the_senders_and_loses_nothing(pipes: Callable[..., Pipe], folder: Path) -> None:
    pipe = pipes(wayward(folder, overflow="block", timeout=600), "listener.events-tcp.so_rcvbuf=64KiB")
    tell(folder, "hang")
    data = lines(0, 12_000)
    sender = threading.Thread(target=send_paced, args=(pipe, 0, 12_000), daemon=True)
    sender.start()
    accepted = stands_still(pipe)
    assert sender.is_alive()
    assert 1000 < accepted < 6000
    tell(folder, "good")
    sender.join(60)
    until(lambda: pipe.counts(TCP)["accepted"] == 12_000, 60)
    balance = pipe.settled(60)
    check_others(pipe, balance, 12_000)
    own = route(balance, "wayward")
    assert (own["delivered"], own["policy_drop"], balance["unaccounted"]) == (12_000, 0, 0)
    assert (folder / "taken").read_bytes() == data


KAFKA = {
    "type": "kafka",
    "default_topic": "",
    "producer": {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1000},
}


def test_tags_route_and_a_kafka_that_is_not_there_fails(pipes: Callable[..., Pipe]) -> None:
    handlers = toml([{"type": "log", "topic": "events"}, KAFKA])
    pipe = pipes(f"listener.events-udp.handlers={handlers}", "log.max_topics=3")
    tags = [["kt:asked", "pk:k"], ["kt:Bad Name"], ["kt:third"], ["kt:one-too-many"], []]
    for number, each in enumerate(tags):
        pipe.datagrams(*fragment(b"%d" % number, number, tags=each))
    until(lambda: pipe.counts(UDP)["accepted"] == 5)
    until(lambda: route(pipe.balance(), "kafka", UDP)["handler_failed"] == 3, 60)
    balance = pipe.settled()
    assert {topic["topic"]: topic["logged"] for topic in balance["topics"]} == {"events": 3, "asked": 1, "third": 1}
    assert pipe.counts(UDP)["kt_refused"] == 2
    log, kafka = route(balance, "log", UDP), route(balance, "kafka", UDP)
    assert (log["accepted"], log["delivered"]) == (5, 5)
    assert (kafka["accepted"], kafka["handler_failed"], kafka["policy_drop"]) == (
        5,
        3,
        2,
    )  # no topic of Kafka's: dropped
    assert balance["unaccounted"] == 0
    until(lambda: handler_of(pipe.statistics(UDP), "kafka").get("failed_to_send") == 3)
    assert handler_of(pipe.statistics(UDP), "kafka")["kafka"]["failedSendRate"]["count"] == 3
    requested = [entry.get("annotations", {}).get("kt") for entry in logged(pipe)]
    assert sorted(filter(None, requested)) == ["Bad Name", "one-too-many"]


def logged(pipe: Pipe) -> list[dict[str, Any]]:
    found = pipe.get("/topic/events/logs?max_messages=10")["logs"]
    assert isinstance(found, list)
    return found


def test_what_waits_for_a_listener_that_is_gone_is_logged_and_shown(pipes: Callable[..., Pipe], folder: Path) -> None:
    pipe = pipes(wayward(folder))
    pipe.lines(lines(0, 3))
    until(lambda: pipe.counts(TCP)["accepted"] == 3)
    pipe.settled()
    tell(folder, "hang")
    pipe.signal("log daemon", signal.SIGSTOP)
    pipe.lines(lines(3, 4))
    buffer = pipe.data_dir / "buffers" / f"{TCP}.logbuffer"
    until(lambda: b"000006" in buffer.read_bytes())
    pipe.signal("log daemon", signal.SIGCONT)
    pipe.kill_all()
    pipe.overrides = [o for o in pipe.overrides if not o.startswith("listener.")]
    only = toml([{"name": "other", "protocol": "udp", "port": 0, "defrag": {"max_size": 16384}}])
    file = folder / "other.toml"
    file.write_text(f"listener = {only}\n")
    pipe.config = file
    pipe.start()
    until(lambda: pipe.counts(TCP)["accepted"] == 7)
    balance = pipe.settled()
    assert route(balance, "log")["delivered"] == 7
    own = route(balance, "wayward")
    assert own["accepted"] == own["delivered"] + own["policy_drop"] + own["handler_failed"] == 7
    assert balance["unaccounted"] == 0
