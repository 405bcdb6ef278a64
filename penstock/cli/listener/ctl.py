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
from penstock.cli.listener.listener_commands import Asking, NoAnswer
from penstock.cli.listener.listeners import address_of, listener_of
from penstock.cli.options import AsJson, Commands, Config, MadeOf, Override, settings_of
from penstock.config import ListenerConfig, Settings
from penstock.files.json_values import parse_object

ctl = Commands(help="Ask a listener, or end its receiver.", no_args_is_help=True)
Listener = Annotated[str | None, typer.Option(help="A listener by name; else the first.", show_default=False)]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for the answer.", min=0.01)]
LOOK_EVERY = 0.1
RESTART = 10.0
"""Seconds that a receiver may take to come back after KILL."""


@dataclass(frozen=True, slots=True)
class Listened:
    """The listener that a command talks to."""

    settings: Settings
    config: ListenerConfig
    timeout: float

    @classmethod
    def of(
        cls, config: Config = None, override: Override = None, listener: Listener = None, timeout: Timeout = 2.0
    ) -> Listened:
        """From the options of a command; ends it with one line when there is no such listener."""
        settings = settings_of(config, override)
        return cls(settings, listener_of(settings, listener), timeout)

    @property
    def name(self) -> str:
        """Its name."""
        return self.config.name

    def connected(self) -> Asking:
        """A connection to it. Raises NoAnswer."""
        return Asking(*address_of(self.settings, self.config), self.config.transport, self.timeout)

    @contextlib.contextmanager
    def asked(self) -> Iterator[Asking]:
        """A connection to it; ends the command with one line where it does not answer."""
        try:
            with contextlib.closing(self.connected()) as asking:
                yield asking
        except NoAnswer as error:
            fail(f"listener {self.name!r}: {error}")


Target = Annotated[Listened, MadeOf(Listened.of)]


@ctl.command()
def ping(target: Target, as_json: AsJson = False) -> None:
    """Whether the listener answers, and how quickly."""
    trail = secrets.token_hex(8).encode()
    began = time.perf_counter()
    answer = _ask(target, "PING", trail)
    took = (time.perf_counter() - began) * 1000
    if answer != b"PONG" + trail:
        fail(f"listener {target.name!r} answers something else: {answer[:100]!r}")
    if as_json:
        print(json.dumps({"listener": target.name, "milliseconds": round(took, 3)}))
    else:
        console.print(f"PONG from {target.name} in {took:.2f} ms")


@ctl.command()
def stat(target: Target, as_json: AsJson = False) -> None:
    """The statistics of the listener's receiver."""
    statistics = _parsed(target.name, _ask(target, "STAT"))
    if as_json:
        print(json.dumps(statistics, indent=2))
        return
    table = Table(title=f"listener {target.name}", title_justify="left", box=None, show_header=False)
    for key, value in statistics.items():
        table.add_row(key, _shown(value))
    console.print(table)


@ctl.command()
def envi(target: Target, as_json: AsJson = False) -> None:
    """The configuration that is in effect, secrets masked."""
    print(json.dumps(_parsed(target.name, _ask(target, "ENVI")), indent=None if as_json else 2))


@ctl.command()
def kill(target: Target, as_json: AsJson = False) -> None:
    """End the listener's receiver at once; the supervisor starts it again."""
    with target.asked() as asking:
        before = int(_parsed(target.name, asking.ask("STAT"))["uptime"])
        asked = time.monotonic()
        asking.tell("KILL")
    time.sleep(LOOK_EVERY)
    while time.monotonic() - asked < RESTART:
        uptime = _uptime(target)
        if uptime is not None and uptime < before + (time.monotonic() - asked) * 500:
            break
        if uptime is not None:
            fail(f"listener {target.name!r} does not obey KILL: it needs kill = true")
        time.sleep(LOOK_EVERY)
    else:
        fail(f"listener {target.name!r} is gone and did not come back within {RESTART:g} s")
    if as_json:
        print(json.dumps({"listener": target.name, "killed": True}))
    else:
        console.print(f"{target.name}: its receiver was killed and is back")


def _uptime(target: Listened) -> int | None:
    """Milliseconds; None while nobody answers."""
    try:
        with contextlib.closing(target.connected()) as asking:
            return int(_parsed(target.name, asking.ask("STAT"))["uptime"])
    except NoAnswer:
        return None


def _ask(target: Listened, verb: str, trail: bytes = b"") -> bytes:
    """The listener's answer, or the end with one line."""
    with target.asked() as asking:
        return asking.ask(verb, trail)


def _parsed(name: str, answer: bytes) -> dict[str, Any]:
    try:
        return parse_object(answer)
    except ValueError:
        fail(f"listener {name!r} answers something else: {answer[:100]!r}")


def _shown(value: Any) -> str:
    """What is not zero, of an array by class."""
    if isinstance(value, dict) and "count" in value:  # a meter
        return f"{value['count']} ({', '.join(f'{rate:.1f}' for rate in value['rate'])}/s)"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(part)}" for key, part in value.items())
    if isinstance(value, list) and value and isinstance(value[0], list):
        cells = ((i, j, number) for i, row in enumerate(value) for j, number in enumerate(row) if number)
        return ", ".join(f"[{i}][{j}]: {number}" for i, j, number in cells) or "0"
    if isinstance(value, list) and value and isinstance(value[0], int):
        return ", ".join(f"[{place}]: {number}" for place, number in enumerate(value) if number) or "0"
    return value if isinstance(value, str) else json.dumps(value)
