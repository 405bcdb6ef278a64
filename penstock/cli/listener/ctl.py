"""``penstock ctl``: plog's commands to a listener."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.cli.common import console, fail
from penstock.cli.listener.listeners import CommandConnection, NoAnswer, find_listener, send_address
from penstock.cli.options import AsJson, Commands, Config, OptionsOf, Override, load_settings
from penstock.config import ListenerConfig, Settings
from penstock.files.change_log import record_command
from penstock.files.json_values import parse_object

ctl = Commands(help="Query a listener, or kill its receiver.", no_args_is_help=True)
Listener = Annotated[
    str | None,
    typer.Option(help="Name of the listener; the first UDP or TCP listener if none is named.", show_default=False),
]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for an answer.", min=0.01)]
POLL_INTERVAL_S = 0.1
RESTART_TIMEOUT_S = 10.0
"""Time that the supervisor may take to restart a receiver after KILL."""


@dataclass(frozen=True, slots=True)
class TargetListener:
    """The listener that a command talks to."""

    settings: Settings
    config: ListenerConfig
    timeout: float

    @classmethod
    def from_options(
        cls, config: Config = None, override: Override = None, listener: Listener = None, timeout: Timeout = 2.0
    ) -> TargetListener:
        """Return the listener for a command's options, or end the command if there is none of this name."""
        settings = load_settings(config, override)
        return cls(settings, find_listener(settings, listener), timeout)

    @property
    def name(self) -> str:
        """Return the name of the listener."""
        return self.config.name

    def connect(self) -> CommandConnection:
        """Return a connection. Raises NoAnswer."""
        return CommandConnection(*send_address(self.settings, self.config), self.config.transport, self.timeout)

    @contextlib.contextmanager
    def connected(self) -> Iterator[CommandConnection]:
        """Return a connection; end the command with one line if the listener does not answer."""
        try:
            with contextlib.closing(self.connect()) as connection:
                yield connection
        except NoAnswer as error:
            fail(f"listener {self.name!r}: {error}")


Target = Annotated[TargetListener, OptionsOf(TargetListener.from_options)]


@ctl.command()
def ping(target: Target, as_json: AsJson = False) -> None:
    """Report whether the listener answers, and after how many milliseconds."""
    trail = secrets.token_hex(8).encode()
    started = time.perf_counter()
    answer = _request(target, "PING", trail)
    milliseconds = (time.perf_counter() - started) * 1000
    if answer != b"PONG" + trail:
        fail(f"listener {target.name!r} sent an unexpected answer: {answer[:100]!r}")
    if as_json:
        print(json.dumps({"listener": target.name, "milliseconds": round(milliseconds, 3)}))
    else:
        console.print(f"PONG from {target.name} in {milliseconds:.2f} ms")


@ctl.command()
def stat(target: Target, as_json: AsJson = False) -> None:
    """Print the statistics of the listener's receiver."""
    statistics = _parse_object_answer(target.name, _request(target, "STAT"))
    if as_json:
        print(json.dumps(statistics, indent=2))
        return
    table = Table(title=f"listener {target.name}", title_justify="left", box=None, show_header=False)
    for key, value in statistics.items():
        table.add_row(key, _format_value(value))
    console.print(table)


@ctl.command()
def envi(target: Target, as_json: AsJson = False) -> None:
    """Print the receiver's configuration, with secrets masked."""
    print(json.dumps(_parse_object_answer(target.name, _request(target, "ENVI")), indent=None if as_json else 2))


@ctl.command()
def kill(target: Target, as_json: AsJson = False) -> None:
    """Kill the listener's receiver; the supervisor restarts it."""
    with target.connected() as connection:
        old_uptime = int(_parse_object_answer(target.name, connection.request("STAT"))["uptime"])
        killed_at = time.monotonic()
        connection.send("KILL")
    time.sleep(POLL_INTERVAL_S)
    while time.monotonic() - killed_at < RESTART_TIMEOUT_S:
        uptime = _uptime_ms(target)
        # Half of the elapsed time: the uptime of a receiver that ignored KILL grows by all of it.
        half_elapsed_ms = (time.monotonic() - killed_at) * 1000 / 2
        if uptime is not None and uptime < old_uptime + half_elapsed_ms:
            break
        if uptime is not None:
            fail(f"listener {target.name!r} ignored KILL; allow it with kill = true")
        time.sleep(POLL_INTERVAL_S)
    else:
        fail(f"listener {target.name!r} was killed and is not back within {RESTART_TIMEOUT_S:g} s")
    record_command(target.settings.data_dir, f"kill the receiver of listener {target.name}")
    if as_json:
        print(json.dumps({"listener": target.name, "killed": True}))
    else:
        console.print(f"{target.name}: the receiver was killed and is back")


def _uptime_ms(target: TargetListener) -> int | None:
    try:
        with contextlib.closing(target.connect()) as connection:
            return int(_parse_object_answer(target.name, connection.request("STAT"))["uptime"])
    except NoAnswer:
        return None


def _request(target: TargetListener, verb: str, trail: bytes = b"") -> bytes:
    with target.connected() as connection:
        return connection.request(verb, trail)


def _parse_object_answer(name: str, answer: bytes) -> dict[str, Any]:
    try:
        return parse_object(answer)
    except ValueError:
        fail(f"listener {name!r} sent an unexpected answer: {answer[:100]!r}")


def _format_value(value: Any) -> str:
    """Return a statistic as text; of an array of counts, only its non-zero counts."""
    # A mapping with a count is a meter of plog's statistics.
    if isinstance(value, dict) and "count" in value:
        return f"{value['count']} ({', '.join(f'{rate:.1f}' for rate in value['rate'])}/s)"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_format_value(part)}" for key, part in value.items())
    if isinstance(value, list) and value and isinstance(value[0], list):
        cells = ((i, j, number) for i, row in enumerate(value) for j, number in enumerate(row) if number)
        return ", ".join(f"[{i}][{j}]: {number}" for i, j, number in cells) or "0"
    if isinstance(value, list) and value and isinstance(value[0], int):
        return ", ".join(f"[{index}]: {number}" for index, number in enumerate(value) if number) or "0"
    return value if isinstance(value, str) else json.dumps(value)
