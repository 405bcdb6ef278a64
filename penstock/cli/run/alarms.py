"""``penstock alarms``: list, acknowledge and mute alarms, and try their delivery."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from penstock.cli.common import fail, query_daemon
from penstock.cli.options import AsJson, Commands, Configured, DaemonConfigured, load_daemon_keys
from penstock.cli.tables.wait import parse_moment
from penstock.config import ConfigError, parse_time
from penstock.config.daemon_keys import DaemonKeys
from penstock.files.change_log import local_user
from penstock.process.terminal import visible

alarms = Commands(invoke_without_command=True, help="List, acknowledge and mute alarms, and try their delivery.")
Name = Annotated[str, typer.Argument(metavar="ALARM", help="Alarm, such as PenstockKernelDrops.")]
WithLabels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME=TEXT", help="Only alarms with this label, such as listener=web; repeatable."),
]
Note = Annotated[str, typer.Option(help="Why, for others.")]


@alarms.callback()
def without_command(context: typer.Context) -> None:
    """List, acknowledge and mute alarms, and try their delivery; without a command, list them."""
    if context.invoked_subcommand is None:
        list_(load_daemon_keys())


@alarms.command("list")
def list_(
    keys: DaemonConfigured,
    history: Annotated[bool, typer.Option("--history", help="Print what happened, the newest last.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the rules with their state, acknowledgements and mutes.

    Exits with status 1 if an alarm fires that is neither acknowledged nor muted.
    """
    document = query_daemon(keys, "/alarms")
    if as_json:
        print(json.dumps(document, indent=2))
    else:
        for line in history_lines(document) if history else state_lines(document):
            print(visible(line))
    firing = [alarm for rule in document["alarms"] for alarm in rule["firing"]]
    raise SystemExit(int(any(not alarm["acknowledged"] and not alarm["muted"] for alarm in firing)))


@alarms.command()
def ack(keys: DaemonConfigured, name: Name, label: WithLabels = None, note: Note = "", as_json: AsJson = False) -> None:
    """Acknowledge an alarm that fires: it is not delivered again until it has ended and begun again."""
    answer = _post(keys, f"/alarms/{quote(name, safe='')}/acknowledge", label, note, {})
    print(json.dumps(answer) if as_json else f"acknowledged {answer['acknowledged']} of {name}")


@alarms.command()
def mute(
    keys: DaemonConfigured,
    name: Name,
    until: Annotated[str | None, typer.Option(help="End, such as 18:00 or 2026-01-31T18:00.")] = None,
    duration: Annotated[str | None, typer.Option("--for", help="Time from now on, such as 2h.")] = None,
    label: WithLabels = None,
    note: Note = "",
    as_json: AsJson = False,
) -> None:
    """Mute an alarm until a time: if it still fires then, it is delivered."""
    if (until is None) == (duration is None):
        fail("name the end with --until TIME or --for DURATION", 2)
    try:
        end = parse_moment(until) if until is not None else time.time() + float(str(parse_time(duration or "")))
    except (ValueError, ConfigError) as error:
        fail(error, 2)
    if end <= time.time():
        fail("the end of the mute is in the past", 2)
    answer = _post(keys, f"/alarms/{quote(name, safe='')}/mute", label, note, {"until": end})
    print(json.dumps(answer) if as_json else f"muted {name} until {_local_time(end)}")


@alarms.command()
def unmute(
    keys: DaemonConfigured, name: Name, label: WithLabels = None, note: Note = "", as_json: AsJson = False
) -> None:
    """End a mute."""
    answer = _post(keys, f"/alarms/{quote(name, safe='')}/mute", label, note, {"until": 0})
    print(json.dumps(answer) if as_json else f"unmuted {name}")


def _post(keys: DaemonKeys, path: str, labels: Sequence[str] | None, note: str, document: Mapping[str, Any]) -> Any:
    pairs = [text.partition("=") for text in labels or ()]
    if wrong := [text for text, (_, equals, _) in zip(labels or (), pairs, strict=True) if not equals]:
        fail(f"--label: {wrong[0]!r} is not like listener=web", 2)
    person, origin = local_user()
    body = {"labels": {name: text for name, _, text in pairs}, "note": note, "by": person, "from": origin, **document}
    return query_daemon(keys, path, "POST", body)


def state_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each rule, and below it one for each alarm that fires or is pending, and each mute."""
    for rule in document["alarms"]:
        state = rule["state"] if rule["evaluated"] else "Prometheus only"
        yield f"{rule['alarm']:<24} {rule['severity']:<9} {state}"
        for alarm in rule["firing"]:
            yield f"  firing since {_local_time(alarm['since'])}: {alarm['summary']}"
            if alarm["given_up"]:
                yield "    delivery given up by a destination: see the log"
            if acknowledged := alarm["acknowledged"]:
                note = f": {acknowledged['note']}" * bool(acknowledged["note"])
                yield f"    acknowledged by {acknowledged['by']} at {_local_time(acknowledged['at'])}{note}"
        for alarm in rule["pending"]:
            yield f"  pending since {_local_time(alarm['since'])}{_label_words(alarm['labels'])}"
        for mute in rule["mutes"]:
            note = f": {mute['note']}" * bool(mute["note"])
            yield f"  muted until {_local_time(mute['until'])} by {mute['by']}{_label_words(mute['labels'])}{note}"


def history_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each entry of the history, the newest last."""
    for entry in reversed(document["history"]):
        author = f" by {entry['by']}" * bool(entry["by"]) + f": {entry['note']}" * bool(entry["note"])
        reason = author or f": {entry['summary']}"
        yield f"{_local_time(entry['at'])} {entry['alarm']} {entry['state']}{_label_words(entry['labels'])}{reason}"


def _label_words(labels: Mapping[str, str]) -> str:
    return f" ({', '.join(f'{name}={text}' for name, text in labels.items())})" * bool(labels)


def _local_time(moment: str | float) -> str:
    time_of = datetime.fromisoformat(moment) if isinstance(moment, str) else datetime.fromtimestamp(moment, UTC)
    return time_of.astimezone().strftime("%Y-%m-%d %H:%M:%S")


@alarms.command()
def test(settings: Configured) -> None:
    """Send a test alarm, and its end, to each configured destination once.

    Exits with status 1 if a destination fails or none is configured.
    """
    from penstock.server.alarms.delivery import AlarmDelivery
    from penstock.server.alarms.watch import BEGINS, ENDS

    if not settings.alarms.has_destination:
        fail("no destination: set webhook, command, slack, pagerduty or smtp in [alarms]")
    alarm = {
        "alarm": "PenstockTest",
        "severity": "info",
        "labels": {},
        "value": 0,
        "summary": "test alarm of penstock: nothing is wrong",
        "advice": "",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "receipt": "sent by penstock alarms test",
    }
    delivery, failed = AlarmDelivery(settings.alarms), False
    for state in (BEGINS, ENDS):
        # In this order: a destination such as PagerDuty closes what the begin opened.
        for name, error in asyncio.run(delivery.try_once({**alarm, "state": state})).items():
            print(f"{name}: {state}: {error or 'delivered'}")
            failed = failed or bool(error)
    if failed:
        raise SystemExit(1)
