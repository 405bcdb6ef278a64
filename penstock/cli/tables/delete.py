"""``penstock tables delete``: delete rows from the tables on request.

A running pipeline executes the request; otherwise this command does, under the pipeline's lock.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.common import console, errors, fail
from penstock.cli.options import AsJson, ConfiguredData
from penstock.config import Settings
from penstock.console.wording import counted
from penstock.errors import PenstockError
from penstock.files.change_log import record_command
from penstock.landing.table_paths import Layout

POLL_INTERVAL_S = 0.5


def delete(
    settings: ConfiguredData,
    where: Annotated[
        str, typer.Option(metavar="CONDITION", help="Condition, such as \"host = 'web-1' and type in ('a', 'b')\".")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Delete the rows; without it, they are only counted.")] = False,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for a JSON certificate of what was deleted where.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delete rows from the tables by uuid, host, type, topic, kind, date or a field of an event's data.

    Deleted rows do not land again.
    """
    from penstock.landing.requests.conditions import BadCondition, parse_conditions
    from penstock.landing.requests.deletions import REQUESTED, DeletionRecord, request_deletion
    from penstock.upkeep.deletion.certificate import certify
    from penstock.upkeep.deletion.removal import count_rows

    layout = Layout.for_tables(settings.tables)
    try:
        conditions = parse_conditions(where)
    except BadCondition as error:
        fail(f"--where: {error}", 2)
    with errors.status("counting"):
        rows, files = count_rows(layout, conditions)
    number = 0
    if yes and rows:
        number = request_deletion(layout, REQUESTED, conditions).number
        # Order: before the wait, as the request is executed also if this command is interrupted.
        record_command(settings.data_dir, f"delete {rows} rows of the tables", condition=where)
        _wait_until_deleted(settings, layout, number)
        record = DeletionRecord(layout)
        rows = record.rows(number)
        if certificate is not None:
            certificate.write_text(json.dumps(certify(layout, number), indent=2) + "\n")
    not_landed, problem = _count_not_landed(settings, layout)
    if as_json:
        document = {"rows": rows, "files": files, "deleted": yes, "not_landed": not_landed}
        optional = {"deletion": number, "problem": problem}
        print(json.dumps(document | {name: value for name, value in optional.items() if value}))
        return
    if not (rows or number):
        console.print("no row of the tables matches")
    elif yes:
        console.print(
            f"{counted(rows, 'row')} deleted by deletion {number}; the files with them are removed within hours"
        )
    else:
        console.print(f"{counted(rows, 'row')} in {counted(files, 'file')}; delete them with --yes")
    if not_landed:
        # Their rows would come into the tables after this deletion.
        step = "repeat this command once `penstock pipeline status` shows no rows behind"
        console.print(f"{counted(not_landed, 'message')} not landed yet: {step}", soft_wrap=True)
    if problem:
        text = f"some messages cannot be counted that may land later: {problem}; then repeat this command"
        console.print(text, soft_wrap=True, markup=False, highlight=False)


def _count_not_landed(settings: Settings, layout: Layout) -> tuple[int | None, str]:
    """Return the number of messages that wait for the pipeline, None if unknown, and why some may not be counted."""
    from penstock.cli.tables.pipeline import status_source
    from penstock.proof.status import status

    try:
        report = status(status_source(settings), layout, settings.pipeline.topics)
    except (PenstockError, OSError) as error:
        return None, f"the log cannot be read: {error}"
    return sum(topic.lag_rows for topic in report.topics), report.problem


def certificate(
    settings: ConfiguredData,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Number of the deletion.", min=1)],
) -> None:
    """Print the JSON certificate of a deletion: rows by table, and which copies still have them.

    Copies are exports, Iceberg tables and replaced files. `removed`: no file has the rows. `waiting`: they will be
    removed. `rows_deleted`: a database no longer returns them, but its files may have their bytes. `retained`: the copy
    does not follow the deletion. `unknown`: no record says it.
    """
    from penstock.upkeep.deletion.certificate import certify

    try:
        print(json.dumps(certify(Layout.for_tables(settings.tables), number), indent=2))
    except StopIteration:
        fail(f"there is no deletion {number} that is done", 1)


def _wait_until_deleted(settings: Settings, layout: Layout, number: int) -> None:
    from penstock.landing.landing_lock import PipelineRunning, acquire_landing_lock, is_running
    from penstock.landing.table.landed_table import table_of

    with errors.status("deleting"):
        while is_running(layout) and table_of(layout).last_deletion() < number:
            time.sleep(POLL_INTERVAL_S)
        if table_of(layout).last_deletion() >= number:
            return None
        try:
            # A pipeline may have started in between: then it executes the request.
            handle = acquire_landing_lock(layout, threading.Event(), 0)
        except PipelineRunning:
            return _wait_until_deleted(settings, layout, number)
        try:
            _delete_here(settings, layout)
        finally:
            os.close(handle)


def _delete_here(settings: Settings, layout: Layout) -> None:
    """Prove unproved batches, then delete the rows and report them to the ledger; a later pipeline reports the rest."""
    from penstock.proof.posts.ledger_client import LedgerClient
    from penstock.spark.pipeline import landing_of
    from penstock.spark.query.proof_worker import ProofWorker
    from penstock.upkeep.believed_clock import BelievedClock
    from penstock.upkeep.deletion.removal import execute_deletions
    from penstock.upkeep.repair.checkpoint_repair import repair_checkpoint

    landing = landing_of(settings)
    repair_checkpoint(layout)
    ledger = LedgerClient.from_settings(settings)
    clock = BelievedClock(layout, ledger)
    worker = ProofWorker(landing, ledger, clock)
    worker.stop(0)
    # Order: the proof first. It re-reads rows, and a row deleted before it would look like a loss.
    if not worker.all_proved:
        fail("some batches are not proved yet; `penstock pipeline run --once` proves them, then deletes the rows")
    execute_deletions(layout, landing.window, clock.expected_micros())
    worker.stop(0)
