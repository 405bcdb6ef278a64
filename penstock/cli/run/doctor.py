"""``penstock doctor``: what on this machine is not as it should be, and what to do about it.

A check is a function of the settings that gives findings; ``CHECKS`` lists them all.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict

from rich.text import Text

from penstock.cli.common import console
from penstock.cli.options import AsJson, Configured
from penstock.cli.run.machine_checks import MACHINE, Check, Finding
from penstock.config import ListenerConfig, Settings
from penstock.ingest.sockets import granted_buffer, request_buffer

SMALL_DATAGRAM = 1280
"""Bytes that the kernel books for a datagram of up to a few hundred bytes."""
STYLES = {"good": "green", "warning": "yellow", "bad": "red"}


def doctor(settings: Configured, as_json: AsJson = False) -> None:
    """Look for what is wrong; the exit status is 1 where something is."""
    findings = [finding for check in CHECKS for finding in check(settings)]
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            _show(finding)
    sys.exit(1 if any(finding.state != "good" for finding in findings) else 0)


def _show(finding: Finding) -> None:
    line = Text(f"{finding.state:>8}", style=STYLES[finding.state]).append(
        f"  {finding.check}: {finding.text}", style="default"
    )
    console.print(line, soft_wrap=True)
    if finding.advice:
        console.print(f"          {finding.advice}", soft_wrap=True, markup=False)


def receive_buffers(settings: Settings) -> Iterator[Finding]:
    """Whether the kernel grants UDP listeners the receive buffer they ask for."""
    largest = max((listener.so_rcvbuf for listener in settings.listener if listener.protocol == "udp"), default=0)
    for listener in settings.listener:
        if listener.protocol == "udp":
            yield _receive_buffer(listener, largest)


def _receive_buffer(listener: ListenerConfig, largest: int) -> Finding:
    check = f"receive buffer of listener {listener.name!r}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request_buffer(sock, listener.so_rcvbuf)
        granted = granted_buffer(sock)
    # The kernel books twice what it grants, and for each datagram more than its bytes.
    holds = f"about {2 * granted // SMALL_DATAGRAM:,} small datagrams"
    if granted >= listener.so_rcvbuf:
        return Finding(check, "good", f"{granted:,} bytes granted, {holds}")
    text = f"the kernel grants {granted:,} of {listener.so_rcvbuf:,} bytes asked for, {holds}: bursts are dropped"
    return Finding(check, "warning", text, f"allow more with: sysctl -w net.core.rmem_max={largest}")


CHECKS: tuple[Check, ...] = (receive_buffers, *MACHINE)
