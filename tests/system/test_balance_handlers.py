"""Whatever one handler does, its route closes and the other handlers lose nothing."""

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

import httpx
import pytest

from penstock.testing.pipe import Pipe, wait_until
from penstock.wire.plog.cutting import fragment

UDP, TCP = "events-udp", "events-tcp"
SITE = Path(__file__).parent.parent / "sinks" / "site"
LINE = b"x" * 990


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the commands of the wayward handler."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]))
    set_mode(tmp_path, "good")
    return tmp_path


def set_mode(folder: Path, mode: str) -> None:
    draft = folder / "draft"
    draft.write_text(mode)
    draft.rename(folder / "mode")


def wayward(folder: Path, **more: Any) -> str:
    """Return the override for a listener with three handlers, one of them wayward."""
    handler = {"type": "wayward", "folder": str(folder), **more}
    handlers = [{"type": "log", "topic": "events"}, {"type": "console", "format": "json"}, handler]
    return f"listener.events-tcp.handlers={toml(handlers)}"


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def route(balance: dict[str, Any], handler: str, listener: str = TCP) -> dict[str, Any]:
    (match,) = (r for r in balance["routes"] if (r["source"], r["handler"]) == (listener, handler))
    assert isinstance(match, dict)
    return match


def handler_of(statistics: dict[str, Any], name: str) -> dict[str, Any]:
    (match,) = (handler for handler in statistics["handlers"] if handler["name"] == name)
    assert isinstance(match, dict)
    return match


def timeline(pipe: Pipe) -> str:
    return "\n".join(event["text"] for event in pipe.get("/events")["events"])


def lines(first: int, count: int) -> bytes:
    return b"".join(b"%06d" % number + LINE + b"\n" for number in range(first, first + count))


def send_paced(pipe: Pipe, first: int, end: int) -> None:
    """Send lines by the thousand, each once the log and the console have all but the last few, so that neither is
    overrun.
    """
    with socket.create_connection(pipe.address(TCP)) as sock:
        for number in range(first, end, 1000):
            wait_until(lambda number=number: number < 2000 or behind(pipe, number) < 2000, 60)
            sock.sendall(lines(number, min(1000, end - number)))


def behind(pipe: Pipe, sent: int) -> int:
    # Before the first counts are posted the listener has no routes.
    delivered = {each["handler"]: each["delivered"] for each in pipe.balance()["routes"] if each["source"] == TCP}
    return sent - min(delivered.get(handler, 0) for handler in ("log", "console"))


def wait_for_stop(pipe: Pipe) -> int:
    """Return the number of accepted lines once it exceeds a thousand and stops growing."""
    seen: list[int] = []

    def still() -> bool:
        seen.append(pipe.counts(TCP)["accepted"])
        return len(seen) > 12 and seen[-1] > 1000 and len(set(seen[-12:])) == 1

    wait_until(still)
    return seen[-1]


def printed(pipe: Pipe, listener: str = TCP) -> list[bytes]:
    """Return the payloads that the console handler wrote."""
    text = pipe.output.read_text()
    entries = [json.loads(line) for line in text.splitlines() if line.startswith('{"listener"')]
    return [base64.b64decode(entry["payload_b64"]) for entry in entries if entry["listener"] == listener]


def check_others(pipe: Pipe, balance: dict[str, Any], sent: int) -> None:
    """Check that the log and the console have all lines in order."""
    for handler in ("log", "console"):
        other_route = route(balance, handler)
        assert (other_route["accepted"], other_route["delivered"], other_route["unaccounted"]) == (sent, sent, 0), (
            handler
        )
    assert [payload[:6] for payload in printed(pipe)] == [b"%06d" % number for number in range(sent)]


def test_each_handler_has_a_route_and_all_messages(pipes: Callable[..., Pipe], folder: Path) -> None:
    pipe = pipes(wayward(folder))
    pipe.lines(lines(0, 50))
    wait_until(lambda: pipe.counts(TCP)["accepted"] == 50)
    balance = pipe.settled()
    check_others(pipe, balance, 50)
    wayward_route = route(balance, "wayward")
    assert (wayward_route["accepted"], wayward_route["delivered"], balance["unaccounted"]) == (50, 50, 0)
    wait_until(lambda: handler_of(pipe.statistics(TCP), "wayward").get("bytes") == 50 * 997)
    pipe.stop()
    assert (folder / "closed").exists()


def test_messages_that_raise_in_a_handler_have_failed(pipes: Callable[..., Pipe], folder: Path) -> None:
    pipe = pipes(wayward(folder))
    set_mode(folder, "raise")
    pipe.lines(lines(0, 20))
    wait_until(lambda: route(pipe.balance(), "wayward")["handler_failed"] == 20)
    set_mode(folder, "good")
    pipe.lines(lines(20, 5))
    wait_until(lambda: pipe.counts(TCP)["accepted"] == 25)
    balance = pipe.settled()
    check_others(pipe, balance, 25)
    wayward_route = route(balance, "wayward")
    assert (wayward_route["delivered"], wayward_route["handler_failed"], balance["unaccounted"]) == (5, 20, 0)
    assert "ValueError: it does not like them" in pipe.output.read_text()


@pytest.mark.parametrize(("mode", "log_text"), [("hang", "took longer than 5 s"), ("exit", "ended over a batch")])
def test_batch_that_its_handler_never_survives_has_failed(
    pipes: Callable[..., Pipe], folder: Path, mode: str, log_text: str
) -> None:
    pipe = pipes(wayward(folder, timeout=5))  # long enough for the batch that it survives, on a busy machine
    set_mode(folder, mode)
    pipe.lines(lines(0, 20))
    wait_until(lambda: route(pipe.balance(), "wayward")["handler_failed"] == 20, 60)
    set_mode(folder, "good")
    pipe.lines(lines(20, 5))
    wait_until(lambda: pipe.counts(TCP)["accepted"] == 25)
    balance = pipe.settled()
    check_others(pipe, balance, 25)
    wayward_route = route(balance, "wayward")
    assert (wayward_route["delivered"], wayward_route["handler_failed"], balance["unaccounted"]) == (5, 20, 0)
    assert log_text in pipe.output.read_text()


@pytest.mark.survives("handlers", "SIGKILL")
def test_repeatedly_killed_handler_counts_each_message_once(pipes: Callable[..., Pipe], folder: Path) -> None:
    pipe = pipes(wayward(folder))
    with socket.create_connection(pipe.address(TCP)) as sock:
        for first in range(0, 600, 20):
            sock.sendall(lines(first, 20))
            if first % 120 == 60:
                pipe.kill(f"forwarder {TCP} wayward")
            assert pipe.balance()["unaccounted"] == 0
    wait_until(lambda: pipe.counts(TCP)["accepted"] == 600)
    balance = pipe.settled(60)
    check_others(pipe, balance, 600)
    wayward_route = route(balance, "wayward")
    assert (
        wayward_route["accepted"],
        wayward_route["delivered"] + wayward_route["handler_failed"],
        balance["unaccounted"],
    ) == (600, 600, 0)
    delivered = (folder / "taken").read_bytes().split()
    assert len(set(delivered)) >= wayward_route["delivered"]


@pytest.fixture(params=["hangs", "is stopped"])
def stuck(request: pytest.FixtureRequest, pipes: Callable[..., Pipe], folder: Path) -> Iterator[Pipe]:
    """A pipe whose wayward handler has stopped working."""
    pipe = pipes(wayward(folder, timeout=600))
    pipe.lines(lines(0, 1))
    wait_until(lambda: pipe.counts(TCP)["accepted"] == 1)
    pipe.settled()
    if request.param == "is stopped":
        with pipe.paused(f"forwarder {TCP} wayward"):
            yield pipe
    else:
        set_mode(folder, "hang")
        yield pipe
        set_mode(folder, "good")


@pytest.mark.survives("handlers", "slow peer")
def test_slow_handler_drops_by_policy_without_cost_for_other_handlers(stuck: Pipe, folder: Path) -> None:
    send_paced(stuck, 1, 8001)
    wait_until(lambda: stuck.counts(TCP)["accepted"] == 8001, 60)
    wait_until(lambda: route(stuck.balance(), "console")["delivered"] == 8001, 60)
    wait_until(lambda: route(stuck.balance(), "log")["delivered"] == 8001, 60)
    balance = stuck.balance()
    wayward_route = route(balance, "wayward")
    assert wayward_route["policy_drop"] > 3000
    assert wayward_route["in_buffer"] > 0
    assert balance["unaccounted"] == 0
    check_others(stuck, balance, 8001)
    process = f"forwarder {TCP} wayward"
    wait_until(lambda: list(stuck.balance()["silent"]) == [process], what="it counts as silent")
    wait_until(lambda: f"{process} is silent" in timeline(stuck), what="its silence is recorded")
    assert handler_of(stuck.get("/stat")["listeners"][TCP], "wayward")["pid"] == stuck.pid(process)
    sample = f'penstock_forwarder_silent_seconds{{listener="{TCP}",handler="wayward"}} '
    text = httpx.get(f"http://{stuck.http}/metrics", timeout=30).text
    assert [float(line.removeprefix(sample)) > 3 for line in text.splitlines() if line.startswith(sample)] == [True]
    set_mode(folder, "good")
    stuck.signal(process, signal.SIGCONT)
    wait_until(lambda: f"{process} was silent for" in timeline(stuck), what="its return is recorded")
    assert process not in stuck.balance()["silent"]
    wayward_route = route(stuck.settled(60), "wayward")
    assert (
        wayward_route["accepted"],
        wayward_route["delivered"] + wayward_route["policy_drop"],
        wayward_route["unaccounted"],
    ) == (8001, 8001, 0)
    assert (folder / "taken").read_bytes().endswith(lines(8000, 1))


@pytest.mark.survives("connections", "slow peer")
def test_blocking_handler_stops_the_senders_and_loses_nothing(pipes: Callable[..., Pipe], folder: Path) -> None:
    pipe = pipes(wayward(folder, overflow="block", timeout=600), "listener.events-tcp.so_rcvbuf=64KiB")
    set_mode(folder, "hang")
    data = lines(0, 12_000)
    sender = threading.Thread(target=send_paced, args=(pipe, 0, 12_000), daemon=True)
    sender.start()
    accepted = wait_for_stop(pipe)
    assert sender.is_alive()
    assert 1000 < accepted < 6000
    set_mode(folder, "good")
    sender.join(60)
    wait_until(lambda: pipe.counts(TCP)["accepted"] == 12_000, 60)
    balance = pipe.settled(60)
    check_others(pipe, balance, 12_000)
    wayward_route = route(balance, "wayward")
    assert (wayward_route["delivered"], wayward_route["policy_drop"], balance["unaccounted"]) == (12_000, 0, 0)
    assert (folder / "taken").read_bytes() == data


KAFKA = {
    "type": "kafka",
    "default_topic": "",
    "producer": {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1000},
}


@pytest.mark.survives("handlers", "peer away")
def test_tags_route_messages_and_a_missing_kafka_fails(pipes: Callable[..., Pipe]) -> None:
    handlers = toml([{"type": "log", "topic": "events"}, KAFKA])
    pipe = pipes(f"listener.events-udp.handlers={handlers}", "log.max_topics=3")
    tags = [["kt:asked", "pk:k"], ["kt:Bad Name"], ["kt:third"], ["kt:one-too-many"], []]
    for number, each in enumerate(tags):
        pipe.datagrams(*fragment(b"%d" % number, number, tags=each))
    wait_until(lambda: pipe.counts(UDP)["accepted"] == 5)
    wait_until(lambda: route(pipe.balance(), "kafka", UDP)["handler_failed"] == 3, 60)
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
    wait_until(lambda: handler_of(pipe.statistics(UDP), "kafka").get("failed_to_send") == 3)
    assert handler_of(pipe.statistics(UDP), "kafka")["kafka"]["failedSendRate"]["count"] == 3
    requested = [entry.get("annotations", {}).get("kt") for entry in logged(pipe)]
    assert sorted(filter(None, requested)) == ["Bad Name", "one-too-many"]


def logged(pipe: Pipe) -> list[dict[str, Any]]:
    entries = pipe.get("/topic/events/logs?max_messages=10")["logs"]
    assert isinstance(entries, list)
    return entries


@pytest.mark.survives("handlers", "changed configuration")
def test_messages_waiting_for_a_removed_listener_are_logged_and_shown(pipes: Callable[..., Pipe], folder: Path) -> None:
    pipe = pipes(wayward(folder))
    pipe.lines(lines(0, 3))
    wait_until(lambda: pipe.counts(TCP)["accepted"] == 3)
    pipe.settled()
    set_mode(folder, "hang")
    pipe.signal("log daemon", signal.SIGSTOP)
    pipe.lines(lines(3, 4))
    buffer = pipe.data_dir / "buffers" / f"{TCP}.logbuffer"
    wait_until(lambda: b"000006" in buffer.read_bytes())
    pipe.signal("log daemon", signal.SIGCONT)
    pipe.kill_all()
    pipe.overrides = [o for o in pipe.overrides if not o.startswith("listener.")]
    only = toml([{"name": "other", "protocol": "udp", "port": 0, "defrag": {"max_size": 16384}}])
    file = folder / "other.toml"
    file.write_text(f"listener = {only}\n")
    pipe.config = file
    pipe.start()
    wait_until(lambda: pipe.counts(TCP)["accepted"] == 7)
    balance = pipe.settled()
    assert route(balance, "log")["delivered"] == 7
    wayward_route = route(balance, "wayward")
    assert (
        wayward_route["accepted"]
        == wayward_route["delivered"] + wayward_route["policy_drop"] + wayward_route["handler_failed"]
        == 7
    )
    assert balance["unaccounted"] == 0
