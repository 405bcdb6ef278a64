"""Login to the console of a protected daemon in a real browser, and access without a login."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from penstock.testing.pipe import Pipe, until
from tests.system.browser import browser
from tests.system.console_process import WAIT, opened, running_console

WATCHER, WRITER = "the secret of the watcher", "the secret of the writer"


@pytest.fixture(scope="module")
def closed_pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    pipe = Pipe(
        tmp_path_factory.mktemp("closed"),
        f"security.tokens.watcher.token={WATCHER}",
        "security.tokens.watcher.monitor=true",
        'security.tokens.watcher.read=["open-*"]',
        f"security.tokens.writer.token={WRITER}",
        'security.tokens.writer.write=["*"]',
    )
    pipe.start(wait=False)
    until(lambda: _status(pipe) == 401, 60, f"the daemon answers, see {pipe.output}")
    for topic in ("open-a", "payroll"):
        sent = {"logs": [{"raw_bytes": "eA=="}]}
        headers = {"Authorization": f"Bearer {WRITER}"}
        httpx.post(f"http://{pipe.http}/topic/{topic}/logs", json=sent, headers=headers).raise_for_status()
    yield pipe
    pipe.stop()


def _status(pipe: Pipe) -> int:
    try:
        return httpx.get(f"http://{pipe.http}/topics", timeout=5).status_code
    except httpx.TransportError:
        return 0


@pytest.fixture(scope="module")
def console(closed_pipe: Pipe) -> Iterator[str]:
    with running_console(closed_pipe) as address:
        yield address


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


def test_token_with_the_right_to_watch_logs_in_and_sees_its_topics(
    console: str, chromium: Browser, tmp_path: Path
) -> None:
    page, wrong = opened(chromium, console)
    expect(page).to_have_url(f"{console}/login")
    page.screenshot(path=tmp_path / "login.png")
    for secret, alert_text in (("nobody's secret", "is unknown"), (WRITER, "lacks the right to watch")):
        page.get_by_label("Token").fill(secret)
        with page.expect_console_message(lambda message: message.type == "error"):  # told a little later, at times
            page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text(alert_text)
    page.get_by_label("Token").fill(WATCHER)
    wrong.clear()  # the browser reports the refusals
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("No message")).to_be_visible(timeout=WAIT)
    page.goto(f"{console}/topics")
    expect(page.get_by_role("link", name="open-a")).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("payroll")).to_have_count(0)
    page.get_by_label("topic", exact=True).fill("open-a")
    page.get_by_role("button", name="send").click()
    expect(page.get_by_role("alert").filter(has_text="may not be written")).to_be_visible(timeout=WAIT)
    page.goto(f"{console}/topic/payroll?q=x")
    expect(page.get_by_role("alert").filter(has_text="may not be read")).to_be_visible(timeout=WAIT)
    page.goto(f"{console}/quarantine?topic=payroll")
    expect(page.get_by_text("No messages.")).to_be_visible(timeout=WAIT)
    assert wrong == []
    assert WATCHER not in json.dumps(page.context.cookies())
    page.get_by_role("link", name="Log out").click()
    expect(page).to_have_url(f"{console}/login")
    page.goto(f"{console}/topics")
    expect(page).to_have_url(f"{console}/login")


def test_pages_need_a_session(console: str) -> None:
    paths = ["/", "/topics", "/topic/payroll", "/configuration", "/_nicegui_ws/socket.io/?EIO=4&transport=polling"]
    with httpx.Client(base_url=console) as client:
        assert {client.get(path).status_code for path in paths} == {401}
        assert {client.get(path, headers={"cookie": "penstock_console=guessed"}).status_code for path in paths} == {401}
        assert client.get("/", headers={"accept": "text/html"}).headers["location"] == "/login"


def test_pages_cannot_be_framed(console: str) -> None:
    for path in ("/", "/login", "/topic/t", "/nowhere", "/_nicegui/nothing.js"):
        answer = httpx.get(console + path, headers={"accept": "text/html"})
        assert answer.headers["x-frame-options"] == "DENY", path
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], path


def test_foreign_origins_and_host_names_are_refused(console: str) -> None:
    with httpx.Client(base_url=console) as client:
        assert client.get("/login", headers={"host": "evil.example"}).status_code == 403
        assert client.post("/login", headers={"origin": "http://evil.example"}).status_code == 403
