"""A console process for tests, and its pages in a real browser."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import Browser, Page

from penstock.testing.pipe import Pipe, free_ports, wait_until

WAIT = 30_000


@contextmanager
def running_console(pipe: Pipe, *overrides: str) -> Iterator[str]:
    """Run a console for a pipe, with further keys, and yield its address."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    output = pipe.output.with_name("console.log")
    url = f"{'https' if any('tls_cert' in key for key in overrides) else 'http'}://{address}"
    options = [word for override in overrides for word in ("-o", override)]
    command = [sys.executable, "-m", "penstock.cli.main", "console", "--http", address, *pipe.options, *options]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}  # NiceGUI looks
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=plain)
    try:
        wait_until(
            lambda: _answers(url) if process.poll() is None else pytest.fail(output.read_text()),
            90,
            f"the console, see {output}",
        )
        yield url
    finally:
        process.terminate()
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/", timeout=5, verify=False).status_code < 500
    except httpx.TransportError:
        return False


def opened(
    chromium: Browser, console: str, path: str = "/", width: int = 1280, dark: bool = False
) -> tuple[Page, list[str]]:
    """Open a page and yield it with its failures: errors, and requests to other hosts."""
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
    page = context.new_page()
    page.set_default_timeout(WAIT)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith((console, "data:")) else wrong.append(request.url)
    )
    page.goto(console + path)
    wait_live(page)
    return page, wrong


def wait_live(page: Page) -> None:
    """Wait until input reaches the console: on a busy machine fields may be rendered some moments before."""
    page.wait_for_function("window.did_handshake !== false")
