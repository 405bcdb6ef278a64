"""``penstock send``: lines of standard input or files to a listener."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.common import console, fail
from penstock.cli.listener.listeners import address_of, listener_of
from penstock.cli.options import Configured
from penstock.client import LedgerReport, TcpSender, UdpSender
from penstock.config import Settings
from penstock.config.daemon_access import Access

GROUP = 1000


def send(
    settings: Configured,
    files: Annotated[list[Path] | None, typer.Argument(help="Files; else standard input.", show_default=False)] = None,
    listener: Annotated[
        str | None, typer.Option(help="A listener by name; else the first.", show_default=False)
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag such as pk:KEY (UDP).", show_default=False)] = None,
    fragment_size: Annotated[int, typer.Option(help="Largest datagram payload (UDP).", min=1, max=65_000)] = 1400,
    report: Annotated[
        bool, typer.Option("--report", help="Tell the ledger what was sent, so that it knows what was lost.")
    ] = False,
) -> None:
    """Send each line as one message."""
    sender = _sender(settings, listener, fragment_size, report)
    if tag and isinstance(sender, TcpSender):
        fail("--tag needs a UDP listener: lines have no tags", 2)
    send_many = partial(sender.send_many, tags=tag or ()) if isinstance(sender, UdpSender) else sender.send_many
    try:
        with sender:
            for group in _groups(files):
                send_many(group)
    except (OSError, ValueError) as error:
        fail(f"cannot send: {getattr(error, 'strerror', None) or error}; {_told(sender)}")
    console.print(_told(sender), style="dim")


def _told(sender: UdpSender | TcpSender) -> str:
    return "sent " + (", ".join(f"{count} {name}" for name, count in sender.counts.items()) or "nothing")


def _sender(settings: Settings, name: str | None, fragment_size: int, report: bool) -> UdpSender | TcpSender:
    listener = listener_of(settings, name)
    host, port = address_of(settings, listener)
    access = Access(settings)
    verify = access.verify if isinstance(access.verify, ssl.SSLContext) else None
    ledger = LedgerReport(access.http_url, listener.name, token=access.token, context=verify) if report else None
    try:
        if listener.protocol == "tcp":
            return TcpSender(host, port, report=ledger)
        return UdpSender(host, port, fragment_size=fragment_size, report=ledger)
    except OSError as error:
        fail(f"listener {listener.name!r} at {host}:{port}: {error.strerror or error}")


def _groups(files: list[Path] | None) -> Iterator[list[bytes]]:
    """Lines as they come, many at once where they come quickly."""
    if not files:
        while line := sys.stdin.buffer.readline():  # what waits on a terminal or pipe goes at once
            yield [line.rstrip(b"\r\n")]
        return
    for path in files:
        try:
            with path.open("rb") as lines:
                while group := [line.rstrip(b"\r\n") for line in islice(lines, GROUP)]:
                    yield group
        except OSError as error:
            fail(f"{path}: {error.strerror}")
