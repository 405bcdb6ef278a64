"""A process that lands, proves, appends proofs and deletes rows until it is killed."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from penstock.landing.requests.conditions import IN, Condition
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.log import Log, TopicSettings
from penstock.proof import proofs_table
from penstock.proof.proofs_table import ProofAppender
from penstock.spark.query.landing_query import Landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.upkeep.checkpoint_repair import mend, sweep
from penstock.upkeep.deletion.removal import execute_deletions
from tests.spark.spark_helpers import HandWritten, landed_event

BATCH_ROWS = 5
WINDOW = 600_000_000


def main() -> None:
    folder, chance = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
    proofs_table.ROLL_AT_FILES = 4
    layout = Layout.for_tables(folder / "tables")
    Log(folder / "topics", TopicSettings()).topic("t", create=True)
    table = HandWritten(layout)
    begin_table(layout)
    mend(layout)
    worker = ProofWorker(Landing(folder / "topics", layout.tables), None)
    worker.enter()
    sweep(layout)
    table.batch = begin_table(layout).newest()
    appender = ProofAppender(layout)
    print("ready", flush=True)
    while True:
        first = (table.batch + 1) * BATCH_ROWS
        numbers = range(first, first + BATCH_ROWS)
        table.end = {"t": first}
        table.commit({"t": first + BATCH_ROWS}, [landed_event(number, f"u{number}") for number in numbers])
        worker.step()
        if chance.random() < 0.6:
            appender.step(now=True)
        if chance.random() < 0.3:
            request_deletion(layout, REQUESTED, [Condition("uuid", IN, (f"u{chance.choice(numbers)}",))])
            execute_deletions(layout, WINDOW)


if __name__ == "__main__":
    main()
