"""Checks of listeners and their handlers before a start or a reload, so that bad settings change nothing.

Each handler is created once in a process of its own, because its code may fail, block or take memory.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from penstock.config import ConfigError, ConsoleHandler, DiscardHandler, ListenerConfig, Settings, split_address
from penstock.config.units import overlap
from penstock.handover.frames.frame_size import frame_length, min_frame_length
from penstock.process.kernel import interrupts_held
from penstock.process.module_search import module_command
from penstock.wire.codecs import codec_of

CONSOLE_KEY = "console.http"
HANDLER_CHECK = "penstock.sinks.handler_check"
CHECK_TIMEOUT_S = 20.0
"""Time limit for all handlers, without the time in which their process waited for a processor."""
POLL_INTERVAL_S = 0.1
_LOGGER = logging.getLogger(__name__)


def check_listeners(
    settings: Settings, listeners: Sequence[ListenerConfig], tick: Callable[[], None] = lambda: None
) -> None:
    """Check ``listeners`` before they are started, calling ``tick`` during waits. Raises ConfigError."""
    check_ports(settings)
    for listener in listeners:
        _check_codec(listener)
        _check_frame_length(listener, settings.buffer.term_length)
        listener.check_tls(listener.name)
    check_handlers(listeners, tick)


def check_ports(settings: Settings) -> None:
    """Check that each listener has an address that no other listener and no server has. Raises ConfigError."""
    servers = [(key, split_address(address)) for key, address in settings.servers.items()]
    for number, listener in enumerate(settings.listener):
        listener_address = (listener.host, listener.port)
        takes_connections = not (listener.is_local or listener.takes_datagrams)
        server_keys = (key for key, address in servers if takes_connections and overlap(listener_address, address))
        listener_names = (repr(other.name) for other in settings.listener[:number] if _share_address(listener, other))
        if other_name := next(chain(server_keys, listener_names), ""):
            raise ConfigError(
                f"listener.{listener.name}: listens on {listener.address_text} as {other_name} does: give it another "
                "port, or a host of its own"
            )


def check_console_address(settings: Settings) -> None:
    """Check that no listener and no server has the console's address. For commands that start a console.

    Raises ConfigError.
    """
    console_address = split_address(settings.console.http)
    listeners = (
        (f"listener.{listener.name}", (listener.host, listener.port))
        for listener in settings.listener
        if not (listener.is_local or listener.takes_datagrams)
    )
    servers = ((key, split_address(address)) for key, address in settings.servers.items() if key != CONSOLE_KEY)
    if key := next((key for key, address in chain(servers, listeners) if overlap(console_address, address)), ""):
        raise ConfigError(f"{CONSOLE_KEY}: {settings.console.http} is the address of {key}: choose another port")


def _share_address(listener: ListenerConfig, other: ListenerConfig) -> bool:
    # UDP and TCP have ports of their own; lines, requests and gRPC share those of TCP.
    if listener.is_local or other.is_local:
        return listener.listening_address == other.listening_address
    if listener.takes_datagrams != other.takes_datagrams:
        return False
    address, other_address = (listener.host, listener.port), (other.host, other.port)
    if listener.shares_port and other.shares_port:
        # SO_REUSEPORT lets a wildcard and a host have one port.
        is_copy = other.model_copy(update={"name": listener.name}) == listener
        return not is_copy and address == other_address and listener.port != 0
    return overlap(address, other_address)


def _check_codec(listener: ListenerConfig) -> None:
    try:
        codec_of(listener.codec)
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything; it must not end a running supervisor
        raise ConfigError(f"listener.{listener.name}.codec: {listener.codec!r} cannot be loaded: {error!r}") from None


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

    A slow handler is not a failure: its own process continues to create it.
    """
    handlers = [
        {"listener": listener.name, "handler": handler.model_dump(mode="json")}
        for listener in listeners
        for handler in listener.forwarded
        if not isinstance(handler, ConsoleHandler | DiscardHandler)
    ]
    if not handlers:
        return
    with interrupts_held():
        process = subprocess.Popen(
            module_command(HANDLER_CHECK),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    with process:
        output, errors = _run_check(process, json.dumps(handlers), tick)
    if process.returncode == -signal.SIGINT:  # Ctrl-C, by which this process ends, too
        return
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
