"""Commands that look after topics: topics, topic, cleanup."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.cli.common import console, fail
from penstock.cli.completion import topic_names
from penstock.cli.log.connect import Daemon
from penstock.cli.options import AsJson, Commands
from penstock.cli.progress import Progress
from penstock.client import ClientError, Log, NoSuchTopic, Swept, Topic, Unsupported

topic = Commands(help="Create, configure, show and delete topics.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A topic.", autocompletion=topic_names)]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings, as in [log.topic_defaults]: retain_bytes=1GiB"),
]
SIZES = ("message_size_limit", "segment_size_limit", "retain_bytes")
TIMES = ("rotate_after", "stale_after")
SIZE_STEPS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
TIME_STEPS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def topics(
    where: Daemon,
    rate: Annotated[float | None, typer.Option(help="Measure what is appended for so many seconds.", min=0.1)] = None,
    as_json: AsJson = False,
) -> None:
    """List the topics: what they hold, and how far their readers are."""
    with where.opened() as log:
        try:
            found = log.describe()
            _tell_unopened(log, found)
            rates = measured(log, found, rate) if rate else {}
        except Unsupported:  # slogd itself
            names = log.topics()
            print(json.dumps([{"name": name} for name in names]) if as_json else "\n".join(names))
            return
    if as_json:
        print(json.dumps([document(one) | rates_of(rates, one) for one in found], indent=2))
    else:
        _wide().print(topic_table(found, rates))


def _tell_unopened(log: Log, found: Sequence[Topic]) -> None:
    """Say of topics that cannot be opened why."""
    for name in sorted(set(log.topics()) - {one.name for one in found}):
        try:
            log.describe(name)
        except NoSuchTopic:
            continue  # deleted just now
        except ClientError as error:
            print(f"penstock: {error}", file=sys.stderr)


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


def measured(log: Log, found: Sequence[Topic], seconds: float) -> dict[str, float]:
    """Entries a second that are appended to each topic, over ``seconds`` from now."""
    began = time.monotonic()
    with Progress("measuring"):
        time.sleep(seconds)
    later = {one.name: one.end for one in log.describe()}
    took = time.monotonic() - began
    return {one.name: (later.get(one.name, one.end) - one.end) / took for one in found}


def rates_of(rates: Mapping[str, float], one: Topic) -> dict[str, float]:
    """What is added to a topic's document where rates were measured."""
    return {"entries_per_second": round(rates[one.name], 1)} if one.name in rates else {}


def document(one: Topic) -> dict[str, Any]:
    """A topic as JSON."""
    found = asdict(one)
    times = {name: stamp(found[name]) for name in ("oldest", "newest")}
    return found | times | {"entries": one.end - one.start}


def stamp(time: datetime | None) -> str | None:
    """ISO 8601 in UTC."""
    return None if time is None else time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def topic_table(found: Sequence[Topic], rates: Mapping[str, float]) -> Table:
    """A line for each topic."""
    table = Table(box=None)
    table.add_column("topic", no_wrap=True)
    for name in (
        "entries",
        "first",
        "next",
        "size",
        "segments",
        "oldest",
        "newest",
        *(["per second"] if rates else []),
    ):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("cursors, with their lag", no_wrap=True)
    for one in found:
        lags = ", ".join(f"{cursor.name} {cursor.lag_entries:,}" for cursor in one.cursors)
        numbers = [f"{number:,}" for number in (one.end - one.start, one.start, one.end)]
        rate = [f"{rates.get(one.name, 0):,.1f}"] if rates else []
        table.add_row(
            one.name, *numbers, size(one.bytes), str(one.segments), age(one.oldest), age(one.newest), *rate, lags
        )
    return table


def size(count: int) -> str:
    """Bytes for people."""
    if count < 1024:
        return f"{count} B"
    power = min(int(math.log(count, 1024)), 4)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def age(time: datetime | None) -> str:
    """How long ago."""
    return "" if time is None else f"{span((datetime.now(UTC) - time).total_seconds())} ago"


def span(seconds: float) -> str:
    """Seconds for people."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


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


def _wide() -> Any:
    """As wide as it needs where it is no terminal: lines must not be cut for another program."""
    if not console.is_terminal:
        console.width = 1000
    return console
