"""``penstock stress``: send load to a listener, and print the balance of the run."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from contextlib import nullcontext
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.cli.common import console, errors, fail, parse_answer, query_daemon
from penstock.cli.listener.listeners import find_listener, send_address
from penstock.cli.listener.load import Stress, StressSettings
from penstock.cli.options import AsJson, Configured
from penstock.config import ListenerConfig, Settings
from penstock.config.daemon_access import Access
from penstock.counts import Name

POLL_INTERVAL_S = 0.5
QUIET_POLLS = 3
"""Polls without a change after which a balance counts as settled."""
SETTLE_TIMEOUT_S = 60.0
"""Time for the balance to settle, and for a log daemon that is being restarted to answer again."""
DEFAULTS = StressSettings()


def stress(
    settings: Configured,
    listener: Annotated[
        str | None, typer.Option(help="Name of a UDP listener; the first one if none is named.", show_default=False)
    ] = None,
    threads: Annotated[int, typer.Option(help="Number of sending threads.")] = DEFAULTS.threads,
    rate: Annotated[int, typer.Option(help="Messages per second of all threads; 0 for no limit.")] = DEFAULTS.rate,
    renew_rate: Annotated[int, typer.Option(help="Messages until a thread opens a new socket.")] = DEFAULTS.renew_rate,
    stop_after: Annotated[int, typer.Option(help="Messages to send per thread.")] = DEFAULTS.stop_after,
    min_size: Annotated[int, typer.Option(help="Minimum bytes of a message.")] = DEFAULTS.min_size,
    max_size: Annotated[int, typer.Option(help="Maximum bytes of a message, exclusive.")] = DEFAULTS.max_size,
    size_increments: Annotated[int, typer.Option(help="Bytes between two message sizes.")] = DEFAULTS.size_increments,
    size_exponent: Annotated[
        float, typer.Option(help="Exponent of the size distribution; a larger one gives more small messages.")
    ] = DEFAULTS.size_exponent,
    seed: Annotated[int, typer.Option(help="Random seed.")] = DEFAULTS.seed,
    packet_size: Annotated[
        int, typer.Option(help="Maximum bytes of a datagram, including its header.")
    ] = DEFAULTS.packet_size,
    loss: Annotated[float, typer.Option(help="Share of datagrams to withhold, from 0 to 1.")] = DEFAULTS.loss,
    send_buffer: Annotated[
        int, typer.Option(help="Bytes of the socket's send buffer (SO_SNDBUF).")
    ] = DEFAULTS.send_buffer,
    as_json: AsJson = False,
) -> None:
    """Send random messages in fragments to a listener, and print the balance of the run.

    Exits with status 1 if any message of the run is unaccounted for.
    """
    target = find_listener(settings, listener or _first_udp(settings))
    if target.protocol != "udp" or target.codec != "plog":
        fail(f"listener {target.name!r} takes no fragments; choose one with protocol udp and codec plog", 2)
    try:
        load = StressSettings(
            threads, rate, renew_rate, stop_after, min_size, max_size, size_increments, size_exponent, seed,
            packet_size, loss, send_buffer,
        )  # fmt: skip
    except ValueError as error:
        fail(error, 2)
    document = _run_load(settings, target, Stress(send_address(settings, target), load))
    print(json.dumps(document, indent=2)) if as_json else _print_document(document)
    sys.exit(0 if document["closed"] else 1)


def _first_udp(settings: Settings) -> str | None:
    names = (listener.name for listener in settings.listener if (listener.protocol, listener.codec) == ("udp", "plog"))
    return next(names, None)


def _run_load(settings: Settings, listener: ListenerConfig, stress: Stress) -> dict[str, Any]:
    # Order: the counts are read before the first datagram, so that only the growth is of this run.
    before, started = _read_counts(query_daemon(settings, "/balance"), listener), time.monotonic()
    with errors.status("sending") if errors.is_terminal else nullcontext() as status:
        stress.start()
        while not stress.wait(POLL_INTERVAL_S):
            if status is not None:
                status.update(_progress_line(settings, listener, stress, started, before))
        seconds = time.monotonic() - started
        if stress.error is not None:
            fail(f"sending failed: {stress.error.strerror or stress.error}; sent {dict(stress.counts)}")
        if status is not None:
            status.update("sent; waiting for the balance to settle")
        after = _wait_for_quiet(settings, listener)
        if after is None:
            fail(
                f"sent {dict(stress.counts)}; the log daemon at {settings.log.http} has not answered since: listeners "
                "that run have stored them in their log buffers, and `penstock balance` will show them"
            )
    return _document(dict(stress.counts), seconds, before, after)


def _progress_line(
    settings: Settings, listener: ListenerConfig, stress: Stress, started: float, before: dict[str, Any]
) -> str:
    counts, seconds = stress.counts, time.monotonic() - started
    rates = (
        f"{counts['messages']:,} messages, {counts['messages'] / seconds:,.0f}/s; "
        f"{counts['datagrams'] / seconds:,.0f} datagrams/s"
    )
    if (now := _poll_counts(settings, listener)) is None:
        return f"{rates}; the log daemon does not answer"
    lost = now["counts"][Name.KERNEL_DROPPED] - before["counts"][Name.KERNEL_DROPPED]
    return f"{rates}; dropped by the kernel: {lost:,} ({100 * lost / max(counts['datagrams'], 1):.2f} %)"


def _poll_counts(settings: Settings, listener: ListenerConfig) -> dict[str, Any] | None:
    """Return the counts; None while no log daemon answers, for example during a restart."""
    try:
        status, body = Access(settings).request("/balance")
    except OSError:
        return None
    return _read_counts(parse_answer(status, body), listener)


def _read_counts(balance: dict[str, Any], listener: ListenerConfig) -> dict[str, Any]:
    entry = _listener_entry(balance, listener.name)
    return {
        "counts": Counter(entry.get("counts", {})),
        "books": entry.get("books", []),
        "pending": balance["pending"],
        "unaccounted": balance["unaccounted"],
    }


def _listener_entry(balance: dict[str, Any], name: str) -> dict[str, Any]:
    return next((entry for entry in balance["listeners"] if entry["name"] == name), {})


def _wait_for_quiet(settings: Settings, listener: ListenerConfig) -> dict[str, Any] | None:
    """Return the balance once the listener's counts no longer change and no message waits for fragments.

    None if no log daemon has answered at the end.
    """
    # Datagrams that were withheld leave incomplete messages, which are counted only once they expire.
    deadline = time.monotonic() + SETTLE_TIMEOUT_S + listener.defrag.expire_time
    polls: list[dict[str, Any]] = []
    while time.monotonic() < deadline:
        if (counts := _poll_counts(settings, listener)) is None:
            polls = []
        else:
            polls = [*polls[-QUIET_POLLS:], counts]
            quiet = len(polls) > QUIET_POLLS and all(poll["counts"] == counts["counts"] for poll in polls)
            if quiet and not counts["counts"][Name.OPEN]:
                break
        time.sleep(POLL_INTERVAL_S)
    return polls[-1] if polls else None


def _document(sent: dict[str, int], seconds: float, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    grown = Counter(after["counts"])
    grown.subtract(before["counts"])
    network_lost = sent.get("datagrams", 0) - grown[Name.TAKEN] - grown[Name.KERNEL_DROPPED]
    # Limit: another sender of the same listener during the run is counted too.
    unaccounted = after["unaccounted"] - before["unaccounted"]
    return {
        "seconds": round(seconds, 3),
        "messages_per_second": round(sent.get("messages", 0) / seconds),
        "datagrams_per_second": round(sent.get("datagrams", 0) / seconds),
        "sent": sent,
        "received": {name: count for name, count in sorted(grown.items()) if count},
        "network_lost": network_lost,
        "open_books": after["books"],
        "unaccounted": unaccounted,
        "closed": not (network_lost or after["books"] or unaccounted),
    }


def _print_document(document: dict[str, Any]) -> None:
    table = Table(title="balance of this run", title_justify="left", box=None, show_header=False)
    table.add_column(justify="right")
    for name in ("messages", "datagrams", "lost", "sockets"):
        if name in document["sent"]:
            table.add_row(f"{document['sent'][name]:,}", f"{name} sent" if name != "lost" else "lost on purpose")
    for name, count in document["received"].items():
        table.add_row(f"{count:,}", name)
    table.add_row(f"{document['network_lost']:,}", "network_lost = datagrams sent - taken - kernel_dropped")
    table.add_row(f"{document['unaccounted']:,}", "unaccounted")
    console.print(table)
    console.print(
        f"{document['messages_per_second']:,} messages/s, {document['datagrams_per_second']:,} datagrams/s "
        f"in {document['seconds']:.1f} s",
        style="bold",
    )
