"""A loss has one number wherever people look: page, commands, API; and the timeline says what it came from."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from penstock.ledger.receipt import receipt
from penstock.testing.pipe import Pipe, until
from tests.system.browser import browser
from tests.system.console_process import WAIT, opened, running_console

KILLED = "receiver events-udp was killed by SIGKILL, back after"


@contextmanager
def load(pipe: Pipe) -> Iterator[list[int]]:
    """Datagrams all the while, some tens of thousands a second; how many, once it has ended."""
    address, sent, stop = pipe.address("events-udp"), [0], threading.Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            while not stop.is_set():
                for _ in range(50):
                    sock.sendto(b"x" * 100, address)
                sent[0] += 50
                time.sleep(0.005)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()


def command(pipe: Pipe, *words: str) -> str:
    return pipe.run(sys.executable, "-m", "penstock.cli.main", *words)


def killed_under_load(pipe: Pipe) -> int:
    """How many datagrams were sent while a receiver was killed, and came back."""
    with load(pipe) as sent:
        until(lambda: pipe.counts("events-udp")["accepted"], what="messages arrive")
        pipe.signal("receiver events-udp", signal.SIGKILL)
        until(lambda: "meanwhile" in happened(pipe), what="the loss is named in the timeline")
    until(lambda: receipt(pipe.balance()).sent == sent[0], what="all that was sent is on the receipt")
    pipe.settled()
    return sent[0]


def happened(pipe: Pipe) -> str:
    events: list[dict[str, Any]] = pipe.get("/events")["events"]
    return "\n".join(event["text"] for event in events)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    made = Pipe(tmp_path, "listener.events-udp.so_rcvbuf=64KiB")
    made.start()
    yield made
    made.stop()


def names_it(page: Page, lost: str) -> None:
    """Headline, bar, picture, timeline, findings and chart say the same number."""
    expect(page.locator(".verdict")).to_have_text(f"Every message is accounted for; {lost} are lost", timeout=WAIT)
    expect(page.locator(".chip", has_text="lost")).to_contain_text(lost, timeout=WAIT)
    expect(page.locator(".segment[title=lost]")).to_be_visible(timeout=WAIT)
    expect(page.locator("svg.pipe .leak", has_text=f"{lost} lost")).to_be_visible(timeout=WAIT)
    expect(page.locator(".event", has_text=KILLED)).to_be_visible(timeout=WAIT)
    expect(page.locator(".finding", has_text=f"events-udp: {lost} lost within the hour")).to_be_visible(timeout=WAIT)
    expect(page.locator(".chart-lost")).to_have_text(f"{lost} lost within 1 hour", timeout=WAIT)
    page.locator(".chip", has_text="lost").click()
    opened_part = page.locator(".finding", has_text="datagrams that the kernel dropped").first
    expect(opened_part).to_contain_text(lost, timeout=WAIT)


def test_a_killed_receiver_s_loss_is_one_number_everywhere(pipe: Pipe, tmp_path: Path) -> None:
    with running_console(pipe) as console, browser() as chromium:
        looks = [(1280, False), (1280, True), (390, False)]
        pages = [opened(chromium, console, width=width, dark=dark) for width, dark in looks]
        sent = killed_under_load(pipe)
        told = receipt(pipe.balance())
        assert (told.sent, told.lost > 0, told.parts["unaccounted"]) == (sent, True, 0)
        for number, (page, wrong) in enumerate(pages):
            names_it(page, f"{told.lost:,}")
            page.screenshot(path=tmp_path / f"receipt-{number}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= looks[number][0] + 1
            assert wrong == []
    said = command(pipe, "balance").splitlines()
    assert said[0] == f"Every message is accounted for; {told.lost:,} are lost"
    assert (len(said) <= 6, max(map(len, said)) <= 80) == (True, True)
    events = [json.loads(line) for line in command(pipe, "events", "--json").splitlines()]
    assert sum(sum(event["lost"].values()) for event in events) == told.lost


def test_the_timeline_outlives_every_process(pipe: Pipe) -> None:
    pipe.kill("log daemon")
    until(lambda: "log daemon was killed by SIGKILL, back after" in happened(pipe), what="the daemon is back")
    pipe.kill_all()
    pipe.start()
    until(lambda: "penstock started: the one before it was not stopped, but killed" in happened(pipe))
    pipe.stop()
    pipe.start()
    until(lambda: len(pipe.get("/events")["events"]) >= 5, what="the start is told")
    lines = [line.split(" ", 1)[1] for line in command(pipe, "events").splitlines()]
    assert lines[0] == "penstock started"
    assert lines[1].startswith("log daemon was killed by SIGKILL, back after ")
    assert lines[2:] == [
        "penstock started: the one before it was not stopped, but killed",
        "penstock stopped",
        "penstock started",
    ]


def test_a_reload_is_told_with_what_it_changed(pipe: Pipe) -> None:
    assert pipe.process
    pipe.process.send_signal(signal.SIGHUP)
    said = "the configuration is reloaded: nothing has changed"
    until(lambda: said in happened(pipe), what="the reload is told")
