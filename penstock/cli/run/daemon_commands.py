"""Commands to a running penstock: ``reload``, ``restart``, ``clock`` and ``events``.

They start quickly: only ``reload`` and ``restart`` load the whole configuration, which imports pydantic.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.common import fail, query_daemon
from penstock.cli.options import AsJson, Configured, DaemonConfigured
from penstock.cli.tables.wait import parse_moment
from penstock.counts import Name
from penstock.files.change_log import record_command
from penstock.ledger.event_words import event_line
from penstock.supervise.endpoints import endpoints

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.supervise.reload import Outcome

EVENT_POLL_INTERVAL_S = 1.0
FOLLOWED_EVENTS = 1000
"""Limit: events that may change or be added between two looks."""
HOUR_S = 3600


def reload(
    settings: Configured,
    yes: Annotated[bool, typer.Option("--yes", help="Close listeners that received messages within the hour.")] = False,
    as_json: AsJson = False,
) -> None:
    """Apply the current configuration to the running penstock.

    Exits with status 2, and changes nothing, if the configuration is invalid. The running penstock reads the file and
    the options that it was started with; the options given here are checked first and name its data directory.
    """
    from penstock.supervise.reload import request_reload

    _request_change(settings, "reloading", request_reload, yes, as_json)


def restart(
    settings: Configured,
    yes: Annotated[bool, typer.Option("--yes", help="Close listeners that received messages within the hour.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replace all running processes by this command's version and the configuration, without losing a datagram.

    The supervisor hands its sockets to its successor, and each receiver runs until its successor is ready. The command
    of another virtual environment changes to that one. TCP connections are read to the end and closed. Exits with
    status 2, and replaces no process, if the configuration is invalid or this version does not start; with status 1 if
    no penstock runs here, or a step takes minutes.
    """
    from penstock.supervise.reload import request_restart

    _request_change(settings, "restarting", request_restart, yes, as_json)


def _request_change(
    settings: Settings,
    activity: str,
    request: Callable[[Path, float, Callable[[str], None]], Outcome],
    is_confirmed: bool,
    as_json: bool,
) -> None:
    """Request a reload or a restart, print its outcome, and end the command with its status."""
    from penstock.cli.progress import Progress
    from penstock.supervise.instances import NotRunning, describe_instances
    from penstock.supervise.reload import NoAnswer, step_timeout

    if not is_confirmed and (closing := _busy_listeners_to_close(settings)):
        fail(f"this would close {closing}; keep them in the configuration, or add --yes", 2)
    try:
        with Progress(activity) as progress:
            outcome = request(settings.data_dir, step_timeout(settings.shutdown_time), progress.update)
    except NotRunning as error:
        fail(f"{error}; {describe_instances()}")
    except NoAnswer as error:
        fail(error)
    except PermissionError as error:
        fail(f"{settings.data_dir}: the penstock running there belongs to another user: {error.strerror}")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}; the running penstock is unchanged")
    if not outcome.error:
        record_command(settings.data_dir, "restart" if outcome.restart else "reload", outcome="; ".join(outcome.lines))
    if as_json:
        print(json.dumps(asdict(outcome), indent=2))
    elif outcome.error:
        fail("\n".join(outcome.lines), 2)
    else:
        for line in outcome.lines:
            print(line)
    sys.exit(2 if outcome.error else 0)


def _busy_listeners_to_close(settings: Settings) -> str:
    """Return running listeners that the configuration lacks but that received messages within the last hour, in words.

    Their senders would notice nothing: datagrams to a closed port vanish.
    """
    configured = {listener.name for listener in settings.listener}
    published = endpoints(settings.data_dir)
    running = published.get("listeners", {})
    if not (removed := running.keys() - configured):
        return ""
    # The daemon answers where it runs, which the new configuration may have changed.
    log = settings.log.model_copy(update={"http": published.get("http", settings.log.http)})
    since = str(int(time.time()) - HOUR_S)
    document = query_daemon(settings.model_copy(update={"log": log}), "/balance", since=since)
    received = {listener["name"]: listener["counts"].get(Name.ACCEPTED, 0) for listener in document["listeners"]}
    return ", ".join(
        f"listener {name!r} ({running[name][0]}:{running[name][1]}, {received[name]:,} messages within the last hour)"
        for name in sorted(removed)
        if received.get(name)
    )


def clock(
    keys: DaemonConfigured,
    accept: Annotated[bool, typer.Option("--accept", help="Confirm that the system clock is right.")] = False,
    as_json: AsJson = False,
) -> None:
    """Report whether the system clock is plausible.

    Exits with status 1 if it is not.
    """
    state = query_daemon(keys, "/clock", "POST" if accept else "GET")
    print(json.dumps(state, indent=2) if as_json else state["text"] or "the clock is right")
    sys.exit(0 if state["right"] else 1)


def events(
    keys: DaemonConfigured,
    as_json: AsJson = False,
    since: Annotated[
        str | None, typer.Option(help="Print only events after this time, such as 14:00.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Number of newest events to print.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new events until Ctrl-C.")] = False,
) -> None:
    """Print the timeline: restarts with their cause, stopped receivers, reloads, losses, full disk, retention, clock.

    The newest event is the last line.
    """
    parameters = {"limit": str(max(limit, FOLLOWED_EVENTS) if follow else limit)}
    try:
        if since is not None:
            parameters["since"] = str(int(parse_moment(since, "--since")))
    except ValueError as error:
        fail(error, 2)
    newest_first = query_daemon(keys, "/events", **parameters)["events"]
    _print_events(newest_first[:limit], as_json)
    with contextlib.suppress(KeyboardInterrupt):
        while follow:
            time.sleep(EVENT_POLL_INTERVAL_S)
            # An event changes after it is printed, such as when a process is back: its new text is printed again.
            printed = {(event["id"], event["text"]) for event in newest_first}
            newest_first = query_daemon(keys, "/events", **parameters)["events"]
            _print_events([event for event in newest_first if (event["id"], event["text"]) not in printed], as_json)


def _print_events(newest_first: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    for event in reversed(newest_first):
        print(json.dumps(event) if as_json else event_line(event), flush=True)
