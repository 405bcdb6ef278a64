"""Handlers are made once before they are started, in a process of its own: bad settings stop a start or a reload."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.config import ConfigError, ConsoleHandler, DiscardHandler, ListenerConfig

HANDLER_CHECK = "penstock.sinks.handler_check"
PATIENCE = 20.0
"""Seconds for all handlers; those in which the process waited for a processor are not counted."""
LOOK_EVERY = 0.1
_LOGGER = logging.getLogger(__name__)


def check_handlers(listeners: Sequence[ListenerConfig], tick: Callable[[], None] = lambda: None) -> None:
    """Have each handler made, calling ``tick`` meanwhile. Raises ConfigError for settings that a handler does not take.

    One that is slow is no failure: its own process goes on making it.
    """
    given = [
        {"listener": listener.name, "handler": handler.model_dump(mode="json")}
        for listener in listeners
        for handler in listener.forwarded
        if not isinstance(handler, ConsoleHandler | DiscardHandler)
    ]
    if not given:
        return
    command = [sys.executable, "-m", HANDLER_CHECK]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as checking:
        output, errors = _told(checking, json.dumps(given), tick)
    was_killed = checking.returncode < 0
    if output.strip() or (checking.returncode and not was_killed):
        raise ConfigError(output.strip() or errors.strip())
    if was_killed:
        names = ", ".join(sorted({handler.label for listener in listeners for handler in listener.forwarded}))
        _LOGGER.warning("handlers (%s) are not made after %g s; they are started without a check", names, PATIENCE)


def _told(checking: subprocess.Popen[str], given: str, tick: Callable[[], None]) -> tuple[str, str]:
    """What it prints; it is killed where it takes too long."""
    began, task = time.monotonic(), given
    while time.monotonic() - began - starved(checking.pid) <= PATIENCE:
        try:
            return checking.communicate(task, LOOK_EVERY)
        except subprocess.TimeoutExpired:
            task = ""  # it has it
            tick()
    checking.kill()
    return checking.communicate()


def starved(pid: int) -> float:
    """Seconds that a process was ready to run and waited for a processor; 0 where the kernel does not say."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
