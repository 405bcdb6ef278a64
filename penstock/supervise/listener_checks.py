"""Checks of listeners and their handlers before a start or a reload, so that bad settings change nothing.

Each handler is created once in a process of its own, because its code may fail, block or take memory.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.config import ConfigError, ConsoleHandler, DiscardHandler, ListenerConfig, Settings
from penstock.handover.frame_size import frame_length, min_frame_length

HANDLER_CHECK = "penstock.sinks.handler_check"
CHECK_TIMEOUT_S = 20.0
"""Time limit for all handlers, without the time in which their process waited for a processor."""
POLL_INTERVAL_S = 0.1
_LOGGER = logging.getLogger(__name__)


def check_listeners(
    settings: Settings, listeners: Sequence[ListenerConfig], tick: Callable[[], None] = lambda: None
) -> None:
    """Check ``listeners`` before they are started, calling ``tick`` during waits. Raises ConfigError."""
    for listener in listeners:
        _check_frame_length(listener, settings.buffer.term_length)
        listener.check_tls(listener.name)
    check_handlers(listeners, tick)


def check_ports(listeners: Sequence[ListenerConfig]) -> None:
    """Check that each listener has an address of its own. Raises ConfigError."""
    first: dict[tuple[object, ...], ListenerConfig] = {}
    for listener in listeners:
        # UDP and TCP have ports of their own; lines, requests and gRPC share those of TCP. Port 0 is any free one.
        kind: object = listener.protocol if listener.is_local else listener.takes_datagrams
        key = (kind, *listener.listening_address[1:]) if listener.is_local or listener.port else (listener.name,)
        other = first.setdefault(key, listener)
        is_copy = listener.receivers > 1 and other.model_copy(update={"name": listener.name}) == listener
        if other is not listener and not is_copy:
            raise ConfigError(
                f"listener.{listener.name}: listens on {listener.address_text} as {other.name!r} does: give it another "
                "port, or a host of its own"
            )


def _check_frame_length(listener: ListenerConfig, term_length: int) -> None:
    needed, length = min_frame_length(listener), frame_length(term_length)
    if needed > length:
        too_small = f"buffer.term_length: frames of {length} bytes (an eighth of a term) cannot hold the {needed} bytes"
        if listener.takes_datagrams and not listener.defragments:
            raise ConfigError(f"{too_small} that a datagram of listener {listener.name!r} may need: make it larger")
        key = "max_line" if listener.transport == "tcp" else "defrag.max_size"
        raise ConfigError(
            f"{too_small} that listener.{listener.name}.{key} may need: make one larger or the other smaller"
        )


def warn_of_idle_handlers(settings: Settings) -> None:
    """Warn of each handler that gets nothing, because an earlier one does not propagate."""
    for listener in settings.listener:
        last = listener.routed[-1].label
        for handler in listener.handlers[len(listener.routed) :]:
            text = "listener %r: handler %r gets nothing: %r does not propagate"
            _LOGGER.warning(text, listener.name, handler.label, last)


def check_handlers(listeners: Sequence[ListenerConfig], tick: Callable[[], None] = lambda: None) -> None:
    """Create each handler, calling ``tick`` during the wait. Raises ConfigError for settings that a handler refuses.

    A slow handler is no failure: its own process continues to create it.
    """
    handlers = [
        {"listener": listener.name, "handler": handler.model_dump(mode="json")}
        for listener in listeners
        for handler in listener.forwarded
        if not isinstance(handler, ConsoleHandler | DiscardHandler)
    ]
    if not handlers:
        return
    command = [sys.executable, "-m", HANDLER_CHECK]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        output, errors = _run_check(process, json.dumps(handlers), tick)
    was_killed = process.returncode < 0
    if output.strip() or (process.returncode and not was_killed):
        raise ConfigError(output.strip() or errors.strip())
    if was_killed:
        names = ", ".join(sorted({handler.label for listener in listeners for handler in listener.forwarded}))
        _LOGGER.warning(
            "handlers (%s) are not created after %g s; they are started without a check", names, CHECK_TIMEOUT_S
        )


def _run_check(process: subprocess.Popen[str], handlers: str, tick: Callable[[], None]) -> tuple[str, str]:
    """Return the process's output and errors. Kill the process when its time is over."""
    start_s, task = time.monotonic(), handlers
    # On a busy machine a good handler may get no processor for long; only its own time counts.
    while time.monotonic() - start_s - processor_wait_s(process.pid) <= CHECK_TIMEOUT_S:
        try:
            return process.communicate(task, POLL_INTERVAL_S)
        except subprocess.TimeoutExpired:
            task = ""  # communicate has sent it already
            tick()
    process.kill()
    return process.communicate()


def processor_wait_s(pid: int) -> float:
    """Return the seconds that a process was ready and waited for a processor; 0 if the kernel does not report it."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
