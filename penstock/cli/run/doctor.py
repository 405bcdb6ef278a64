"""``penstock doctor``: problems of this machine, this configuration and the last hour, each with its remedy.

A check is a function of the settings that yields findings; ``CHECKS`` lists all checks.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict

from rich.text import Text

from penstock.cli.common import console
from penstock.cli.options import AsJson, Configured
from penstock.cli.run.machine_checks import MACHINE_CHECKS, Check, Finding
from penstock.config import ListenerConfig, Settings
from penstock.config.daemon_access import Access
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.findings import BAD, findings
from penstock.errors import PenstockError
from penstock.ingest.sockets import granted_buffer, request_buffer
from penstock.supervise.instances import running_supervisor

SMALL_DATAGRAM = 1280
"""Memory that the kernel charges for a datagram of up to a few hundred bytes."""
LAST_HOUR = "last hour"
STYLES = {"good": "green", "warning": "yellow", "bad": "red"}


def doctor(settings: Configured, as_json: AsJson = False) -> None:
    """Report problems of this machine and configuration, each with its remedy.

    Exits with status 1 if there are any.
    """
    findings = [finding for check in CHECKS for finding in check(settings)]
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            _print_finding(finding)
    sys.exit(1 if any(finding.state != "good" for finding in findings) else 0)


def _print_finding(finding: Finding) -> None:
    line = Text(f"{finding.state:>8}", style=STYLES[finding.state]).append(
        f"  {finding.check}: {finding.text}", style="default"
    )
    console.print(line, soft_wrap=True)
    if finding.advice:
        console.print(f"          {finding.advice}", soft_wrap=True, markup=False)


def receive_buffers(settings: Settings) -> Iterator[Finding]:
    """Check that the kernel grants UDP listeners the receive buffer that they request."""
    largest = max((listener.so_rcvbuf for listener in settings.listener if listener.protocol == "udp"), default=0)
    for listener in settings.listener:
        if listener.protocol == "udp":
            yield _receive_buffer(listener, largest)


def _receive_buffer(listener: ListenerConfig, largest: int) -> Finding:
    check = f"receive buffer of listener {listener.name!r}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request_buffer(sock, listener.so_rcvbuf)
        granted = granted_buffer(sock)
    # The kernel reserves twice the granted size, and charges more than its bytes for each datagram.
    holds = f"about {2 * granted // SMALL_DATAGRAM:,} small datagrams"
    if granted >= listener.so_rcvbuf:
        return Finding(check, "good", f"{granted:,} bytes granted, {holds}")
    text = f"the kernel grants {granted:,} of {listener.so_rcvbuf:,} requested bytes, {holds}: bursts are dropped"
    return Finding(check, "warning", text, f"allow more: sysctl -w net.core.rmem_max={largest}")


def last_hour(settings: Settings) -> Iterator[Finding]:
    """Report what the running penstock lost within the last hour, in the words of the console."""
    if running_supervisor(settings.data_dir) is None:
        return
    try:
        daemon = asyncio.run(_poll(settings))
    except DaemonUnavailable as error:
        yield Finding(LAST_HOUR, "warning", str(error), "see the log of penstock serve for the cause")
        return
    problems = findings(daemon, pipeline_runs=True)
    for problem in problems:
        yield Finding(LAST_HOUR, "bad" if problem.level == BAD else "warning", problem.problem, problem.advice)
    if not problems:
        yield Finding(LAST_HOUR, "good", "nothing was lost")


def tables(settings: Settings) -> Iterator[Finding]:
    """Report files of the tables that the pipeline found to be unreadable."""
    from penstock.landing.damaged_files import PUT_BACK
    from penstock.landing.table_paths import Layout
    from penstock.upkeep.repair.unreadable_files import unreadable_files

    try:
        lines = unreadable_files(Layout.for_tables(settings.tables))
    except (PenstockError, OSError) as error:
        yield Finding("tables", "warning", f"{settings.tables} cannot be read: {error}", "see pipeline.log")
        return
    yield from (Finding("tables", "bad", line, PUT_BACK) for line in lines)


def kafka_topics(settings: Settings) -> Iterator[Finding]:
    """Check that Kafka answers and shows the topics that the pipeline lands."""
    from penstock.proof.kafka_records import kafka_partitions

    if (partitions := kafka_partitions(settings)) is None:
        return
    try:
        views = partitions.views(settings.pipeline.topics)
    except PenstockError as error:
        yield Finding("kafka", "bad", str(error), "check pipeline.kafka, and that the brokers run")
        return
    if partitions.problem:
        yield Finding("kafka", "bad", partitions.problem, "")
    else:
        yield Finding("kafka", "good", f"shows {len(views):,} partitions of the pipeline's topics")


async def _poll(settings: Settings) -> Daemon:
    access = Access(settings)
    daemon = Daemon(access.http_url, access.headers, access.verify)
    await daemon.poll()
    await daemon.poll_hour()
    await daemon.poll_alarms()
    return daemon


CHECKS: tuple[Check, ...] = (receive_buffers, *MACHINE_CHECKS, kafka_topics, tables, last_hour)
