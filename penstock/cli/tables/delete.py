"""``penstock tables delete``: rows that somebody wants gone."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Annotated

import typer

from penstock.cli.common import console, errors, fail
from penstock.cli.options import AsJson, Configured
from penstock.config import Settings
from penstock.landing.table_paths import Layout

LOOK_EVERY = 0.5


def delete(
    settings: Configured,
    where: Annotated[str, typer.Option(metavar="CONDITION", help="Such as \"host = 'web-1' and type in ('a', 'b')\".")],
    yes: Annotated[bool, typer.Option("--yes", help="Delete them; without it they are counted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take rows out of the table, by uuid, host, type, topic, kind or date. They do not land again."""
    from penstock.landing.requests.conditions import BadCondition, parse
    from penstock.landing.requests.deletions import ASKED, Record, ask
    from penstock.upkeep.deletion.removal import count

    layout = Layout.of(settings.tables)
    try:
        conditions = parse(where)
    except BadCondition as error:
        fail(f"--where: {error}", 2)
    with errors.status("counting"):
        rows, files = count(layout, conditions)
    if yes and rows:
        number = ask(layout, ASKED, conditions).number
        _carry_out(settings, layout, number)
        rows = Record(layout).rows(number)
    if as_json:
        print(json.dumps({"rows": rows, "files": files, "deleted": yes}))
    elif yes:
        console.print(f"{rows:,} rows deleted; files that have them go within hours")
    else:
        console.print(f"{rows:,} rows in {files:,} files; --yes deletes them")


def _carry_out(settings: Settings, layout: Layout, number: int) -> None:
    """Have it done: by the pipeline that runs, or here."""
    from penstock.landing.landing_lock import PipelineRunning, is_running, take_lock
    from penstock.landing.table.begun_table import table_of

    with errors.status("deleting"):
        while is_running(layout) and table_of(layout).deleted() < number:
            time.sleep(LOOK_EVERY)
        if table_of(layout).deleted() >= number:
            return None
        try:
            handle = take_lock(layout, threading.Event(), 0)
        except PipelineRunning:
            return _carry_out(settings, layout, number)
        try:
            _here(settings, layout)
        finally:
            os.close(handle)


def _here(settings: Settings, layout: Layout) -> None:
    """Prove what is not proved, delete, and tell the ledger; what it cannot be told now the pipeline tells it later."""
    from penstock.proof.ledger_posts import LedgerClient
    from penstock.spark.pipeline import landing_of
    from penstock.spark.query.proof_worker import ProofWorker
    from penstock.upkeep.believed_clock import BelievedClock
    from penstock.upkeep.checkpoint_repair import mend
    from penstock.upkeep.deletion.removal import carry_out

    landing = landing_of(settings)
    mend(layout)
    ledger = LedgerClient.of(settings)
    clock = BelievedClock(layout, ledger)
    worker = ProofWorker(landing, ledger, clock)
    worker.stop(0)
    if not worker.settled:
        fail("not all that has landed is proved yet: `penstock pipeline run --once` does it, and then deletes")
    carry_out(layout, landing.window, clock.expected_micros())
    worker.stop(0)
