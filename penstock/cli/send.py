"""``penstock send``: lines of standard input or files to a listener."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.common import Config, Override, console, fail, settings_of
from penstock.client.sender import TcpSender, UdpSender
from penstock.config import Settings


def send(
    files: Annotated[list[Path] | None, typer.Argument(help="Files; else standard input.", show_default=False)] = None,
    config: Config = None,
    override: Override = None,
    listener: Annotated[
        str | None, typer.Option(help="A listener by name; else the first.", show_default=False)
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag such as pk:KEY (UDP).", show_default=False)] = None,
    fragment_size: Annotated[int, typer.Option(help="Largest datagram payload (UDP).", min=1, max=65_000)] = 1400,
) -> None:
    """Send each line as one message."""
    sender = _sender(settings_of(config, override), listener, fragment_size)
    if tag and isinstance(sender, TcpSender):
        fail("--tag needs a UDP listener: lines have no tags", 2)
    with closing(sender):
        try:
            for line in _lines(files):
                if isinstance(sender, UdpSender):
                    sender.send(line, tag or ())
                else:
                    sender.send(line)
        except OSError as error:
            fail(f"cannot send: {error.strerror or error}")
        counts = ", ".join(f"{count} {name}" for name, count in sender.counts.items())
    console.print(f"sent {counts or 'nothing'}", style="dim")


def _sender(settings: Settings, name: str | None, fragment_size: int) -> UdpSender | TcpSender:
    found = [listener for listener in settings.listener if name in (None, listener.name)]
    if not found:
        fail(f"there is no listener {name!r}: known are {', '.join(x.name for x in settings.listener)}", 2)
    listener = found[0]
    try:
        if listener.protocol == "tcp":
            return TcpSender(listener.host, listener.port)
        return UdpSender(listener.host, listener.port, fragment_size=fragment_size)
    except OSError as error:
        fail(f"listener {listener.name!r} at {listener.host}:{listener.port}: {error.strerror or error}")


def _lines(files: list[Path] | None) -> Iterable[bytes]:
    if not files:
        yield from (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
        return
    for path in files:
        try:
            with path.open("rb") as lines:
                yield from (line.rstrip(b"\r\n") for line in lines)
        except OSError as error:
            fail(f"{path}: {error.strerror}")
