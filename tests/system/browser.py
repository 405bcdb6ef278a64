"""A real Chromium for tests: Debian's package without a user interface, or the installed one, or one that is installed
on demand if that is allowed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.debian_packages import CannotFetchDebian, install, library_environment, unpacked

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> tuple[str, Mapping[str, str]]:
    """Return the path of Chromium and its environment; skip the test if it cannot be installed."""
    if program := _unpacked_shell() or _installed():
        return program
    install("chromium")
    return _installed() or pytest.skip("there is no Chromium, and it cannot be installed")


def _unpacked_shell() -> tuple[str, Mapping[str, str]] | None:
    """Return the Chromium without windows and menus: a page takes a quarter less CPU in it."""
    try:
        root = unpacked("chromium-headless-shell", ["chromium-headless-shell", "chromium-common"])
    except CannotFetchDebian:
        return None
    program, environment = str(root / "usr/lib/chromium/chromium-headless-shell"), library_environment(root)
    # Libraries of libraries are not unpacked.
    completed = subprocess.run([program, "--version"], env=environment, capture_output=True, check=False)
    return None if completed.returncode else (program, environment)


def _installed() -> tuple[str, Mapping[str, str]] | None:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return (path, os.environ) if path else None


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without any pages."""
    path, environment = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(FLAGS), env=dict(environment))
        try:
            yield started
        finally:
            started.close()
