"""Delivery of alarms with retries; a slow destination delays nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.config.keys.alarms import AlarmsConfig
from penstock.process.kernel import descendants
from penstock.server.alarms import delivery as module
from penstock.server.alarms.delivery import FAILED, MAX_UNFINISHED, REMOVED, SENT, AlarmDelivery
from penstock.server.alarms.templates import pagerduty_event, slack_message
from penstock.testing.pipe import free_ports, wait_until
from penstock.testing.processes import alive
from tests.server.alarms.slow_resolver import RESOLVES_AFTER_S

ALARM = {"alarm": "A", "labels": {"listener": "in"}}
WHOLE_ALARM = {
    **ALARM,
    "state": "begins",
    "severity": "critical",
    "summary": "7 messages lost",
    "value": 7,
    "advice": "",
    "at": "2026-11-22T01:15:20+00:00",
    "host": "web-1",
    "receipt": "7 lost of 9",
}


class Hook(ThreadingHTTPServer):
    """A webhook that answers with the given statuses, then with 200, and records requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.statuses: list[int] = []
        self.requests: list[tuple[str, str, object]] = []

    @property
    def bodies(self) -> list[object]:
        return [body for _, _, body in self.requests]


class Answer(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.path, json.loads(body or "null")))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/internal")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)


@contextmanager
def delivering(config: AlarmsConfig) -> Iterator[AlarmDelivery]:
    delivery = AlarmDelivery(config)
    delivery.start()
    yield delivery
    delivery.stop()
    delivery.join(30)
    assert not delivery.is_alive()


def address(hook: Hook, path: str = "/alarms") -> str:
    return f"http://127.0.0.1:{hook.server_port}{path}"


def delivered(config: AlarmsConfig, *messages: dict[str, object]) -> dict[str, int]:
    """Deliver messages; return the counts when all are done."""
    with delivering(config) as delivery:
        for message in messages:
            delivery.enqueue(message)
        destinations = bool(config.webhook) + bool(config.command)
        wait_until(lambda: sum(delivery.counts.values()) >= len(messages) * destinations)
        return dict(delivery.counts)


def test_webhook_is_retried_until_it_accepts_the_alarm(hook: Hook) -> None:
    hook.statuses = [500, 503]
    assert delivered(AlarmsConfig(webhook=address(hook)), ALARM) == {"sent": 1}
    assert hook.requests == [("POST", "/alarms", ALARM)] * 3


def test_slack_and_pagerduty_get_their_own_forms(hook: Hook) -> None:
    config = AlarmsConfig(
        slack=address(hook, "/services/T0/B0/x"), pagerduty="routing-key", pagerduty_url=address(hook, "/v2/enqueue")
    )
    assert try_once(config, WHOLE_ALARM) == {"slack": "", "pagerduty": ""}
    (_, slack_path, slack), (_, pagerduty_path, event) = hook.requests
    assert (slack_path, pagerduty_path) == ("/services/T0/B0/x", "/v2/enqueue")
    assert slack == slack_message(WHOLE_ALARM)
    assert event == pagerduty_event(WHOLE_ALARM, "routing-key")


def test_error_of_one_destination_keeps_the_others_and_hides_secrets(hook: Hook) -> None:
    (closed_port,) = free_ports(1)
    config = AlarmsConfig(webhook=address(hook), slack=f"http://127.0.0.1:{closed_port}/services/secret")
    hook.statuses = [404]
    errors = try_once(config, WHOLE_ALARM)
    assert errors["webhook"] == "HTTP status 404"
    assert errors["slack"]
    assert "secret" not in errors["slack"]


def try_once(config: AlarmsConfig, alarm: dict[str, object]) -> dict[str, str]:
    return asyncio.run(AlarmDelivery(config).try_once(alarm))


@pytest.mark.survives("alarms", "peer away")
def test_failing_webhook_is_given_up_counted_and_logged(hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    hook.statuses = [500] * 100
    config = AlarmsConfig(webhook=address(hook), retry_for=0.02)
    with delivering(config) as delivery:
        delivery.enqueue(ALARM)
        wait_until(lambda: delivery.counts)
        assert ({"result": "failed"}, 1) in delivery.family().samples
    assert "alarms.webhook: gave up an alarm: HTTP status 500" in caplog.text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_of_webhook_is_a_failure(hook: Hook, status: int) -> None:
    hook.statuses = [status]
    assert delivered(AlarmsConfig(webhook=address(hook), retry_for=0), ALARM) == {"failed": 1}
    assert hook.requests == [("POST", "/alarms", ALARM)]


@contextmanager
def trickling(first: bytes) -> Iterator[str]:
    """A server that sends ``first`` and then a byte now and then, forever."""
    stop = threading.Event()

    def trickle(connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(first)
                while not stop.wait(0.05):
                    connection.sendall(b"a")
            except OSError:
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while not stop.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=trickle, args=[connection], daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        stop.set()
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.mark.survives("alarms", "slow peer")
@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_slow_webhook_is_given_up_at_the_deadline(first: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with trickling(first) as webhook:
        begin = time.monotonic()
        assert delivered(AlarmsConfig(webhook=webhook, timeout=0.3, retry_for=0), ALARM) == {"failed": 1}
        assert time.monotonic() - begin < 10
    if first.startswith(b"HTTP"):
        assert "no answer within 0.3 s" in caplog.text


def delivery_processes() -> list[int]:
    """Return the processes of this one that deliver alarms; the process that runs tests has others, such as Spark's."""
    found = []
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            if b"alarms.delivery_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def test_dripping_mail_servers_do_not_delay_webhooks_and_leave_nothing_behind(hook: Hook) -> None:
    # More mails than asyncio's default pool has threads, which the resolver needs for the webhook.
    alarms = [{**WHOLE_ALARM, "labels": {"listener": str(number)}} for number in range(40)]
    threads = set(threading.enumerate())
    with trickling(b"220-") as server:
        config = AlarmsConfig(
            smtp=server.replace("http:", "smtp:").rstrip("/"),
            mail_from="a@x.org",
            mail_to=("b@x.org",),
            webhook=address(hook),
            timeout=60,
        )
        begin = time.monotonic()
        with delivering(config) as delivery:
            for alarm in alarms:
                delivery.enqueue(alarm)
            wait_until(lambda: delivery.counts == {"sent": 40}, 30, "all webhooks are delivered")
            wait_until(delivery_processes, what="mails are being sent")
        assert time.monotonic() - begin < 50, "a stop does not wait for mails"
        assert len(hook.bodies) == 40
    wait_until(lambda: not delivery_processes(), what="the processes that sent mail end")
    wait_until(lambda: set(threading.enumerate()) <= threads, what="no thread stays")


def test_slow_resolver_delays_neither_other_destinations_nor_a_stop(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.server.alarms.slow_resolver"]
    root = Path(__file__).parents[3]
    completed = subprocess.run(
        program,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not completed.returncode, completed.stderr
    seconds = json.loads(completed.stdout)
    assert seconds["others"] < RESOLVES_AFTER_S
    assert seconds["stop"] < RESOLVES_AFTER_S


def test_hanging_webhook_delays_neither_command_nor_other_alarms(tmp_path: Path) -> None:
    file = tmp_path / "alarms"
    with (
        trickling(b"HTTP/1.1 200 OK\r\nX: ") as webhook,
        delivering(AlarmsConfig(webhook=webhook, command=f"tee -a {file}", timeout=60)) as delivery,
    ):
        for alarm in ("A", "B", "C"):
            delivery.enqueue({"alarm": alarm})
        wait_until(lambda: delivery.counts == {"sent": 3}, 20)


def test_alarm_end_is_delivered_after_its_begin(hook: Hook) -> None:
    hook.statuses = [500]
    messages = [{"alarm": "A", "labels": {}, "state": state} for state in ("begins", "ends")]
    assert delivered(AlarmsConfig(webhook=address(hook)), *messages) == {"sent": 2}
    assert hook.bodies == [messages[0], messages[0], messages[1]]


def test_command_receives_alarm_on_standard_input(tmp_path: Path) -> None:
    assert delivered(AlarmsConfig(command=f"tee '{tmp_path / 'an alarm'}'"), ALARM) == {"sent": 1}
    assert json.loads((tmp_path / "an alarm").read_text()) == ALARM


@pytest.mark.parametrize("command", ["false", "sleep 10", "/no/such/program", "yes"])
def test_failing_command_loses_only_its_alarm(command: str) -> None:
    assert delivered(AlarmsConfig(command=command, timeout=0.2, retry_for=0), ALARM) == {"failed": 1}


def test_command_without_input_is_judged_by_its_status() -> None:
    assert delivered(AlarmsConfig(command="true"), ALARM | {"receipt": "x" * 1_000_000}) == {"sent": 1}


def test_command_output_takes_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for command in ("yes", "sh -c 'yes >&2'"):
        delivered(AlarmsConfig(command=command, timeout=0.5, retry_for=0), ALARM)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


@pytest.mark.parametrize("rest", ["", "; sleep 300"])
def test_children_of_command_end_with_it(tmp_path: Path, rest: str) -> None:
    file = tmp_path / "pid"
    command = f"sh -c 'sleep 300 & echo $! > {file}{rest}'"
    counts = delivered(AlarmsConfig(command=command, timeout=5 if not rest else 1, retry_for=0), ALARM)
    assert counts == ({"failed": 1} if rest else {"sent": 1})
    wait_until(lambda: not alive(int(file.read_text())), 10)


def test_failure_of_command_names_its_last_line(caplog: pytest.LogCaptureFixture) -> None:
    command = (
        """sh -c 'i=0; while [ $i -lt 20000 ]; do echo "line $i" >&2; i=$((i+1)); done; echo no route >&2; exit 7'"""
    )
    assert delivered(AlarmsConfig(command=command, timeout=30, retry_for=0), ALARM) == {"failed": 1}
    assert "status 7: no route" in caplog.text


def test_secrets_in_address_and_arguments_do_not_reach_the_log(caplog: pytest.LogCaptureFixture) -> None:
    (port,) = free_ports(1)
    webhook = f"http://127.0.0.1:{port}/services/T0/hunter2?key=hunter2"
    command = "sh -c 'echo cannot post to $0: $1 >&2; exit 1' https://hooks.example.org/hunter2 --token=hunter2"
    assert delivered(AlarmsConfig(webhook=webhook, command=command, retry_for=0), ALARM) == {"failed": 2}
    assert "alarms.webhook" in caplog.text
    assert "status 1: cannot post to" in caplog.text
    assert "hunter2" not in caplog.text


def test_no_descriptors_stay_open(hook: Hook) -> None:
    config = AlarmsConfig(webhook=address(hook), command="true", retry_for=0)
    delivered(config, ALARM)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        delivered(config, ALARM)
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before + 2, 10)


def test_enqueue_never_waits_and_counts_dropped_alarms() -> None:
    delivery = AlarmDelivery(AlarmsConfig(command="sleep 10"))
    for _ in range(MAX_UNFINISHED + 5):
        delivery.enqueue({})
    assert delivery.counts == {"dropped": 5}


def test_stop_ends_open_attempts(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with delivering(AlarmsConfig(command=f"sh -c 'echo $$ > {file}; sleep 300'", timeout=300)) as delivery:
        delivery.enqueue(ALARM)
        wait_until(lambda: file.exists() and file.read_text().strip())
    wait_until(lambda: not alive(int(file.read_text())), 10)


def test_alarm_that_is_retried_goes_to_the_new_destination(tmp_path: Path) -> None:
    tried, delivered_to = tmp_path / "tried", tmp_path / "delivered"
    with delivering(AlarmsConfig(command=f"sh -c 'touch {tried}; exit 1'", retry_for=300)) as delivery:
        delivery.enqueue(ALARM)
        wait_until(tried.exists)
        delivery.replace(AlarmsConfig(command=f"touch {delivered_to}", retry_for=300))
        wait_until(lambda: delivery.counts["sent"])
    assert delivered_to.exists()


def test_alarm_for_a_removed_destination_is_given_up(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    with delivering(AlarmsConfig(command=f"sh -c 'touch {tried}; exit 1'", retry_for=300)) as delivery:
        delivery.enqueue(ALARM)
        wait_until(tried.exists)
        delivery.replace(AlarmsConfig())
        wait_until(lambda: delivery.counts["failed"])
    assert dict(delivery.counts) == {"failed": 1}


@pytest.mark.parametrize(
    ("config", "outcome"),
    [
        (AlarmsConfig(command="true"), SENT),
        (AlarmsConfig(command="false", retry_for=0), FAILED),
        (AlarmsConfig(command="true", webhook="http://127.0.0.1:9/", retry_for=0), FAILED),
        (AlarmsConfig(), REMOVED),
    ],
)
def test_finished_delivery_has_the_outcome_of_all_destinations(config: AlarmsConfig, outcome: str) -> None:
    finished: list[tuple[object, str]] = []
    with delivering(config) as delivery:
        delivery.on_finished = lambda *message_and_outcome: finished.append(message_and_outcome)
        delivery.enqueue(ALARM)
        wait_until(lambda: finished)
    assert finished == [(ALARM, outcome)]


def test_removed_destination_leaves_the_outcome_to_the_others(tmp_path: Path) -> None:
    tried, finished = tmp_path / "tried", list[str]()
    both = AlarmsConfig(command=f"sh -c 'touch {tried}; exit 1'", webhook="http://127.0.0.1:9/", retry_for=300)
    with delivering(both) as delivery:
        delivery.on_finished = lambda _, outcome: finished.append(outcome)
        delivery.enqueue(ALARM)
        wait_until(tried.exists)
        delivery.replace(AlarmsConfig(command="true", retry_for=300))
        wait_until(lambda: finished)
    assert finished == [SENT]
