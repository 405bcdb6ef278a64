"""``penstock pipeline backfill``: a stretch of a topic into the tables, each row once."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.common import console, errors, fail
from penstock.cli.options import AsJson, Configured
from penstock.cli.tables.wait import moment
from penstock.errors import PenstockError
from penstock.process.reporting import configure

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.landing.requests.backfill_requests import Request
    from penstock.spark.query.landing_query import Landing
    from penstock.upkeep.backfill_planner import BackfillPlan

LOOK_EVERY = 0.5
Topics = Annotated[
    list[str] | None, typer.Option("--topic", help="Of this topic; may be repeated.", show_default="pipeline.topics")
]


def backfill(
    settings: Configured,
    begin: Annotated[str, typer.Option("--from", metavar="PLACE", help="An offset, 14:00, or an ISO date and time.")],
    end: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="The first not wanted.")] = None,
    topic: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Land what the tables do not have of a stretch of topics; what they have is left alone."""
    if settings.pipeline.source == "kafka":
        fail('a backfill reads the log, and pipeline.source is "kafka"', 2)
    from penstock.spark.pipeline import landing_of
    from penstock.upkeep.backfill_planner import one_at_a_time
    from penstock.upkeep.checkpoint_repair import check_source

    try:
        places = place(begin, "--from"), place(end, "--to") if end is not None else None
    except ValueError as error:
        fail(error, 2)
    try:
        landing = landing_of(settings)
        check_source(landing.layout, kafka=False)
        with one_at_a_time(landing.layout):
            surveys, asked = _ask(landing, topic, *places)
            for line in [] if as_json else [line for survey in surveys for line in describe(survey)]:
                console.print(line, markup=False, soft_wrap=True)
            status = _carry_out(settings, landing, asked)
    except (PenstockError, OSError) as error:
        fail(error)
    _tell(landing, surveys, asked, as_json)
    raise typer.Exit(status)


def place(text: str, option: str) -> int | float:
    """An offset, or a time in seconds since the epoch. Raises ValueError."""
    return int(text) if text.isascii() and text.isdigit() else moment(text, option)


def _ask(
    landing: Landing, topics: Sequence[str] | None, begin: int | float, end: int | float | None
) -> tuple[list[BackfillPlan], list[Request]]:
    """Look, and keep the requests. While no pipeline runs, none may start meanwhile."""
    from penstock.landing.landing_lock import is_running
    from penstock.landing.topics.from_folder import topic_names
    from penstock.spark.pipeline import tidied
    from penstock.upkeep.backfill_planner import BackfillPlanner, ask

    selected = topic_names(landing.topics, landing.topic.split(","))
    running = is_running(landing.layout)
    with errors.status("looking what is missing"), tidied(landing, running):
        surveyor = BackfillPlanner(landing.topics, landing.layout, selected, running=running)
        surveys = [surveyor.survey(name, begin, end) for name in topics or selected]
        return surveys, [request for survey in surveys for request in ask(landing.layout, survey)]


def _carry_out(settings: Settings, landing: Landing, asked: Sequence[Request]) -> int:
    """Have the requests landed: by the pipeline that runs, or by one for this alone. The exit status."""
    from penstock.landing.landing_lock import is_running
    from penstock.proof.ledger_posts import LedgerClient
    from penstock.spark.pipeline import run
    from penstock.upkeep.backfill_planner import is_done

    with errors.status("waiting for the pipeline that runs"):
        while is_running(landing.layout) and not is_done(landing.layout, asked):
            time.sleep(LOOK_EVERY)
    if is_done(landing.layout, asked):
        return 0
    configure("backfill")
    ledger = LedgerClient.of(settings)
    return run(replace(landing, only_refills=True), spark=settings.pipeline.spark, ledger=ledger, once=True)


def describe(survey: BackfillPlan) -> list[str]:
    """What there is to say of a topic, for people."""
    wanted = len(survey.again) + len(survey.ahead)
    known = ", ".join(f"{count:,} {_NAMES.get(name, name)}" for name, count in sorted(survey.known.items()) if count)
    lines = [
        f"{survey.topic}, offsets {survey.begin:,} to {survey.end:,}: {wanted:,} to land"
        + (f"; {known}" if known else "")
    ]
    if len(survey.again):
        lines.append(f"  {len(survey.again):,} of them were committed before, and are in no file of the table")
    return lines


_NAMES = {
    "landed": "in the table",
    "waiting": "waiting for the pipeline's own turn",
    "duplicate": "duplicates",
    "gap.expired_read": "expired from the log",
    "gap.expired_unread": "expired from the log",
}


def _tell(landing: Landing, surveys: Sequence[BackfillPlan], asked: Sequence[Request], as_json: bool) -> None:
    from penstock.upkeep.backfill_planner import outcome

    done = outcome(landing.layout, asked)
    if as_json:
        print(json.dumps({"topics": [_document(survey) for survey in surveys], **done}))
        return
    lost = f"{done['unaccounted']:,} UNACCOUNTED" if done["unaccounted"] else "0 unaccounted"
    console.print(f"{done['rows']:,} rows landed, {done['duplicate']:,} duplicates, {done['gap']:,} gone, {lost}")


def _document(survey: BackfillPlan) -> dict[str, Any]:
    known = {name: count for name, count in survey.known.items() if count}
    wanted = {"again": len(survey.again), "ahead": len(survey.ahead)}
    return {"topic": survey.topic, "begin": survey.begin, "end": survey.end, **wanted, "known": known}
