"""A stopped log daemon does not affect the other handlers of a listener, and loses messages only by policy."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.handover.paths import LOG, position_file
from penstock.handover.positions.lock_holder import lock_holder
from penstock.process.kernel import has_stopped
from penstock.testing.pipe import Pipe, wait_until
from tests.system.test_balance_handlers import TCP, folder, lines, route, wayward  # noqa: F401 - a fixture

LINES = 8000
AHEAD = 800
"""Lines that the other handlers may be behind: far less than a term of the log buffer."""


@pytest.fixture
def pipe(tmp_path: Path, folder: Path) -> Iterator[Pipe]:  # noqa: F811
    pipe = Pipe(tmp_path, wayward(folder))
    pipe.start()
    yield pipe
    pipe.stop()


def delivered_lines(folder: Path) -> int:  # noqa: F811
    file = folder / "taken"
    return file.stat().st_size // 997 if file.exists() else 0


def printed_lines(pipe: Pipe) -> int:
    return pipe.output.read_bytes().count(b'{"listener"')


def send(pipe: Pipe, folder: Path, first: int, end: int) -> None:  # noqa: F811
    """Send lines as fast as the other handlers accept them."""
    for number in range(first, end, 400):
        wait_until(lambda number=number: min(delivered_lines(folder), printed_lines(pipe)) > number - AHEAD, 60)
        pipe.lines(lines(number, min(400, end - number)))


@pytest.mark.survives("log", "SIGSTOP")
@pytest.mark.survives("connections", "SIGSTOP")
@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL], ids=["continues", "is killed"])
def test_other_handlers_continue_and_each_message_has_a_fate(then: signal.Signals, pipe: Pipe, folder: Path) -> None:  # noqa: F811
    pid = pipe.pid("log daemon")
    sender = threading.Thread(target=send, args=(pipe, folder, 0, LINES))
    sender.start()
    wait_until(lambda: delivered_lines(folder) > 500, what="messages come through")
    os.kill(pid, signal.SIGSTOP)
    sender.join(60)
    assert not sender.is_alive()
    wait_until(
        lambda: (delivered_lines(folder), printed_lines(pipe)) == (LINES, LINES), 60, "the others have all messages"
    )
    with contextlib.suppress(ProcessLookupError):  # it was stopped holding its place, and ended for it
        os.kill(pid, then)
    wait_until(pipe.answers, 60, "the daemon is back")
    pipe.lines(lines(LINES, 1))
    wait_until(lambda: pipe.counts(TCP)["accepted"] == LINES + 1, 60)
    balance = pipe.settled(60)
    fates = {name: route(balance, name) for name in ("log", "console", "wayward")}
    assert [fates[name]["delivered"] for name in ("console", "wayward")] == [LINES + 1, LINES + 1]
    assert fates["log"]["policy_drop"] > LINES // 4
    assert fates["log"]["delivered"] + fates["log"]["policy_drop"] == LINES + 1
    assert (balance["unaccounted"], fates["log"]["corrupt"]) == (0, 0)
    assert (folder / "taken").read_bytes() == lines(0, LINES + 1)
    assert max(Counter(entries(pipe)).values()) == 1


@pytest.mark.survives("log buffer", "SIGSTOP")
def test_daemon_that_is_stopped_while_it_holds_its_lock_is_replaced(pipe: Pipe, folder: Path) -> None:  # noqa: F811
    pid, lock = pipe.pid("log daemon"), position_file(pipe.data_dir / "buffers", TCP, LOG)
    is_stopped, sent = threading.Event(), 0

    def keep_sending() -> None:
        nonlocal sent
        while not is_stopped.is_set():
            send(pipe, folder, sent, sent + 50)
            sent += 50

    def stop_with_lock() -> bool:
        os.kill(pid, signal.SIGSTOP)
        # On a busy machine a thread continues after the signal, and may release the lock.
        wait_until(lambda: has_stopped(pid), pause=0.001)
        if lock_holder(lock) == pid:
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    sender = threading.Thread(target=keep_sending)
    sender.start()
    try:
        wait_until(stop_with_lock, what="the daemon is stopped while it holds the lock", pause=0.003)
    finally:
        is_stopped.set()
        sender.join(60)
    total = sent + LINES
    send(pipe, folder, sent, total)
    wait_until(lambda: pipe.endpoints()["pids"].get("log daemon") not in (None, pid), what="the daemon is replaced")
    wait_until(pipe.answers, 60, "the new daemon answers")
    wait_until(lambda: pipe.counts(TCP)["accepted"] == total, 60)
    balance = pipe.settled(60)
    fates = {name: route(balance, name) for name in ("log", "console", "wayward")}
    assert [fates[name]["delivered"] for name in ("console", "wayward")] == [total, total]
    assert fates["log"]["delivered"] + fates["log"]["policy_drop"] == total
    assert (balance["unaccounted"], fates["log"]["corrupt"]) == (0, 0)
    assert max(Counter(entries(pipe)).values()) == 1


def entries(pipe: Pipe) -> Iterator[str]:
    """Yield the entries of the topic."""
    offset = 0
    while True:
        page = pipe.get(f"/topic/events/logs?max_messages=1000&offset={offset}").get("logs", [])
        if not page:
            return
        yield from (entry["raw_bytes"] for entry in page)
        offset = int(page[-1]["offset"]) + 1
