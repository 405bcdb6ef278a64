"""The first steps of a new user in a real browser, in the light theme and in the dark theme on a phone, with one pipe.
A message is sent and found, a loss is named, quarantined messages are repaired and sent again.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from penstock.console.components.theme import REFRESH_INTERVAL_S
from penstock.console.daemon_poll import POLL_INTERVAL_S
from penstock.console.pages.overview import CHART_INTERVAL_S
from penstock.landing.table_paths import Layout
from penstock.ledger.receipt import receipt
from penstock.testing.pipe import Pipe, wait_until
from penstock.wire.plog.cutting import fragment
from tests.spark.spark_helpers import HandWritten
from tests.system.browser import browser
from tests.system.console_process import DESKTOP, PHONE, WAIT, Tab, opened, running_console, wait_live

KILLED = "receiver events-udp was killed by SIGKILL, back after"
NAMED_WITHIN = 5.0
COMMAND = (sys.executable, "-m", "penstock.cli.main")


@dataclass(frozen=True)
class Look:
    """A theme and screen of the page, with a topic and texts of its own."""

    name: str
    width: int = DESKTOP
    dark: bool = False

    @property
    def text(self) -> str:
        return f"kite <b>{self.name}</b>"

    @property
    def own_topic(self) -> str:
        """Return the topic of the sent message."""
        return f"mine-{self.name}"

    @property
    def topic(self) -> str:
        """Return the topic of quarantined messages."""
        return f"shop-{self.name}"


LOOKS = (Look("light"), Look("phone", PHONE, dark=True))
"""Each width and each theme once. All pages have both themes at both widths in test_console_walk."""


class Site:
    """A pipe with a console, and a browser with one tab for each look."""

    def __init__(self, pipe: Pipe, console: str, chromium: Browser, shots: Path) -> None:
        self.pipe, self.console, self.chromium, self._shots = pipe, console, chromium, shots
        self._tabs = {look: Tab(console, chromium) for look in LOOKS}

    @contextmanager
    def page(self, look: Look, path: str = "/") -> Iterator[Page]:
        """Open a page and check that it has no errors and is no wider than its screen."""
        page, wrong = self._tabs[look].open(path, look.width, look.dark)
        try:
            yield page
        except BaseException as error:
            error.add_note(f"{page.url} says: {page.locator('body').inner_text()} {wrong}")
            raise
        page.screenshot(
            path=self._shots / f"{path.strip('/').partition('?')[0] or 'pipe'}-{look.name}.png", full_page=True
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= look.width + 1
        assert wrong == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("newcomer")
    # As users have it: an incomplete message is on the first page before its time is over.
    defrag = "listener.events-udp.defrag.expire_time=10s"
    pipe = Pipe(folder, "listener.events-udp.so_rcvbuf=64KiB", defrag)
    rows = [
        {
            "topic": look.topic,
            "offset": 1000 + n,
            "kind": "quarantine",
            "reason": "bad_json",
            "payload": broken(look, n),
        }
        for look in LOOKS
        for n in range(3)
    ]
    HandWritten(Layout.for_tables(pipe.data_dir / "tables")).commit({}, rows)
    pipe.start()
    try:
        with running_console(pipe) as console, browser() as chromium:
            yield Site(pipe, console, chromium, folder)
    finally:
        pipe.stop()


def broken(look: Look, n: int) -> bytes:
    """Return an event with a superfluous comma."""
    return f'{{"type": "order", "uuid": "{look.name}-{n}", "timestamp": {n},}}'.encode()


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.name)
def test_message_is_sent_and_found_by_its_text(site: Site, look: Look) -> None:
    with site.page(look, "/topics") as page:
        page.get_by_label("topic", exact=True).fill(look.own_topic)
        page.get_by_label("message", exact=True).fill(look.text)
        page.get_by_label("annotations").fill("user=newcomer")
        page.get_by_role("button", name="send", exact=True).click()
        expect(page.get_by_text(f"stored as {look.own_topic}:0")).to_be_visible(timeout=WAIT)
        page.get_by_text("Penstock", exact=True).click()
        page.keyboard.press("/")
        page.keyboard.type(look.text, delay=5)
        page.keyboard.press("Enter")
        page.get_by_role("link", name=f"{look.own_topic}:0").click(timeout=WAIT)
        expect(page.locator(".verdict")).to_contain_text("has not landed yet", timeout=WAIT)
        page.get_by_role("link", name="topic", exact=True).click()
        page.wait_for_url("**/topic/**")
        wait_live(page)
        page.get_by_label("search or filter").fill("newcomer")
        page.keyboard.press("Enter")
        expect(page.get_by_text("searched 1 of 1 offsets, found 1")).to_be_visible(timeout=WAIT)
        page.locator(".tail-line", has_text=look.text).click()
        expect(page.locator("pre", has_text=look.text)).to_be_visible(timeout=WAIT)
        # An ordinary click: it needs a tab that stays in its place while the list is under the pointer.
        page.get_by_role("tab", name="headers").click()
        expect(page.get_by_role("switch", name="follow")).not_to_be_checked(timeout=WAIT)
        expect(page.locator("tr", has_text="user")).to_contain_text("newcomer", timeout=WAIT)


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.name)
def test_quarantined_messages_are_sent_again_with_a_previewed_fix(site: Site, look: Look) -> None:
    with site.page(look, "/quarantine") as page:
        page.locator("tr", has_text="bad json").get_by_role("link", name=look.topic, exact=True).click(timeout=WAIT)
        page.wait_for_url(f"**topic={look.topic}**")
        page.locator(".q-select").click()
        page.get_by_role("option", name="replace a text").click()
        page.get_by_label("text to replace", exact=True).fill(",}")
        page.get_by_label("replacement").fill("}")
        page.get_by_role("button", name="preview").click()
        expect(page.get_by_text("3 messages (")).to_contain_text(f"topic {look.topic}", timeout=WAIT)
        expect(page.locator("td .good", has_text="event")).to_have_count(3, timeout=WAIT)
        assert look.topic not in {entry["topic"] for entry in site.pipe.balance()["topics"]}, "none is sent yet"
        page.get_by_role("button", name="send 3 back").click()
        page.get_by_role("button", name="send messages").click()
        expect(page.get_by_text("3 sent back, 0 skipped by the fix, 0 sent before")).to_be_visible(timeout=WAIT)
        page.goto(f"{site.console}/find?q={look.name}-2")
        expect(page.locator(".verdict")).to_contain_text(f"uuid {look.name}-2", timeout=WAIT)


def test_unknown_reason_is_refused_and_unknown_page_has_the_product_layout(site: Site) -> None:
    with site.page(LOOKS[0], "/quarantine?reason=nonsense") as page:
        expect(page.get_by_role("alert")).to_contain_text("the reasons are bad_json", timeout=WAIT)
    page, wrong = opened(site.chromium, site.console, "/nosuch<b>page")
    expect(page.get_by_text("No such page")).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("/nosuch<b>page")).to_be_visible(timeout=WAIT)
    assert [failure for failure in wrong if "404" not in failure] == []
    icon = page.locator("link[rel*=icon]").first.get_attribute("href") or ""
    assert "circle" in page.request.get(f"{site.console}{icon}").text()
    page.context.close()


@contextmanager
def load(pipe: Pipe) -> Iterator[list[int]]:
    """Send some tens of thousands of datagrams a second; yields a list that gets their number at the end."""
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


def killed_under_load(pipe: Pipe) -> None:
    """Kill a receiver while datagrams are sent, and wait for its return."""
    before = receipt(pipe.balance()).sent
    with load(pipe) as sent:
        wait_until(lambda: pipe.counts("events-udp")["accepted"], what="messages arrive")
        pipe.signal("receiver events-udp", signal.SIGKILL)
        wait_until(lambda: "in that time" in happened(pipe), what="the loss is named in the timeline")
    wait_until(lambda: receipt(pipe.balance()).sent == before + sent[0], what="all that was sent is on the receipt")
    pipe.settled()


def happened(pipe: Pipe) -> str:
    return "\n".join(event["text"] for event in pipe.get("/events")["events"])


def check_lost_count(page: Page, lost: str) -> None:
    """Check that headline, bar, picture, timeline, findings and chart show the same number."""
    expect(page.locator(".verdict")).to_have_text(
        re.compile(rf"^{lost} messages lost of [\d,]+, all explained$"), timeout=WAIT
    )
    expect(page.locator(".chip", has_text="lost")).to_contain_text(lost, timeout=WAIT)
    expect(page.locator(".segment[title=lost]")).to_be_visible(timeout=WAIT)
    expect(page.locator("svg.pipe:visible .leak", has_text=f"{lost} lost")).to_be_visible(timeout=WAIT)
    expect(page.locator(".event", has_text=KILLED)).to_contain_text(re.compile("in that time"), timeout=WAIT)
    expect(page.locator(".finding", has_text=f"events-udp: {lost} lost within the hour")).to_be_visible(timeout=WAIT)
    expect(page.locator(".chart-lost")).to_have_text(f"{lost} lost within 1 hour", timeout=WAIT)
    page.locator(".chip", has_text="lost").click()
    opened_part = page.locator(".finding", has_text="datagrams that the kernel dropped").first
    expect(opened_part).to_contain_text(lost, timeout=WAIT)


def test_loss_of_a_killed_receiver_is_the_same_number_everywhere(site: Site) -> None:
    assert POLL_INTERVAL_S + max(REFRESH_INTERVAL_S, CHART_INTERVAL_S) < NAMED_WITHIN, (
        "that long after the daemon knows it the page does"
    )
    pipe = site.pipe
    with site.page(LOOKS[0]) as light, site.page(LOOKS[1]) as phone:
        killed_under_load(pipe)
        summary = receipt(pipe.balance())
        assert (summary.lost > 0, summary.parts["unaccounted"]) == (True, 0)
        for page in (light, phone):
            check_lost_count(page, f"{summary.lost:,}")
    lines = pipe.run(*COMMAND, "balance").splitlines()
    assert lines[0] == f"{summary.lost:,} messages lost of {summary.sent:,}, all explained"
    assert (len(lines) <= 6, max(map(len, lines)) <= 80) == (True, True)
    events = [json.loads(line) for line in pipe.run(*COMMAND, "events", "--json").splitlines()]
    assert sum(sum(event["lost"].values()) for event in events) == summary.lost, events


def plant_kernel_drops(pipe: Pipe, page: Page) -> None:
    with pipe.paused("receiver events-udp"):
        pipe.datagrams(*[b"x" * 1000] * 2000)


def plant_stopped_receiver(pipe: Pipe, page: Page) -> None:
    with pipe.paused("receiver events-udp"):
        pipe.datagrams(*[b"x" * 1000] * 2000)
        expect(page.locator(".finding", has_text="events-udp: receiver stopped for")).to_be_visible(timeout=WAIT)


def plant_missing_fragments(pipe: Pipe, page: Page) -> None:
    pipe.datagrams(*(part for number in range(3) for part in FRAGMENTS(number)[1:]))
    waiting = "events-udp: 3 messages incomplete, only 3 fragments arrived so far"
    expect(page.locator(".finding.warn-edge", has_text=waiting)).to_be_visible(timeout=WAIT)


def plant_bad_checksum(pipe: Pipe, page: Page) -> None:
    pipe.datagrams(*(part[:16] + bytes(4) + part[20:] for number in range(3) for part in FRAGMENTS(number)))


FRAGMENTS = partial(fragment, b"damaged on the way " * 100, fragment_size=1000)
DROPPED = "datagrams that the kernel dropped: the receive buffer was full (the receive buffer holds 65,536 bytes"


@pytest.mark.parametrize(
    ("plant", "name", "meaning"),
    [
        (plant_kernel_drops, "kernel_dropped", DROPPED),
        (plant_stopped_receiver, "kernel_dropped", DROPPED),
        (plant_missing_fragments, "incomplete.expired", "messages whose fragments did not all arrive in time"),
        (plant_bad_checksum, "bad_checksum", "messages with a wrong checksum"),
    ],
)
def test_cause_of_a_planted_loss_is_on_the_first_page(
    site: Site, plant: Callable[[Pipe, Page], None], name: str, meaning: str
) -> None:
    pipe = site.pipe
    with site.page(LOOKS[0]) as page:
        before = pipe.counts("events-udp")[name]
        plant(pipe, page)
        wait_until(lambda: pipe.counts("events-udp")[name] > before, what=f"{name} is counted")
        pipe.settled()
        lost = pipe.counts("events-udp")[name]
        sentence = f"events-udp: {lost:,} lost within the hour: {meaning}"
        expect(page.locator(".finding", has_text=sentence)).to_be_visible(timeout=WAIT)
        if plant is plant_stopped_receiver:
            cause = re.compile(r"[\d,]+ dropped by the kernel while receiver events-udp was stopped for [\d.]+ s")
            expect(page.locator(".event", has_text=cause).first).to_be_visible(timeout=WAIT)
            expect(page.locator(".finding", has_text=sentence)).to_contain_text(cause, timeout=WAIT)
