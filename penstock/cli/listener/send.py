"""``penstock send``: send lines of standard input or of files to a listener."""

from __future__ import annotations

import errno
import os
import ssl
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.common import console, fail
from penstock.cli.listener.listeners import find_listener, send_address
from penstock.cli.options import Configured
from penstock.client import LedgerReport, TcpSender, UdpSender
from penstock.config import Settings
from penstock.config.daemon_access import Access
from penstock.console.wording import counted

GROUP_LINES = 1000
"""Lines of a file that are sent by one call."""


def send(
    settings: Configured,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files to read; standard input if none is named.", show_default=False)
    ] = None,
    listener: Annotated[
        str | None,
        typer.Option(help="Name of the listener; the first UDP or TCP listener if none is named.", show_default=False),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(help="Tag for every message, such as pk:KEY (UDP); may be repeated.", show_default=False),
    ] = None,
    fragment_size: Annotated[int, typer.Option(help="Maximum bytes of a datagram (UDP).", min=1, max=65_000)] = 1400,
    report: Annotated[
        bool,
        typer.Option("--report", help="Report the sent counts to the ledger, which then shows what the network lost."),
    ] = False,
) -> None:
    """Send each line of files or of standard input as one message."""
    sender = _sender(settings, listener, fragment_size, report)
    if tag and isinstance(sender, TcpSender):
        fail("--tag: listener takes lines (TCP), which have no tags; choose a UDP listener with --listener", 2)
    send_many = partial(sender.send_many, tags=tag or ()) if isinstance(sender, UdpSender) else sender.send_many
    try:
        with sender:
            for group in _read_groups(files):
                send_many(group)
            if isinstance(sender, UdpSender) and sender.is_refused:
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    except ConnectionRefusedError:
        host, port = send_address(settings, find_listener(settings, listener))
        fail(
            f"sending failed: nobody listens at {host}:{port} (`penstock up` starts listeners); {_counts_line(sender)}"
        )
    except (OSError, ValueError) as error:
        fail(f"sending failed: {getattr(error, 'strerror', None) or error}; {_counts_line(sender)}")
    console.print(_counts_line(sender), style="dim")


def _counts_line(sender: UdpSender | TcpSender) -> str:
    return "sent " + (
        ", ".join(counted(count, name.removesuffix("s")) for name, count in sender.counts.items()) or "nothing"
    )


def _sender(settings: Settings, name: str | None, fragment_size: int, report: bool) -> UdpSender | TcpSender:
    listener = find_listener(settings, name)
    host, port = send_address(settings, listener)
    access = Access(settings)
    verify = access.verify if isinstance(access.verify, ssl.SSLContext) else None
    ledger = LedgerReport(access.http_url, listener.name, token=access.token, context=verify) if report else None
    try:
        if listener.protocol == "tcp":
            return TcpSender(host, port, report=ledger)
        return UdpSender(host, port, fragment_size=fragment_size, report=ledger)
    except OSError as error:
        fail(f"listener {listener.name!r} at {host}:{port}: {error.strerror or error}")


def _read_groups(files: list[Path] | None) -> Iterator[list[bytes]]:
    if not files:
        # A line from a terminal or pipe is sent at once. Lines of files are sent in groups, because a call costs more
        # than a line.
        while line := sys.stdin.buffer.readline():
            yield [line.rstrip(b"\r\n")]
        return
    for path in files:
        try:
            with path.open("rb") as lines:
                while group := [line.rstrip(b"\r\n") for line in islice(lines, GROUP_LINES)]:
                    yield group
        except OSError as error:
            fail(f"{path}: {error.strerror}")
