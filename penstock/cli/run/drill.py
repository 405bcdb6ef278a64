"""``penstock drill``: cause failures in a temporary pipe, and account for every message."""

from __future__ import annotations

import json
import secrets
import sys
import time
from typing import Annotated, Any

import typer

from penstock.cli.common import console, errors, fail
from penstock.cli.options import AsJson, Configured
from penstock.cli.tables.spark_session import require_spark
from penstock.drill.disasters import Sort
from penstock.drill.run import Drill, Incident
from penstock.drill.verdict import Verdict
from penstock.errors import PenstockError


def drill(
    settings: Configured,
    minutes: Annotated[float, typer.Option(help="Minutes with disasters.", min=0.05)] = 1.0,
    seed: Annotated[
        int | None, typer.Option(help="Random seed of the disasters and their order.", show_default=False)
    ] = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Run without tables: no Spark, no Java.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="Run with a Kafka broker, which fails too.")] = False,
    only: Annotated[list[Sort] | None, typer.Option(help="Kind of disaster to cause; may be repeated.")] = None,
    damages: Annotated[int, typer.Option(help="Number of files to damage at once.", min=1)] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a copy of this configuration in a temporary folder, and kill, stop, fill and damage it under load.

    Exits with status 1 if a message was lost without a recorded reason, stored twice or invented.
    """
    if not no_spark:
        require_spark("; or run without tables: penstock drill --no-spark")
    chosen_seed = secrets.randbelow(1 << 31) if seed is None else seed
    reporter = Reporter(as_json)
    reporter.progress(f"seed {chosen_seed}; a temporary pipe is starting")
    incidents: list[Incident] = []
    try:
        with Drill(
            settings,
            chosen_seed,
            reporter.progress,
            spark=not no_spark,
            kafka=kafka,
            keep=keep,
            only=only or (),
            damages=damages,
        ) as running:
            for incident in running.run(60 * minutes):
                incidents.append(incident)
                reporter.incident(incident)
            reporter.progress("senders have stopped; reading all messages")
            verdict, counts = running.verdict(), running.summary()
            if keep:
                reporter.progress(f"kept folder: {running.folder}")
    except PenstockError as error:
        # The pipe or the broker does not start.
        fail(f"{error}; seed {chosen_seed}")
    reporter.verdict(chosen_seed, incidents, verdict, counts)
    sys.exit(1 if verdict.wrong else 0)


class Reporter:
    """The output of a drill: lines as it runs, or one JSON document at the end."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def progress(self, line: str) -> None:
        """Print progress to standard error."""
        if not self._as_json:
            errors.print(line, style="dim", markup=False, soft_wrap=True)

    def incident(self, incident: Incident) -> None:
        """Print a disaster when it is over."""
        if not self._as_json:
            style = "yellow" if incident.cost else None
            console.print(f"{time.strftime('%H:%M:%S')} {incident}", style=style, markup=False, soft_wrap=True)

    def verdict(self, seed: int, incidents: list[Incident], verdict: Verdict, counts: str) -> None:
        """Print the verdict."""
        if self._as_json:
            document: dict[str, Any] = {
                "seed": seed,
                "disasters": [incident.document() for incident in incidents],
                "done": counts,
            }
            print(json.dumps(document | verdict.document(), indent=2))
            return
        sent = f"{len(incidents)} disasters, {verdict.sent:,} messages sent, {verdict.acknowledged:,} acknowledged"
        console.print(f"\n{sent}", f"({counts})", soft_wrap=True)
        for name, count in verdict.losses.items():
            console.print(f"  lost: {name} {count:,}", markup=False)
        if verdict.broken_off:
            console.print(f"  lost in broken connections: {verdict.broken_off:,} lines")
        for line in verdict.wrong:
            console.print(f"  wrong: {line}", style="red", markup=False, soft_wrap=True)
        if verdict.wrong:
            console.print(f"failed; repeat with: penstock drill --seed {seed}", style="red")
        else:
            good = "nothing acknowledged was lost, nothing stored twice, nothing invented; unaccounted for: 0"
            console.print(good, style="green", soft_wrap=True)
