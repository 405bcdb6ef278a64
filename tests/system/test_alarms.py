"""A loss in a running pipe is reported to a command, with the receipt."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from penstock.testing.pipe import Pipe, wait_until
from tests.system.browser import browser
from tests.system.console_process import WAIT, opened, running_console


def test_datagrams_dropped_by_the_kernel_raise_one_alarm(pipes: Callable[..., Pipe], tmp_path: Path) -> None:
    alarm_file = tmp_path / "told"
    pipe = pipes(f"alarms.command=tee -a {alarm_file}", "alarms.every=500ms", "listener.events-udp.so_rcvbuf=64KiB")
    pipe.datagrams(b"x")
    wait_until(lambda: pipe.counts("events-udp")["accepted"] == 1)
    wait_until(lambda: pipe.get("/balance")["topics"], what="it was looked at before")
    pipe.signal("receiver events-udp", signal.SIGSTOP)
    pipe.datagrams(*[b"x" * 1000] * 3000)
    pipe.signal("receiver events-udp", signal.SIGCONT)
    wait_until(lambda: begun_alarms(alarm_file), 60, "the command is told")
    pipe.settled()
    (alarm,) = begun_alarms(alarm_file)
    assert alarm["alarm"] == "PenstockKernelDrops"
    assert alarm["labels"] == {"listener": "events-udp"}
    assert "dropped by the kernel" in alarm["receipt"]
    acknowledge_by_console_and_command(pipe)
    pipe.kill("log daemon")
    (firing,) = rule_of(pipe)["firing"]
    assert (firing["acknowledged"]["note"], firing["delivered"]) == ("larger buffer", True)
    assert len(begun_alarms(alarm_file)) == 1


def begun_alarms(file: Path) -> list[dict[str, Any]]:
    """Return the alarms that a command was told to begin, but not that this machine's disk is nearly full."""
    text, alarms = file.read_text() if file.exists() else "", list[dict[str, Any]]()
    while text:
        try:
            alarm, end = json.JSONDecoder().raw_decode(text)
        except json.JSONDecodeError:  # the last one is being written
            break
        text = text[end:].lstrip()
        alarms.append(alarm)
    return [alarm for alarm in alarms if alarm["state"] == "begins" and alarm["alarm"] != "PenstockDiskLow"]


def acknowledge_by_console_and_command(pipe: Pipe) -> None:
    with running_console(pipe) as console, browser() as chromium:
        page, wrong = opened(chromium, console, "/alarms")
        expect(page.locator("table.data").first).to_contain_text("the kernel dropped", timeout=WAIT)
        page.get_by_label("note").fill("ordered a <b>larger</b> buffer")
        page.get_by_role("button", name="acknowledge").click()
        expect(page.locator("table.data").first).to_contain_text("ordered a <b>larger</b> buffer", timeout=WAIT)
        rules, mute = page.locator("table.data").nth(1), page.get_by_role("button", name="mute", exact=True)
        choose(page, "which", "listener=events-udp")
        mute.click()
        expect(rules).to_contain_text("by console, listener=events-udp", timeout=WAIT)
        choose(page, "which", "all of this alarm")
        choose(page, "mute", "end the mute")
        mute.click()
        expect(rules).not_to_contain_text("by console", timeout=WAIT)
        choose(page, "mute", "1 hour")
        mute.click()
        expect(rules).to_contain_text("by console", timeout=WAIT)
        assert wrong == []
    command = [sys.executable, "-m", "penstock.cli.main", "alarms"]
    ack = [*command, "ack", "PenstockKernelDrops", "--label", "listener=events-udp", "--note", "larger buffer"]
    completed = subprocess.run([*ack, *pipe.options], capture_output=True, text=True, check=True)
    assert completed.stdout == "acknowledged 1 of PenstockKernelDrops\n"
    listed = subprocess.run([*command, "list", *pipe.options], capture_output=True, text=True, check=False)
    assert listed.returncode == 0, "nothing fires that nobody has seen"
    assert "acknowledged by" in listed.stdout
    assert "muted until" in listed.stdout


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_role("combobox", name=label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def rule_of(pipe: Pipe) -> dict[str, Any]:
    return next(rule for rule in pipe.get("/alarms")["alarms"] if rule["alarm"] == "PenstockKernelDrops")
