"""``penstock ctl``: plog's commands to a listener."""

from __future__ import annotations

import json
import secrets
import time
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.cli.common import AsJson, Config, Override, console, fail, settings_of
from penstock.cli.listener.listener_commands import Asking, NoAnswer
from penstock.cli.listener.listeners import address_of, listener_of

ctl = typer.Typer(help="Ask a listener, or end its receiver.", no_args_is_help=True)
Listener = Annotated[str | None, typer.Option(help="A listener by name; else the first.", show_default=False)]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for the answer.", min=0.01)]
LOOK_EVERY = 0.1
RESTART = 10.0
"""Seconds that a receiver may take to come back after KILL."""


@ctl.command()
def ping(
    config: Config = None,
    override: Override = None,
    listener: Listener = None,
    timeout: Timeout = 2.0,
    as_json: AsJson = False,
) -> None:
    """Whether the listener answers, and how quickly."""
    trail = secrets.token_hex(8).encode()
    began = time.perf_counter()
    name, answer = _ask(config, override, listener, timeout, "PING", trail)
    took = (time.perf_counter() - began) * 1000
    if answer != b"PONG" + trail:
        fail(f"listener {name!r} answers something else: {answer[:100]!r}")
    if as_json:
        print(json.dumps({"listener": name, "milliseconds": round(took, 3)}))
    else:
        console.print(f"PONG from {name} in {took:.2f} ms")


@ctl.command()
def stat(
    config: Config = None,
    override: Override = None,
    listener: Listener = None,
    timeout: Timeout = 2.0,
    as_json: AsJson = False,
) -> None:
    """The statistics of the listener's receiver."""
    name, answer = _ask(config, override, listener, timeout, "STAT")
    statistics = _parsed(name, answer)
    if as_json:
        print(json.dumps(statistics, indent=2))
        return
    table = Table(title=f"listener {name}", title_justify="left", box=None, show_header=False)
    for key, value in statistics.items():
        table.add_row(key, _shown(value))
    console.print(table)


@ctl.command()
def envi(
    config: Config = None,
    override: Override = None,
    listener: Listener = None,
    timeout: Timeout = 2.0,
    as_json: AsJson = False,
) -> None:
    """The configuration that is in effect, secrets masked."""
    name, answer = _ask(config, override, listener, timeout, "ENVI")
    print(json.dumps(_parsed(name, answer), indent=None if as_json else 2))


@ctl.command()
def kill(
    config: Config = None,
    override: Override = None,
    listener: Listener = None,
    timeout: Timeout = 2.0,
    as_json: AsJson = False,
) -> None:
    """End the listener's receiver at once; the supervisor starts it again."""
    name, asking = _asking(config, override, listener, timeout)
    try:
        before = int(_parsed(name, asking.ask("STAT"))["uptime"])
        asked = time.monotonic()
        asking.tell("KILL")
    except NoAnswer as error:
        fail(error)
    finally:
        asking.close()
    time.sleep(LOOK_EVERY)
    while time.monotonic() - asked < RESTART:
        uptime = _uptime(config, override, listener, timeout)
        if uptime is not None and uptime < before + (time.monotonic() - asked) * 500:
            break
        if uptime is not None:
            fail(f"listener {name!r} does not obey KILL: it needs kill = true")
        time.sleep(LOOK_EVERY)
    else:
        fail(f"listener {name!r} is gone and did not come back within {RESTART:g} s")
    if as_json:
        print(json.dumps({"listener": name, "killed": True}))
    else:
        console.print(f"{name}: its receiver was killed and is back")


def _uptime(config: Any, override: Any, listener: str | None, timeout: float) -> int | None:
    """Milliseconds; None while nobody answers."""
    try:
        name, asking = _asking(config, override, listener, timeout, patient=True)
        try:
            return int(_parsed(name, asking.ask("STAT"))["uptime"])
        finally:
            asking.close()
    except NoAnswer:
        return None


def _ask(
    config: Any, override: Any, listener: str | None, timeout: float, verb: str, trail: bytes = b""
) -> tuple[str, bytes]:
    """The listener's name and its answer, or the end with one line."""
    name, asking = _asking(config, override, listener, timeout)
    try:
        return name, asking.ask(verb, trail)
    except NoAnswer as error:
        fail(f"listener {name!r}: {error}")
    finally:
        asking.close()


def _asking(
    config: Any, override: Any, listener: str | None, timeout: float, patient: bool = False
) -> tuple[str, Asking]:
    settings = settings_of(config, override)
    found = listener_of(settings, listener)
    try:
        return found.name, Asking(*address_of(settings, found), found.protocol, timeout)
    except NoAnswer as error:
        if patient:
            raise
        fail(f"listener {found.name!r}: {error}")


def _parsed(name: str, answer: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(answer))
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
