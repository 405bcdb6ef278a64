"""Login to the console of a protected daemon in a real browser, and access without a login."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from penstock.testing.pipe import Pipe, wait_until
from tests.cli import command_line
from tests.server import certificates
from tests.system.browser import browser
from tests.system.console_process import WAIT, opened, running_console

PASSWORD = "the password"
WATCHER, WRITER = "the secret of the watcher", "the secret of the writer"


@pytest.fixture(scope="module")
def closed_pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    folder = tmp_path_factory.mktemp("closed")
    pipe = Pipe(
        folder,
        f"security.tokens.watcher.token={WATCHER}",
        "security.tokens.watcher.monitor=true",
        'security.tokens.watcher.read=["open-*"]',
        f"security.tokens.writer.token={WRITER}",
        'security.tokens.writer.write=["*"]',
        f"console.users={folder / 'users'}",
        "console.trusted_user_header=X-Forwarded-Email",
        'console.trusted_proxies=["127.0.0.2"]',
    )
    pipe.start(wait=False)
    wait_until(lambda: _status(pipe) == 401, 60, f"the daemon answers, see {pipe.output}")
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
            page.get_by_role("button", name="Log in").last.click()
        expect(page.get_by_role("alert")).to_contain_text(alert_text)
    page.get_by_label("Token").fill(WATCHER)
    wrong.clear()  # the browser reports the refusals
    page.get_by_role("button", name="Log in").last.click()
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


def add_user(pipe: Pipe, name: str, *options: str) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "users", "add", name, *options, *pipe.options]
    subprocess.run(command, input=f"{PASSWORD} of {name}\n", text=True, check=True, capture_output=True)


def log_in(page: Page, console: str, name: str, password: str) -> None:
    page.goto(f"{console}/login")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").first.click()


def test_viewer_reads_and_operator_changes(closed_pipe: Pipe, console: str, chromium: Browser) -> None:
    add_user(closed_pipe, "ann", "--role", "operator")
    add_user(closed_pipe, "bob")
    page, wrong = opened(chromium, console)
    log_in(page, console, "ann", f"{PASSWORD} of bob")
    expect(page.get_by_role("alert")).to_contain_text("Wrong name or password", timeout=WAIT)
    log_in(page, console, "bob", f"{PASSWORD} of bob")
    expect(page.get_by_text("bob (viewer)")).to_be_visible(timeout=WAIT)
    page.goto(f"{console}/topic/payroll")
    expect(page.locator(".tail-line")).to_have_count(1, timeout=WAIT)
    expect(page.get_by_text("Send a test message")).to_have_count(0)
    refused = "bob is a viewer: only an operator may"
    expect(page.get_by_text(f"{refused} send test messages")).to_be_visible(timeout=WAIT)
    page.goto(f"{console}/alarms")
    expect(page.locator("table.data").first).to_contain_text("Unaccounted", timeout=WAIT)
    expect(page.get_by_role("button", name="mute")).to_have_count(0)
    expect(page.get_by_text(f"{refused} acknowledge and mute alarms")).to_be_visible(timeout=WAIT)
    page.get_by_role("link", name="Log out").click()
    log_in(page, console, "ann", f"{PASSWORD} of ann")
    expect(page.get_by_text("ann", exact=True)).to_be_visible(timeout=WAIT)
    page.goto(f"{console}/topic/payroll")
    page.get_by_role("button", name="send").click()
    expect(page.get_by_text("stored as payroll:")).to_be_visible(timeout=WAIT)
    page.goto(f"{console}/configuration")
    changes = page.locator(".panel", has_text="Changes").locator("table.data").last
    expect(changes).to_contain_text("send a message to payroll:", timeout=WAIT)
    expect(changes).to_contain_text("add user bob", timeout=WAIT)
    # The browser reports the refused login, and requests of a page whose session has ended.
    assert [text for text in wrong if "403" not in text and "401" not in text] == []
    command = [sys.executable, "-m", "penstock.cli.main", "changes", "--json", *closed_pipe.options]
    printed = subprocess.run(command, text=True, check=True, capture_output=True).stdout.splitlines()
    change = json.loads(printed[-1])
    assert (change["who"], change["from"]) == ("ann", "console, 127.0.0.1")


def test_trusted_header_counts_from_the_proxy_only(console: str) -> None:
    header = {"X-Forwarded-Email": "eve@example.org"}
    forged = {**header, "X-Forwarded-For": "127.0.0.2"}
    for headers in (header, forged):
        refused = httpx.get(f"{console}/configuration", headers=headers)
        assert (refused.status_code, "trusted_proxies only" in refused.text) == (403, True)
    with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2"), base_url=console) as proxy:
        assert proxy.get("/configuration").status_code == 401
        page = proxy.get("/configuration", headers=header)
        assert page.status_code == 200
        assert "eve@example.org (viewer)" in page.text


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


def test_console_with_tls_of_its_own_takes_renewed_files(closed_pipe: Pipe, tmp_path: Path) -> None:
    made = [certificates.make(tmp_path, name) for name in ("first", "renewed")]
    cert, key = tmp_path / "console.pem", tmp_path / "console.key"

    def install(pair: certificates.Pair) -> None:
        cert.write_bytes(pair.cert.read_bytes())
        key.write_bytes(pair.key.read_bytes())
        key.chmod(0o600)

    def shown() -> str:
        return ssl.get_server_certificate((host, int(port)), timeout=20)

    install(made[0])
    with running_console(closed_pipe, f"console.tls_cert={cert}", f"console.tls_key={key}") as url:
        host, port = url.removeprefix("https://").split(":")
        assert shown() == made[0].cert.read_text()
        login = httpx.post(f"{url}/login", data={"token": WATCHER}, headers={"Origin": url}, verify=False)
        assert "; Secure" in login.headers["set-cookie"], login.text
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://{host}:{port}/", timeout=20)
        install(made[1])
        wait_until(lambda: shown() == made[1].cert.read_text(), 60, "the renewed certificate is shown")
    cert.unlink()
    tls = ("-o", f"console.tls_cert={cert}", "-o", f"console.tls_key={key}")
    refused = command_line.run("console", *closed_pipe.options, *tls, folder=tmp_path)
    assert refused.status == 1
    assert refused.errors == f"penstock: console.tls_cert: {cert} cannot be read: No such file or directory\n"
