"""Commands that manage topics: ``topic`` and ``cleanup``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.common import fail
from penstock.cli.completion import topic_names
from penstock.cli.log.connect import Daemon
from penstock.cli.log.topic_list import BYTE_SETTINGS, format_duration, format_size, topic_document
from penstock.cli.options import AsJson, Commands
from penstock.cli.progress import Progress
from penstock.client import Swept, Topic

topic = Commands(help="Create, configure, show and delete topics.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Topic.", autocompletion=topic_names)]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings of [log.topic_defaults], such as retain_bytes=1GiB."),
]
TIMES = ("rotate_after", "stale_after")
SIZE_STEPS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
TIME_STEPS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


@topic.command()
def create(
    daemon: Daemon,
    name: Name,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    parsed = parse_settings(settings or ())
    with daemon.connect() as log:
        show_topic(log.create_topic(name, **parsed), as_json)


@topic.command()
def configure(
    daemon: Daemon,
    name: Name,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a topic permanently, effective at once."""
    parsed = parse_settings(settings or ())
    if not parsed:
        fail("name the settings to change, as KEY=VALUE", 2)
    with daemon.connect() as log:
        show_topic(log.configure_topic(name, **parsed), as_json)


@topic.command()
def show(
    daemon: Daemon,
    name: Name,
    as_json: AsJson = False,
) -> None:
    """Print settings, gaps and cursors of a topic."""
    with daemon.connect() as log:
        show_topic(log.describe(name)[0], as_json)


@topic.command()
def delete(
    daemon: Daemon,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking for confirmation.")] = False,
) -> None:
    """Delete a topic with all its entries."""
    with daemon.connect() as log:
        (description,) = log.describe(name)
        if not yes and not sys.stdin.isatty():
            fail(f"{name}: deleting a topic cannot be undone; confirm with --yes", 2)
        if not yes and not typer.confirm(f"Delete {name} with {description.end - description.start:,} entries?"):
            sys.exit(1)
        log.delete_topic(name)
    print(f"{name} deleted")


@topic.command("forget-cursor")
def forget_cursor(
    daemon: Daemon,
    name: Name,
    cursor: Annotated[str, typer.Argument(help="Cursor of the topic.")],
) -> None:
    """Forget a cursor of a reader that does not return.

    With retention_policy=keep the log no longer keeps entries for it.
    """
    with daemon.connect() as log:
        names = [existing.name for existing in log.cursors(name)]
        if cursor not in names:
            fail(f"{name} has no cursor {cursor!r}; its cursors are: {', '.join(names) or 'none'}")
        log.remove_cursor(name, cursor)
    print(f"{cursor} of {name} forgotten")


def cleanup(
    daemon: Daemon,
    as_json: AsJson = False,
) -> None:
    """Drop what retention allows, at once.

    The daemon does so every five minutes.
    """
    with daemon.connect() as log, Progress("cleaning up"):
        swept = log.cleanup()
    if as_json:
        print(json.dumps([asdict(swept_topic) for swept_topic in swept], indent=2))
    else:
        sys.stdout.writelines(f"{swept_line(swept_topic)}\n" for swept_topic in swept)
        if not swept:
            print("nothing to drop")


def parse_settings(pairs: Sequence[str]) -> dict[str, str | list[str]]:
    """Return ``key=value`` pairs as a mapping; readers and writers are lists with commas. Raises typer.BadParameter."""
    parsed: dict[str, str | list[str]] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE")
        parsed[name] = value.split(",") if name in ("readers", "writers") else value
    return parsed


def swept_line(swept: Swept) -> str:
    """Return the line about entries that retention dropped from a topic."""
    entries = f"{swept.end - swept.begin:,} entries from {swept.begin:,} on"
    return f"{swept.topic}: {entries}, {format_size(swept.bytes)} ({swept.reason})"


def show_topic(described: Topic, as_json: bool) -> None:
    """Print a topic."""
    if as_json:
        print(json.dumps(topic_document(described), indent=2))
        return
    entries = f"{described.end - described.start:,} entries from {described.start:,} to {described.end:,}"
    print(f"{described.name}: {entries}, {format_size(described.bytes)}")
    for name, value in described.settings.items():
        print(f"  {name} = {format_setting(name, value)}")
    for cursor in described.cursors:
        lag = f"{cursor.lag_entries:,} entries, {format_size(cursor.lag_bytes)}, {format_duration(cursor.lag_seconds)}"
        print(f"  cursor {cursor.name}: {cursor.offset:,}, {lag} behind")
    for gap in described.gaps:
        print(f"  gap {gap.begin:,} to {gap.end:,}: {gap.reason}")


def format_setting(name: str, value: object) -> str:
    """Return a setting as the configuration has it, such as 16MiB or 6h."""
    if name in BYTE_SETTINGS and isinstance(value, int):
        return _with_unit(value, SIZE_STEPS)
    if name in TIMES and isinstance(value, float):
        return _with_unit(value, TIME_STEPS)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _with_unit(value: float, steps: Sequence[tuple[str, int]]) -> str:
    unit, step = next(((unit, step) for unit, step in steps if value and value % step == 0), ("", 1))
    return f"{value / step:.15g}{unit}"
