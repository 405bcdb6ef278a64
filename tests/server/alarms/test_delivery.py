"""Hooks are told, again where they fail, for a while; who tells never waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from penstock.config.keys.alarms import AlarmsConfig
from penstock.server.alarms import delivery as module
from penstock.server.alarms.delivery import MOST_WAITING, AlarmDelivery


class Hook(HTTPServer):
    """Answers with the statuses it is given, then with 200; keeps what was posted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.statuses: list[int] = []
        self.got: list[dict[str, object]] = []


class Answer(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.end_headers()

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
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)


def to(hook: Hook, **more: float) -> AlarmDelivery:
    return AlarmDelivery(AlarmsConfig(webhook=f"http://127.0.0.1:{hook.server_port}/alarms", **more))


def test_a_webhook_that_fails_is_told_again_until_it_takes_it(hook: Hook) -> None:
    hook.statuses = [500, 503]
    delivery = to(hook)
    delivery.deliver({"alarm": "A"})
    assert hook.got == [{"alarm": "A"}] * 3
    assert delivery.counts == {"sent": 1}


def test_one_that_goes_on_failing_is_given_up_counted_and_told(hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    hook.statuses = [500] * 100
    delivery = to(hook, retry_for=0.02)
    delivery.deliver({"alarm": "A"})
    assert delivery.counts == {"failed": 1}
    assert "alarms.webhook: an alarm was given up: HTTP Error 500" in caplog.text
    assert ({"result": "failed"}, 1) in delivery.family().samples


def test_a_command_gets_it_on_standard_input(tmp_path: Path) -> None:
    delivery = AlarmDelivery(AlarmsConfig(command=f"tee '{tmp_path / 'an alarm'}'"))
    delivery.deliver({"alarm": "A"})
    assert json.loads((tmp_path / "an alarm").read_text()) == {"alarm": "A"}


@pytest.mark.parametrize("command", ["false", "sleep 10", "/no/such/program"])
def test_a_command_that_fails_hangs_or_is_not_there_costs_that_alarm(command: str) -> None:
    delivery = AlarmDelivery(AlarmsConfig(command=command, timeout=0.2, retry_for=0))
    delivery.deliver({"alarm": "A"})
    assert delivery.counts == {"failed": 1}


def test_who_tells_does_not_wait_and_what_is_too_much_is_counted() -> None:
    delivery = AlarmDelivery(AlarmsConfig(command="sleep 10"))
    for _ in range(MOST_WAITING + 5):
        delivery.tell({})
    assert delivery.counts == {"dropped": 5}


def test_its_thread_delivers_and_ends(hook: Hook) -> None:
    delivery = to(hook)
    delivery.start()
    delivery.tell({"alarm": "A"})
    while not delivery.counts:
        delivery.join(0.01)
    delivery.stop()
    delivery.join(30)
    assert not delivery.is_alive()
    assert hook.got == [{"alarm": "A"}]
