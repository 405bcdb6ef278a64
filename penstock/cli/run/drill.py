"""``penstock drill``: disasters on purpose, and what became of every message."""

from __future__ import annotations

import json
import secrets
import sys
import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from penstock.cli.common import console, errors, fail
from penstock.cli.options import AsJson, Configured
from penstock.cli.tables.spark_session import need_spark
from penstock.drill.disasters import Sort
from penstock.drill.run import Drill, Incident
from penstock.drill.verdict import Verdict
from penstock.errors import PenstockError


def drill(
    settings: Configured,
    minutes: Annotated[float, typer.Option(help="How long disasters come.", min=0.05)] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Which disasters, in which order.", show_default=False)] = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Sockets to log only: no Spark, no Java.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="With a broker of its own, which goes away too.")] = False,
    only: Annotated[list[Sort] | None, typer.Option(help="Disasters of this sort; may be repeated.")] = None,
    damages: Annotated[int, typer.Option(help="How many files are damaged at once.", min=1)] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the temporary folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a copy of this configuration in a temporary folder, send to it, and kill, stop, fill and damage it.

    The exit status is 1 when a message was lost without a name, doubled or invented.
    """
    if not no_spark:
        need_spark("; or without: penstock drill --no-spark")
    chosen = secrets.randbelow(1 << 31) if seed is None else seed
    say = Lines(as_json)
    say.words(f"seed {chosen}; a pipe of its own is starting")
    incidents: list[Incident] = []
    try:
        with Drill(
            settings,
            chosen,
            say.words,
            spark=not no_spark,
            kafka=kafka,
            keep=keep,
            only=only or (),
            damages=damages,
        ) as running:
            for incident in running.run(60 * minutes):
                incidents.append(incident)
                say.incident(incident)
            say.words("senders have stopped; reading everything back")
            verdict, done = running.verdict(), running.done()
            if keep:
                say.words(f"kept: {running.folder}")
    except PenstockError as error:  # the pipe or the broker does not come up
        fail(f"{error}; seed {chosen}")
    say.verdict(chosen, incidents, verdict, done)
    sys.exit(1 if verdict.wrong else 0)


class Lines:
    """What is printed: lines for people, or one JSON document at the end."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def words(self, line: str) -> None:
        """Beside the result."""
        if not self._as_json:
            errors.print(line, style="dim", markup=False, soft_wrap=True)

    def incident(self, incident: Incident) -> None:
        """A disaster, as soon as it is over."""
        if not self._as_json:
            style = "yellow" if incident.cost else None
            console.print(f"{time.strftime('%H:%M:%S')} {incident}", style=style, markup=False, soft_wrap=True)

    def verdict(self, seed: int, incidents: list[Incident], verdict: Verdict, done: str) -> None:
        """The end."""
        if self._as_json:
            told: dict[str, Any] = {"seed": seed, "disasters": [asdict(one) for one in incidents], "done": done}
            print(json.dumps(told | verdict.document(), indent=2))
            return
        sent = f"{len(incidents)} disasters, {verdict.sent:,} messages sent, {verdict.acknowledged:,} acknowledged"
        console.print(f"\n{sent}", f"({done})", soft_wrap=True)
        for name, count in verdict.losses.items():
            console.print(f"  lost: {name} {count:,}", markup=False)
        if verdict.broken_off:
            console.print(f"  in connections that broke: {verdict.broken_off:,} lines")
        for line in verdict.wrong:
            console.print(f"  wrong: {line}", style="red", markup=False, soft_wrap=True)
        if verdict.wrong:
            console.print(f"not good; again with: penstock drill --seed {seed}", style="red")
        else:
            good = "nothing acknowledged was lost, nothing stored twice, nothing invented; unaccounted for: 0"
            console.print(good, style="green", soft_wrap=True)
