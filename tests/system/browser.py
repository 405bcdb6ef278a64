"""A real headless Chromium for tests: Debian's package, installed on demand if that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str:
    """Return the path of Chromium; skip the test if it cannot be installed."""
    if path := _installed_path():
        return path
    if os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"capture_output": True, "timeout": 600, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
        subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)
        subprocess.run(["apt-get", "install", "-y", "-qq", "chromium"], check=False, **quiet)
    return _installed_path() or pytest.skip("there is no Chromium, and it cannot be installed")


def _installed_path() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without any pages."""
    path = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield started
        finally:
            started.close()
