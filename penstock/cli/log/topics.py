"""Commands that look after topics: topic, cleanup."""

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
from penstock.cli.log.figures import SIZES, document, size, span
from penstock.cli.options import AsJson, Commands
from penstock.cli.progress import Progress
from penstock.client import Swept, Topic

topic = Commands(help="Create, configure, show and delete topics.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A topic.", autocompletion=topic_names)]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings, as in [log.topic_defaults]: retain_bytes=1GiB"),
]
TIMES = ("rotate_after", "stale_after")
SIZE_STEPS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
TIME_STEPS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


@topic.command()
def create(
    where: Daemon,
    name: Name,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    given = parse_settings(settings or ())
    with where.opened() as log:
        show_topic(log.create_topic(name, **given), as_json)


@topic.command()
def configure(
    where: Daemon,
    name: Name,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a topic, at once and for good."""
    given = parse_settings(settings or ())
    if not given:
        fail("name the settings to change, as KEY=VALUE", 2)
    with where.opened() as log:
        show_topic(log.configure_topic(name, **given), as_json)


@topic.command()
def show(
    where: Daemon,
    name: Name,
    as_json: AsJson = False,
) -> None:
    """Settings, gaps and cursors of a topic."""
    with where.opened() as log:
        show_topic(log.describe(name)[0], as_json)


@topic.command()
def delete(
    where: Daemon,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a topic with all that is in it."""
    with where.opened() as log:
        (found,) = log.describe(name)
        if not yes and not sys.stdin.isatty():
            fail("deleting cannot be undone: add --yes", 2)
        if not yes and not typer.confirm(f"Delete {name} with {found.end - found.start:,} entries?"):
            sys.exit(1)
        log.delete_topic(name)
    print(f"{name} deleted")


@topic.command("forget-cursor")
def forget_cursor(
    where: Daemon,
    name: Name,
    cursor: Annotated[str, typer.Argument(help="A cursor of it.")],
) -> None:
    """Forget a reader that will not come back: with retention_policy=keep nothing is kept for it any more."""
    with where.opened() as log:
        known = [one.name for one in log.cursors(name)]
        if cursor not in known:
            fail(f"{name} has no cursor {cursor!r} (there are: {', '.join(known) or 'none'})")
        log.remove_cursor(name, cursor)
    print(f"{cursor} of {name} forgotten")


def cleanup(
    where: Daemon,
    as_json: AsJson = False,
) -> None:
    """Drop what retention allows, now; the daemon does so every five minutes."""
    with where.opened() as log, Progress("cleaning up"):
        swept = log.cleanup()
    if as_json:
        print(json.dumps([asdict(one) for one in swept], indent=2))
    else:
        sys.stdout.writelines(f"{swept_line(one)}\n" for one in swept)
        if not swept:
            print("nothing to drop")


def parse_settings(pairs: Sequence[str]) -> dict[str, str | list[str]]:
    """``key=value`` pairs; lists (readers, writers) with commas. Raises typer.BadParameter."""
    given: dict[str, str | list[str]] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE")
        given[name] = value.split(",") if name in ("readers", "writers") else value
    return given


def swept_line(one: Swept) -> str:
    """What was dropped of a topic."""
    return f"{one.topic}: {one.end - one.begin:,} entries from {one.begin:,} on, {size(one.bytes)} ({one.reason})"


def show_topic(one: Topic, as_json: bool) -> None:
    """Print a topic."""
    if as_json:
        print(json.dumps(document(one), indent=2))
        return
    print(f"{one.name}: {one.end - one.start:,} entries from {one.start:,} to {one.end:,}, {size(one.bytes)}")
    for name, value in one.settings.items():
        print(f"  {name} = {setting(name, value)}")
    for cursor in one.cursors:
        lag = f"{cursor.lag_entries:,} entries, {size(cursor.lag_bytes)}, {span(cursor.lag_seconds)} behind"
        print(f"  cursor {cursor.name}: {cursor.offset:,}, {lag}")
    for gap in one.gaps:
        print(f"  gap {gap.begin:,} to {gap.end:,}: {gap.reason}")


def setting(name: str, value: object) -> str:
    """A setting as one writes it: 16MiB, 6h."""
    if name in SIZES and isinstance(value, int):
        return _exact(value, SIZE_STEPS)
    if name in TIMES and isinstance(value, float):
        return _exact(value, TIME_STEPS)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _exact(value: float, steps: Sequence[tuple[str, int]]) -> str:
    unit, step = next(((unit, step) for unit, step in steps if value and value % step == 0), ("", 1))
    return f"{value / step:.15g}{unit}"
