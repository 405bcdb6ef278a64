"""``penstock pipeline backfill``: land the missing rows of a range of a topic, each row once.

A running pipeline lands the requests; otherwise this command runs one that lands nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.common import console, errors, fail
from penstock.cli.options import AsJson, ConfiguredData
from penstock.cli.tables.wait import parse_moment
from penstock.errors import PenstockError
from penstock.files.change_log import record_command
from penstock.process.reporting import configure

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.landing.requests.backfill_requests import Request
    from penstock.spark.query.landing_query import Landing
    from penstock.upkeep.backfill_planner import BackfillPlan

POLL_INTERVAL_S = 0.5
Topics = Annotated[
    list[str] | None, typer.Option("--topic", help="Topic to land; may be repeated.", show_default="pipeline.topics")
]


def backfill(
    settings: ConfiguredData,
    begin: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="First offset, time of today (14:00) or ISO date and time.")
    ],
    end: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="End, exclusive: offset or time.")] = None,
    topic: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Land the missing rows of a range of topics; existing rows stay untouched."""
    if settings.pipeline.source == "kafka":
        fail('a backfill reads the log, but pipeline.source is "kafka"', 2)
    from penstock.spark.pipeline import landing_of
    from penstock.upkeep.backfill_planner import hold_backfill_lock
    from penstock.upkeep.repair.checkpoint_repair import check_source

    try:
        bounds = parse_position(begin, "--from"), parse_position(end, "--to") if end is not None else None
    except ValueError as error:
        fail(error, 2)
    try:
        landing = landing_of(settings)
        check_source(landing.layout, kafka=False)
        # Two backfills at once would both find the same rows missing.
        with hold_backfill_lock(landing.layout):
            plans, requests = _plan_and_request(landing, topic, *bounds)
            if missing := {plan.topic: plan.missing for plan in plans if plan.missing}:
                change = f"backfill {sum(missing.values())} missing messages"
                record_command(settings.data_dir, change, topics=", ".join(missing))
            for line in [] if as_json else [line for plan in plans for line in plan_lines(plan)]:
                console.print(line, markup=False, soft_wrap=True)
            status = _land_requests(settings, landing, requests)
    except (PenstockError, OSError) as error:
        fail(error)
    _print_outcome(landing, plans, requests, as_json)
    raise typer.Exit(status)


def parse_position(text: str, option: str) -> int | float:
    """Parse an offset, or a time to seconds since the epoch. Raises ValueError."""
    return int(text) if text.isascii() and text.isdigit() else parse_moment(text, option)


def _plan_and_request(
    landing: Landing, topics: Sequence[str] | None, begin: int | float, end: int | float | None
) -> tuple[list[BackfillPlan], list[Request]]:
    """Plan each topic and store the requests. Without a running pipeline, none may start during it."""
    from penstock.landing.landing_lock import is_running
    from penstock.landing.topics.from_folder import topic_names
    from penstock.spark.pipeline import tidied
    from penstock.upkeep.backfill_planner import BackfillPlanner, request_backfill

    selected = topic_names(landing.topics, landing.topic.split(","))
    running = is_running(landing.layout)
    # A running pipeline holds the lock and updates the journal. Otherwise `tidied` does, so that none starts in
    # between.
    with errors.status("searching for missing rows"), tidied(landing, running):
        planner = BackfillPlanner(landing.topics, landing.layout, selected, running=running)
        plans = [planner.survey(name, begin, end) for name in topics or selected]
        return plans, [request for plan in plans for request in request_backfill(landing.layout, plan)]


def _land_requests(settings: Settings, landing: Landing, requests: Sequence[Request]) -> int:
    """Wait until a running pipeline lands the requests, or run one for them; return the exit status."""
    from penstock.landing.landing_lock import is_running
    from penstock.proof.posts.ledger_client import LedgerClient
    from penstock.spark.pipeline import run
    from penstock.upkeep.backfill_planner import are_proved

    with errors.status("waiting for the running pipeline"):
        # The pipeline may end before it reaches the requests. Then this command lands them itself.
        while is_running(landing.layout) and not are_proved(landing.layout, requests):
            time.sleep(POLL_INTERVAL_S)
    if are_proved(landing.layout, requests):
        return 0
    configure("backfill")
    ledger = LedgerClient.from_settings(settings)
    return run(replace(landing, only_backfills=True), spark=settings.pipeline.spark, ledger=ledger, once=True)


def plan_lines(plan: BackfillPlan) -> list[str]:
    """Return a plan as lines of text."""
    counts = ", ".join(f"{count:,} {FATE_WORDS.get(name, name)}" for name, count in sorted(plan.fates.items()) if count)
    lines = [
        f"{plan.topic}, offsets {plan.begin:,} to {plan.end:,}: {plan.missing:,} to land"
        + (f"; {counts}" if counts else "")
    ]
    if len(plan.lost):
        lines.append(f"  {len(plan.lost):,} of them were committed before, but are in no file of the table")
    return lines


FATE_WORDS = {
    "landed": "in the table",
    "waiting": "waiting for the pipeline",
    "duplicate": "duplicates",
    "gap.expired_read": "expired from the log",
    "gap.expired_unread": "expired from the log",
}


def _print_outcome(landing: Landing, plans: Sequence[BackfillPlan], requests: Sequence[Request], as_json: bool) -> None:
    from penstock.upkeep.backfill_planner import outcome

    totals = outcome(landing.layout, requests)
    if as_json:
        print(json.dumps({"topics": [_document(plan) for plan in plans], **totals}))
        return
    lost = f"{totals['unaccounted']:,} UNACCOUNTED" if totals["unaccounted"] else "0 unaccounted"
    console.print(f"{totals['rows']:,} rows landed, {totals['duplicate']:,} duplicates, {totals['gap']:,} gone, {lost}")


def _document(plan: BackfillPlan) -> dict[str, Any]:
    counts = {name: count for name, count in plan.fates.items() if count}
    missing = {"again": len(plan.lost), "ahead": len(plan.ahead)}
    return {"topic": plan.topic, "begin": plan.begin, "end": plan.end, **missing, "known": counts}
