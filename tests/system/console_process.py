"""A console process for tests, and its pages in a real browser."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest
from playwright.sync_api import Browser, Page

from penstock.testing.pipe import Pipe, free_ports, wait_until

WAIT = 30_000
PHONE, DESKTOP = 390, 1280
"""Widths of pages."""


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


@dataclass
class Tab:
    """A tab of the browser in which pages of a console follow each other.

    A new process of the browser that compiles the scripts takes three times the CPU of the page.
    """

    console: str
    chromium: Browser
    _opened: list[tuple[Page, list[str]]] = field(default_factory=list)

    def open(self, path: str = "/", width: int = DESKTOP, dark: bool = False) -> tuple[Page, list[str]]:
        """Open a page without what the scripts of earlier ones stored, and return it with its failures."""
        if not self._opened:
            self._opened.append(opened(self.chromium, self.console, path, width, dark))
            return self._opened[0]
        ((page, wrong),) = self._opened
        page.evaluate("localStorage.clear()")
        resize(page, width)
        page.emulate_media(color_scheme="dark" if dark else "light")
        wrong.clear()
        page.goto(self.console + path)
        wait_live(page)
        return page, wrong


def resize(page: Page, width: int) -> None:
    """Give an open page another width, which saves loading it again."""
    page.set_viewport_size({"width": width, "height": 900})
