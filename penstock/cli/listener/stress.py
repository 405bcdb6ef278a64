"""``penstock stress``: load for a listener, and the balance of that run."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from contextlib import nullcontext
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.cli.common import ask_daemon, console, errors, fail
from penstock.cli.listener.listeners import address_of, listener_of
from penstock.cli.listener.load import Stress, StressSettings
from penstock.cli.options import AsJson, Configured
from penstock.config import ListenerConfig, Settings
from penstock.counts import Name

LOOK_EVERY = 0.5
QUIET = 3
"""Looks at a balance that does not change, until it counts as settled."""
PATIENCE = 60.0
DEFAULTS = StressSettings()


def stress(
    settings: Configured,
    listener: Annotated[str | None, typer.Option(help="A UDP listener; else the first.", show_default=False)] = None,
    threads: Annotated[int, typer.Option(help="Threads.")] = DEFAULTS.threads,
    rate: Annotated[int, typer.Option(help="Messages a second of all threads; 0: all that can be.")] = DEFAULTS.rate,
    renew_rate: Annotated[int, typer.Option(help="Messages until a new socket.")] = DEFAULTS.renew_rate,
    stop_after: Annotated[int, typer.Option(help="Messages of each thread.")] = DEFAULTS.stop_after,
    min_size: Annotated[int, typer.Option(help="Bytes of the smallest message.")] = DEFAULTS.min_size,
    max_size: Annotated[int, typer.Option(help="Bytes that no message reaches.")] = DEFAULTS.max_size,
    size_increments: Annotated[int, typer.Option(help="Bytes between two sizes.")] = DEFAULTS.size_increments,
    size_exponent: Annotated[float, typer.Option(help="The larger, the more small ones.")] = DEFAULTS.size_exponent,
    seed: Annotated[int, typer.Option(help="Of the random numbers.")] = DEFAULTS.seed,
    packet_size: Annotated[int, typer.Option(help="Bytes of a datagram, header included.")] = DEFAULTS.packet_size,
    loss: Annotated[float, typer.Option(help="Part of the datagrams that is not sent.")] = DEFAULTS.loss,
    send_buffer: Annotated[int, typer.Option(help="SO_SNDBUF.")] = DEFAULTS.send_buffer,
    as_json: AsJson = False,
) -> None:
    """Send random messages in fragments; the exit status is 1 when something of them is not accounted for."""
    target = listener_of(settings, listener or _first_udp(settings))
    if target.protocol != "udp" or target.codec != "plog":
        fail(f"listener {target.name!r} takes no fragments: stress needs one with protocol udp and codec plog", 2)
    try:
        load = StressSettings(
            threads, rate, renew_rate, stop_after, min_size, max_size, size_increments, size_exponent, seed,
            packet_size, loss, send_buffer,
        )  # fmt: skip
    except ValueError as error:
        fail(error, 2)
    document = _run(settings, target, Stress(address_of(settings, target), load))
    print(json.dumps(document, indent=2)) if as_json else _show(document)
    sys.exit(0 if document["closed"] else 1)


def _first_udp(settings: Settings) -> str | None:
    return next((each.name for each in settings.listener if each.protocol == "udp" and each.codec == "plog"), None)


def _run(settings: Settings, listener: ListenerConfig, stress: Stress) -> dict[str, Any]:
    before, began = _look(settings, listener), time.monotonic()
    with errors.status("sending") if errors.is_terminal else nullcontext() as status:
        stress.start()
        while not stress.wait(LOOK_EVERY):
            if status is not None:
                status.update(_line(settings, listener, stress, began, before))
        seconds = time.monotonic() - began
        if stress.error is not None:
            fail(f"cannot send: {stress.error.strerror or stress.error}; sent {dict(stress.counts)}")
        if status is not None:
            status.update("sent; waiting for the balance to settle")
        after = _settled(settings, listener)
    return _document(dict(stress.counts), seconds, before, after)


def _line(settings: Settings, listener: ListenerConfig, stress: Stress, began: float, before: dict[str, Any]) -> str:
    """Rate and loss so far."""
    counts, seconds = stress.counts, time.monotonic() - began
    now = Counter(_listener(ask_daemon(settings, "/balance"), listener.name).get("counts", {}))
    lost = now[Name.KERNEL_DROPPED] - before["counts"][Name.KERNEL_DROPPED]
    share = 100 * lost / max(counts["datagrams"], 1)
    return (
        f"{counts['messages']:,} messages, {counts['messages'] / seconds:,.0f}/s; "
        f"{counts['datagrams'] / seconds:,.0f} datagrams/s; dropped by the kernel: {lost:,} ({share:.2f} %)"
    )


def _look(settings: Settings, listener: ListenerConfig) -> dict[str, Any]:
    balance = ask_daemon(settings, "/balance")
    own = _listener(balance, listener.name)
    return {
        "counts": Counter(own.get("counts", {})),
        "books": own.get("books", []),
        "pending": balance["pending"],
        "unaccounted": balance["unaccounted"],
    }


def _listener(balance: dict[str, Any], name: str) -> dict[str, Any]:
    return next((entry for entry in balance["listeners"] if entry["name"] == name), {})


def _settled(settings: Settings, listener: ListenerConfig) -> dict[str, Any]:
    """The balance once nothing of the listener changes any more and no message waits for its rest."""
    until = time.monotonic() + PATIENCE + listener.defrag.expire_time
    last: list[dict[str, Any]] = []
    while time.monotonic() < until:
        last = [*last[-QUIET:], _look(settings, listener)]
        quiet = len(last) > QUIET and all(look["counts"] == last[-1]["counts"] for look in last)
        if quiet and not last[-1]["counts"][Name.OPEN]:
            break
        time.sleep(LOOK_EVERY)
    return last[-1]


def _document(sent: dict[str, int], seconds: float, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    grown = Counter(after["counts"])
    grown.subtract(before["counts"])
    network_lost = sent.get("datagrams", 0) - grown[Name.TAKEN] - grown[Name.KERNEL_DROPPED]
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


def _show(document: dict[str, Any]) -> None:
    table = Table(title="the balance of this run", title_justify="left", box=None, show_header=False)
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
